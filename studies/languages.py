"""Do fusions of all layers help more where an encoder has read little of a language?

DWAtt §6.5, Figures 8 and 9: entities of WikiAnn in many languages, 100 training rows of each, on a
frozen XLM-R. By the tokens of XLM-R's pretraining data there are tiers: high 2 to 20 G, mid 200 to
300 M, low 10 to 100 M. Fusions lead extra layers slightly in the low tier, and not so in the
others; no number is printed, and which languages were taken is lost with the figures. By XLM-R's
own table (Conneau et al., Table 6) German, French and Portuguese are high, Swahili (275 M) is mid
and Amharic (68 M) low; English (56 G) is above the tiers, and Yoruba, Igbo and Kinyarwanda are not
in the data at all.

There is one embedded language, so dialects of it stand in for others: 30 or 60 % of the words have
changed places in the vocabulary, and what the encoder has learned of them is true of others
(bermo_ray/language/dialects.py). That says how this study runs, and little of real languages.

    python studies/languages.py                        # the embedded language, minutes, offline
    python studies/languages.py --paper --gpus --data-dir DATA --tiers high=de,fr mid=sw low=am
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa

from bermo_ray import Grid, results
from bermo_ray.command_line.language_tiers import check_tier_files, parse_tiers
from bermo_ray.command_line.options import StudyOptions, Subject, by_study, default
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.results.tiers import judge_tier, with_tiers

TIERS = ("high=entities", "mid=entities/dialect30", "low=entities/dialect60")
PAPER_TIERS = ("high=de,fr,pt", "mid=sw", "low=am")
TRAIN_ROWS, EPOCHS = 100, 25


@dataclass(frozen=True)
class Options(StudyOptions):
    """Entities in languages of which the encoder has read much or little; it is frozen."""

    FIELD_OPTIONS = StudyOptions.FIELD_OPTIONS | {"task": "tiers"}
    DEFAULT = Subject(("entities",), seeds=(0, 1, 2, 3, 4))
    PAPER = Subject(("wikiann",), ("xlm-roberta-large",), seeds=(0, 1, 2, 3, 4))

    tiers: Annotated[
        tuple[str, ...], default(f"{' '.join(TIERS)}; with --paper {' '.join(PAPER_TIERS)}")
    ] = ()
    """TIER=LANGUAGE,LANGUAGE of WikiAnn or, on the embedded encoder, dialects."""
    backbone: Annotated[str, by_study] = ""
    """The encoder: 'embedded', a folder, or a name on the hub."""
    fusions: tuple[str, ...] = ("extra_layers", "concat", "dwatt")
    """What is compared: others with extra_layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fill_in(
            tiers=PAPER_TIERS if self.paper else TIERS, backbone=self._subject.backbones[0]
        )

    @property
    def asked_subject(self) -> Subject:
        tasks = [task.split("/")[0] for names in parse_tiers(self.tiers).values() for task in names]
        return Subject(tuple(dict.fromkeys(tasks)), (self.backbone,), self.seeds)


def plan(options: Options) -> Grid:
    """Every language with every fusion, 100 rows, the encoder frozen."""
    tiers = parse_tiers(options.tiers)
    changes = {"epochs": EPOCHS, "data.train_rows": None if options.shots else TRAIN_ROWS}
    trials = [
        options.make_trial("few_shot", task, options.backbone, fusion, **changes)
        for tasks in tiers.values()
        for task in tasks
        for fusion in options.fusions
    ]
    check_tier_files(tiers, trials[0].data.data_dir)
    return options.make_grid(trials)


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps F1 by language and by tier."""
    options = session.options
    tiers = parse_tiers(options.tiers)
    table = with_tiers(table, tiers)
    value = "metric" if options.paper else "metric_reported"
    means = results.mean_over_seeds(table, ("tier", "task", "fusion"), value)
    figure = session.show_arms(means, "Entities, encoder frozen: F1, %", ("tier", "task"))
    where = f"WikiAnn on {Path(options.backbone).name}"
    if "wikiann" not in options.asked_subject.tasks:
        where = f"dialects on {Path(options.backbone).name}"
    verdicts = [judge_tier(table, tier, where, value) for tier in tiers]
    session.publish({"trials": table, "means": means}, [figure], verdicts)


if __name__ == "__main__":
    run_study("languages", Options, plan, report)

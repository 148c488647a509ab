"""What does a fusion of all layers on a frozen encoder give of what fine-tuning gives?

DWAtt §6.3 and §6.4, Figures 6 and 7: extra layers, Concat and DWAtt find entities with 8 and 128
rows per entity type in 50 epochs. Fine-tuning beats the frozen encoder whatever the fusion; with
128 rows, frozen DWAtt gives nearly half of what fine-tuning gains over frozen extra layers. And
both fusions on frozen roberta-base match or beat extra layers on frozen roberta-large.

Of the embedded encoder there is one size, so it stands in for the smaller one without the top half
of its layers, three of six: pretrained to be six layers, not three, it says less than roberta-base.
It has 8 and 64 rows per type and 25 epochs, as in few_shot_fusion.py, whose trials it takes.

    python studies/features_vs_finetune.py             # the embedded language, minutes, offline
    python studies/features_vs_finetune.py --paper --gpus   # CoNLL-2003 on both RoBERTas
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa

from bermo_ray import Grid, Trial, results
from bermo_ray.command_line.options import OneTaskOptions, Subject, default
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.results.frozen_encoders import judge_share, judge_size, judge_tuning, with_encoders
from bermo_ray.search.depths import find_depth


@dataclass(frozen=True)
class Options(OneTaskOptions):
    """A frozen encoder, a fine-tuned one and a smaller frozen one: extra layers, Concat, DWAtt."""

    DEFAULT = Subject(("entities",), seeds=(0, 1, 2))
    PAPER = Subject(("conll2003",), ("roberta-large",), seeds=(0, 1, 2, 3, 4))

    small_backbone: Annotated[
        str, default("--backbone without the top half of its layers; with --paper roberta-base")
    ] = ""
    """The smaller encoder."""
    shot_counts: Annotated[tuple[int, ...], default("8 64; with --paper 8 128")] = ()
    """Training rows per entity type."""
    fusions: tuple[str, ...] = ("extra_layers", "concat", "dwatt")
    """What is compared."""


def make_arms(options: Options, fusion: str) -> Iterator[Trial]:
    """The encoder frozen and fine-tuned, and the smaller one frozen."""
    large = options.base_trial("few_shot", fusion, epochs=50 if options.paper else 25)
    yield large
    yield large.replace(mode="finetune")
    if small := options.small_backbone or ("roberta-base" if options.paper else ""):
        folder = Path(small).expanduser()
        yield large.replace(backbone=str(folder.resolve()) if folder.is_dir() else small)
    else:
        yield large.replace(layer_drop={"strategy": "top", "count": find_depth(large) // 2})


def plan(options: Options) -> Grid:
    """Every fusion in the three arms, with few rows and with more."""
    return options.make_grid(
        trial.replace(data={"shots": shots})
        for shots in options.shot_counts or ((8, 128) if options.paper else (8, 64))
        for arms in zip(*(make_arms(options, fusion) for fusion in options.fusions), strict=True)
        for trial in arms
    )


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps F1 of the three arms."""
    options = session.options
    table = with_encoders(table, options.base_trial("few_shot").backbone)
    value = "metric" if options.paper else "metric_reported"
    means = results.mean_over_seeds(table, ("setting", "shots", "encoder", "fusion"), value)
    figure = session.show_arms(means, f"{options.task}: F1 of entities, %", ("setting",))
    where = f"{options.task} on {Path(options.backbone).name}"
    verdicts = [judge_tuning(table, fusion, where, value) for fusion in options.fusions]
    verdicts.append(judge_share(table, where, value))
    mixing = [fusion for fusion in options.fusions if fusion != "extra_layers"]
    verdicts += [judge_size(table, fusion, where, value) for fusion in mixing]
    session.publish({"trials": table, "means": means}, [figure], verdicts)


if __name__ == "__main__":
    run_study("features_vs_finetune", Options, plan, report)

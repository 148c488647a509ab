"""Which of the combine block's choices matter?

BERMo §3 mixes all layers by a softmax over α, with a learned γ, a norm and dropout, and no table of
these choices; mixing at every layer is left to later work (§5). Here each is changed by
itself in a dense model and held against BERMo as it is; plain BERT stands beside. Of k changes some
would differ by chance: a difference is settled where its interval of 1 - 0.05/k leaves out 0.

    python studies/combine_ablation.py                 # the embedded language, minutes, offline
    python studies/combine_ablation.py --choices norm dropout --seeds 0 1 2 3 4
    python studies/combine_ablation.py --paper --gpus  # GLUE on bert-base-uncased, A.1.1's settings
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from bermo_ray import Grid, Trial, results
from bermo_ray.command_line.options import ManyTasksOptions, Subject
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.errors import UserError
from bermo_ray.results import ablation
from bermo_ray.results.arm_figures import dots_figure
from bermo_ray.search.depths import find_depth

Choice = Literal["weights", "gamma", "alpha", "norm", "dropout", "states", "opening", "mix"]
UNCHANGED, PLAIN = "default", "last (BERT)"
MATTERS = results.Claim(
    "a choice of the combine block, changed by itself, makes a difference",
    source="BERMo §3, which has no table of it",
    quantity="",
)


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """The combine block's choices, changed one by one."""

    DEFAULT = Subject(seeds=(0, 1, 2))
    PAPER = Subject(("sst2", "mnli", "qqp"), ("bert-base-uncased",), seeds=(0, 1, 2))

    choices: tuple[Choice, ...] = get_args(Choice)
    """What is changed."""


def make_changes(depth: int) -> dict[str, dict[str, Any]]:
    """Each change of an encoder of so many layers, by the keys of Trial.replace."""
    states, half = list(range(depth + 1)), depth // 2 + 1  # state 0 are the embeddings
    subsets = {"upper half": states[half:], "lower half": states[:half]}
    subsets |= {"last two": states[-2:], "no embeddings": states[1:]}
    return {
        UNCHANGED: {},
        PLAIN: {"fusion.name": "last"},
        "weights: raw": {"fusion.weighting": "raw"},
        "gamma: fixed at 1": {"fusion.learn_gamma": False},
        "alpha: from zeros": {"fusion.alpha_init": "zeros"},
        **{f"norm: {name}": {"fusion.norm": name} for name in ("stack", "depth", "none")},
        "dropout: 0": {"fusion.dropout": 0.0},
        **{f"states: {name}": {"fusion.mixed_states": chosen} for name, chosen in subsets.items()},
        "opening: one by one": {"fusion.opening_share": 0.5},
        "mix: at every layer": {"fusion.name": "every_layer"},
    }


def make_trials(options: Options) -> dict[str, list[Trial]]:
    """The trials of each change, one for each task and encoder."""
    trials: dict[str, list[Trial]] = {}
    for base in options.base_trials("dense", ("bermo",)):
        depth = find_depth(base, options.paper)
        if depth < 5:
            raise UserError(f"backbones: {base.backbone} has {depth} layers, expected 5 or more")
        for name, change in make_changes(depth).items():
            if name in (UNCHANGED, PLAIN) or name.partition(":")[0] in options.choices:
                trials.setdefault(name, []).append(base.replace(change))
                if name != UNCHANGED and trials[name][-1] == base:
                    raise UserError(f"set: it makes {name!r} the default; leave it out")
    return trials


def plan(options: Options) -> Grid:
    """Every change, fine-tuned with nothing pruned."""
    return options.make_grid(t for group in make_trials(options).values() for t in group)


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps each change's difference from the default."""
    options = session.options
    grids = {name: options.make_grid(group) for name, group in make_trials(options).items()}
    names = {trial.id: name for name, grid in grids.items() for trial in grid.trials}
    change = pa.array([names[trial_id] for trial_id in table["trial_id"].to_pylist()])
    table = table.append_column("change", change)
    changes = ablation.compare_changes(table, UNCHANGED, [PLAIN])
    session.print(ablation.changes_table(f"Metric, %: {session.where}", changes))
    drawn, label = ablation.drawn_changes(changes), "difference from the default, points"
    figure = dots_figure(drawn, ["change"], "of", label, session.study.folder / "ablation.png")
    verdicts = ablation.judge_changes(table, changes, MATTERS, session.where)
    session.publish({"trials": table, "changes": changes}, [figure], verdicts)


if __name__ == "__main__":
    run_study("combine_ablation", Options, plan, report)

"""A frontier study of the formula backend: all that a real one leaves behind, in seconds."""

from pathlib import Path

from bermo_ray.command_line.frontier_study import FrontierOptions, plan_frontier, report_frontier
from bermo_ray.command_line.session import Session
from bermo_ray.study import Study
from tests.support.formula_backend import FormulaBackend

QUESTION = "How small can L0 pruning make BERT?"


def run_frontier_study(runs: Path, name: str, trials: int = 3) -> Study:
    """Runs and reports it: two fusions, two seeds, λ up to where trials diverge."""
    options = FrontierOptions(
        name=name, runs=runs, trials=trials, dense_trials=1, seeds=(0, 1), multipliers=(1.0, 90.0),
        backend="process", fresh=True,
    )  # fmt: skip
    plan = plan_frontier(options, "l0")
    study = Study(
        name, plan, store=options.store, kind="l0_frontier", question=QUESTION,
        settings={"task": "tense", "target": None, "gpus": False}, backend="process", reuse=False,
    )  # fmt: skip
    study.backend = FormulaBackend()
    report_frontier(Session(options, study), study.run().table)
    return study

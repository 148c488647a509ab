"""Frontier studies with known numbers, written to a store as a driver writes them."""

from collections.abc import Sequence
from pathlib import Path

from bermo_ray.record import Report, Status
from bermo_ray.results.report import STUDY_TEXT_FILE, StudyText
from bermo_ray.results.report.blocks import DataTable
from bermo_ray.results.verdicts import VERDICT_FILE, Claim, Estimate, dump_verdicts, judge
from bermo_ray.tracking import store, study_run
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import L0, Data, Fusion, Trial
from tests.support.records import write_study

SCRIPT = "<script>alert(1)</script>"
KEPT = [("0.attention.weight", 25, 100), ("1.attention.weight", 75, 100)]
CLAIM = Claim("a claim", "a paper", "the estimate is", "×", published=1.4, no_effect=1.0)


def reports(remaining: float, metric: float, fusion: str, pruned: bool) -> list[Report]:
    """An evaluation midway, ten points below the metric, and the end of a trial."""
    midway = Report(step=1, epoch=0.5, metric=metric - 0.1, remaining=(1 + remaining) / 2)
    last = Report(
        step=2, epoch=1.0, status=Status.COMPLETED, metric=metric, metric_selection=metric,
        metric_verification=metric, constant_metric=0.5, remaining=remaining, density=remaining,
        mixing_weights=[0.25, 0.75] if fusion == "bermo" else [],
        kept_by_matrix=KEPT if pruned else [],
    )  # fmt: skip
    return [midway, last]


def frontier_trials(
    sizes: Sequence[float], task: str = "tense"
) -> list[tuple[Trial, Sequence[Report]]]:
    """For two seeds of two fusions a dense trial of metric 0.9, and a pruned one of 0.88 at the
    fusion's size; the second seed is a tenth larger."""
    trials: list[tuple[Trial, Sequence[Report]]] = []
    for fusion, size in zip(("last", "bermo"), sizes, strict=True):
        for seed in (0, 1):
            dense = Trial(data=Data(task=task), fusion=Fusion(name=fusion), seed=seed)
            pruned = dense.replace(pruning=L0(multiplier=3.0))
            trials.append((dense, reports(1.0, 0.9, fusion, pruned=False)))
            trials.append((pruned, reports(size * (1 + seed / 10), 0.88, fusion, pruned=True)))
    return trials


def write_young_study(runs: Path, name: str) -> None:
    """A study whose only trial was interrupted after an evaluation."""
    write_study(store_uri(runs), name, [(Trial(), [Report(step=1, metric=0.5)])])


def write_frontier_study(
    runs: Path, name: str, sizes: Sequence[float], task: str = "tense"
) -> None:
    """A study of :func:`frontier_trials`, with a failed trial, a text and a verdict."""
    uri, folder = store_uri(runs), runs / name
    folder.mkdir()
    failed = Report(status=Status.FAILED, reason=f"no {SCRIPT} runs")
    trials = [*frontier_trials(sizes, task), (Trial(data=Data(task=task), seed=9), [failed])]
    write_study(uri, name, trials)
    table = DataTable(["task", "ours"], [[SCRIPT, "0.88"]], [False, True], "Beside the paper's")
    text = StudyText(
        "Is it & smaller?\n\nIt is `<said>`\nto be.\n\n    python x.py", "run it", ["a line", table]
    )
    (folder / STUDY_TEXT_FILE).write_text(text.to_json())
    verdict = judge(CLAIM, "here", lambda: Estimate(0.8, 0.6, 0.9, 3))
    (folder / VERDICT_FILE).write_text(dump_verdicts([verdict]))
    run = store.find_study(uri, name)
    assert run is not None
    study_run.add_files(uri, run.info.run_id, [folder / STUDY_TEXT_FILE, folder / VERDICT_FILE])

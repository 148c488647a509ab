"""A study as an object: in this process or on Ray the same table, in a thread, closed properly."""

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray import results
from bermo_ray.errors import StudyInterrupted, UserError
from bermo_ray.record import Report, Status
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.grid import Grid
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.study import Study
from bermo_ray.tracking.store import Store, find_study
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import L0, Data, Trial

# What a clock or the store decides; all else is the same wherever a plan runs.
MEASURED_BY_CLOCK = ["run_id", "started", "seconds", "checkpoint", "rows_per_second", "latency"]


def base_trial(tiny: str, **changes: Any) -> Trial:
    data = Data(task="tense", train_rows=48, dev_rows=31)
    trial = Trial(data=data, backbone=tiny, epochs=1, batch_size=16, pruning=L0())
    return trial.replace(optimizer__score_learning_rate=0.2, **changes)


def make_plan(tiny: str) -> FrontierSearch:
    arms = {name: base_trial(tiny, fusion__name=name) for name in ("last", "bermo")}
    ranges = {"pruning__multiplier": LogUniform(1, 100)}
    return FrontierSearch(Space(arms, ranges, "pruning__multiplier"), 3, (0, 1))


def without_clocks(table: pa.Table) -> pa.Table:
    return table.drop_columns(MEASURED_BY_CLOCK)


@pytest.mark.slow
def test_a_plan_gives_the_same_table_in_this_process_and_on_ray(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    tables = [
        # One at a time, so that searches are told in the same order.
        Study("s", make_plan(tiny), store=Store(tmp_path / backend), backend=backend, concurrent=1).run()  # type: ignore[arg-type]  # noqa: E501
        for backend in ("process", "ray")
    ]  # fmt: skip
    assert tables[0].num_rows >= 4 + 6
    assert tables[0]["status"].to_pylist().count("failed") == 0
    here, on_ray = map(without_clocks, tables)
    assert here.equals(on_ray), (here.to_pylist(), on_ray.to_pylist())


def test_it_runs_in_a_thread_and_publishes_what_it_found(tiny: str, tmp_path: Path) -> None:
    trials = [base_trial(tiny, seed=seed) for seed in (0, 1)]
    study = Study(
        "mine", Grid(trials), store=Store(tmp_path), backend="process", settings={"x": (1, 2)}
    )
    tables: list[pa.Table] = []
    thread = threading.Thread(target=lambda: tables.append(study.run()))
    thread.start()
    thread.join(timeout=120)
    (table,) = tables
    assert table["seed"].to_pylist() == [0, 1]
    assert table["metric_name"].to_pylist() == ["accuracy"] * 2
    assert results.predictions(table["trial_id"][0].as_py(), study.uri).num_rows == 31
    files = study.publish({"trials": table})
    assert [file.name for file in files] == ["trials.parquet"]
    run = find_study(study.uri, "mine")
    assert run is not None
    assert run.data.tags["bermo.status"] == "completed"
    assert json.loads((study.folder / "study.json").read_text())["settings"] == {"x": [1, 2]}
    with pytest.raises(UserError, match="^name: a study 'mine' exists; resume it or rename$"):
        Study("mine", Grid(trials), store=Store(tmp_path), backend="process").run()


class Breaks(Grid):
    """A plan that stops the study when told of its second trial."""

    error: BaseException = KeyboardInterrupt()

    def tell(self, trial: Trial, reports: Any) -> None:
        if trial.seed == 1:
            raise self.error


@pytest.mark.parametrize(
    ("error", "raised", "status"),
    [
        (KeyboardInterrupt(), StudyInterrupted, Status.INTERRUPTED),
        (RuntimeError("a bug"), RuntimeError, Status.FAILED),
    ],
)
def test_its_own_run_is_closed_whatever_happens_and_it_can_be_resumed(
    error: BaseException, raised: type[BaseException], status: Status, tiny: str, tmp_path: Path
) -> None:
    trials = [base_trial(tiny, seed=seed) for seed in range(3)]
    plan = Breaks(trials)
    plan.error = error
    study = Study("s", plan, store=Store(tmp_path), backend="process")
    with pytest.raises(raised):
        study.run()
    run = find_study(study.uri, "s")
    assert run is not None
    assert run.data.tags["bermo.status"] == status
    assert run.info.status == ("KILLED" if status is Status.INTERRUPTED else "FAILED")
    before = results.load("s", study.uri).to_pylist()
    assert len(before) == 2
    again = Study("s", Grid(trials), store=Store(tmp_path), backend="process").run(resume=True)
    rows = again.to_pylist()
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert rows[0] == before[0]  # not run again
    assert find_study(study.uri, "s").data.tags["bermo.status"] == "completed"  # type: ignore[union-attr]


def test_a_trial_that_raises_is_a_row_and_the_others_go_on(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bermo_ray.search import in_process

    train = in_process.train

    def sometimes(trial: Trial, reporter: Any) -> Report:
        if trial.seed == 0:
            raise ValueError("no such thing\nsecond line")
        return train(trial, reporter)

    monkeypatch.setattr(in_process, "train", sometimes)
    trials = [base_trial(tiny, seed=seed) for seed in (0, 1)]
    study = Study("s", Grid(trials), store=Store(tmp_path), backend="process")
    failed, other = study.run().to_pylist()
    assert (failed["status"], failed["reason"]) == ("failed", "ValueError: no such thing")
    assert Status(other["status"]).measured


def test_every_problem_is_told_at_once_in_the_names_of_the_library(tmp_path: Path) -> None:
    trial = Trial().replace(data__task="tenze", fusion__name="brmo")
    study = Study("a b", Grid([trial]), Resources(workers=0), Store(tmp_path))
    with pytest.raises(UserError) as caught:
        study.run()
    lines = caught.value.problems
    assert len(lines) == 4
    text = "\n".join(lines)
    assert "workers: got 0, expected >= 1" in text
    assert "name: got 'a b'" in text
    assert "unknown task 'tenze'" in text
    assert "unknown fusion 'brmo'" in text
    assert "--" not in text
    assert not any(tmp_path.iterdir())


def test_what_is_not_there_can_not_be_resumed(tiny: str, tmp_path: Path) -> None:
    study = Study("s", Grid([base_trial(tiny)]), store=Store(tmp_path), backend="process")
    with pytest.raises(UserError, match="^resume: study 's' is not in"):
        study.run(resume=True)

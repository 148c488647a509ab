"""A study as an object: in this process or on Ray the same table, in a thread, closed properly."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.command_line.frontier_study import (
    FrontierOptions,
    make_space,
    plan_frontier,
    read_earlier,
)
from bermo_ray.errors import StudyHaltedError, StudyInterrupted, UserError
from bermo_ray.record import Report, Status
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.grid import Grid
from bermo_ray.search.plan import Plan
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.search.target_search import TargetSearch
from bermo_ray.space import OutOfSpaceError
from bermo_ray.study import Study
from bermo_ray.tracking import study_run
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.store import Store, connect, find_study
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import L0, Data, Trial
from tests.support.formula_backend import FormulaBackend
from tests.support.records import write_study
from tests.support.small_disks import fill_up, mount_disk

# What a clock or the store decides; all else is the same wherever a plan runs.
MEASURED_BY_CLOCK = ["run_id", "started", "seconds", "checkpoint", "rows_per_second", "latency"]


def base_trial(tiny: str, **changes: Any) -> Trial:
    data = Data(task="tense", train_rows=48, dev_rows=31)
    trial = Trial(data=data, backbone=tiny, epochs=1, batch_size=16, pruning=L0())
    return trial.replace(optimizer={"score_learning_rate": 0.2}).replace(changes)


def make_plan(tiny: str) -> FrontierSearch:
    arms = {name: base_trial(tiny, fusion=name) for name in ("last", "bermo")}
    ranges = {"pruning.multiplier": LogUniform(1, 100)}
    return FrontierSearch(Space(arms, ranges, "pruning.multiplier"), 3, (0, 1))


def without_clocks(table: pa.Table) -> pa.Table:
    return table.drop_columns(MEASURED_BY_CLOCK)


@pytest.mark.ray
def test_a_plan_gives_the_same_table_in_this_process_and_on_ray(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    tables = [
        # One at a time, so that searches are told in the same order.
        Study("s", make_plan(tiny), store=Store(tmp_path / backend), backend=backend, concurrent=1).run().table  # type: ignore[arg-type]  # noqa: E501
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
    thread = threading.Thread(target=lambda: tables.append(study.run().table))
    thread.start()
    thread.join(timeout=120)
    (table,) = tables
    assert table["seed"].to_pylist() == [0, 1]
    assert table["metric_name"].to_pylist() == ["accuracy"] * 2
    assert results.predictions(table["trial_id"][0].as_py(), study.uri).num_rows == 31
    files = study.publish({"trials": table})
    assert [file.name for file in files] == ["trials.parquet", "report.html"]
    run = find_study(study.uri, "mine")
    assert run is not None
    assert run.data.tags["bermo.status"] == "completed"
    assert json.loads((study.folder / "study.json").read_text())["settings"] == {"x": [1, 2]}
    with pytest.raises(UserError, match="^name: a study 'mine' exists; `resume` it or rename$"):
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
    rows = again.table.to_pylist()
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
    failed, other = study.run().table.to_pylist()
    assert (failed["status"], failed["reason"]) == ("failed", "ValueError: no such thing")
    assert Status(other["status"]).measured


def test_every_problem_is_told_at_once_in_the_names_of_the_library(tmp_path: Path) -> None:
    trial = Trial().replace(data={"task": "tenze"}, fusion="brmo")
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


def test_a_resumed_search_does_not_learn_from_what_came_after_its_start(tmp_path: Path) -> None:
    """Trials that other studies finished meanwhile would lead it to ask for other trials."""
    options = FrontierOptions(
        train_rows=640, dev_rows=40, epochs=1, trials=3, fusions=("last",),
        runs=tmp_path, backend="process", name="first", score_learning_rates=(0.1, 0.5),
        target="0.5x", seeds=(0,), dense_trials=1,
    )  # fmt: skip

    def study(name: str, plan: Plan) -> Study:
        return Study(name, plan, store=options.store, backend="process")

    class Interrupted(TargetSearch):
        def tell(self, trial: Trial, reports: Any) -> None:
            super().tell(trial, reports)
            if trial.pruning is not None:
                raise KeyboardInterrupt

    plan = plan_frontier(options, "l0")
    plan.__class__ = Interrupted
    with pytest.raises(StudyInterrupted):
        study("first", plan).run()
    arm = make_space(options, "l0").arms["last"].replace(seed=1000)
    known_figures = {"metric": 0.9, "metric_selection": 0.9, "remaining": 0.5}
    finished = [
        (
            arm.replace(pruning={"multiplier": value}, optimizer={"score_learning_rate": 0.2}),
            [Report(status=Status.COMPLETED, step=1, **known_figures)],  # type: ignore[arg-type]
        )
        for value in (8.0, 20.0)
    ]
    write_study(options.store.uri, "other", finished)
    known: list[str] = []
    plan = plan_frontier(replace(options, resume=True), "l0")
    assert isinstance(plan, TargetSearch)
    assert plan.earlier == []
    resumed = study("first", plan)
    resumed.listeners = [KnownTrials(known)]
    assert resumed.run(resume=True).table["method"].to_pylist() == ["dense"] * 2 + ["l0"] * 4
    assert known == ["00000", "00001", "00002"]  # it was cut off after the pruned one was told
    # A new study of that kind does learn from them.
    third = plan_frontier(replace(options, name="third"), "l0")
    assert isinstance(third, TargetSearch)
    assert third.arms[0].study is not None  # the dense baseline is known
    assert len(third.arms[0].study.trials) >= 2


def test_trials_of_a_plugin_that_is_not_loaded_are_passed_over(tmp_path: Path) -> None:
    options = FrontierOptions(runs=tmp_path)
    report = Report(status=Status.COMPLETED, step=1, metric=0.5, remaining=0.5)
    write_study(options.store.uri, "s", [(Trial(), [report]), (Trial(seed=1), [report])])
    run_id = results.load("s", options.store.uri)["run_id"][0].as_py()
    strange = json.dumps(json.loads(Trial().to_json()) | {"pruning": {"method": "mine"}})
    connect(options.store.uri).set_tag(run_id, "bermo.trial_json", strange)
    assert [trial.seed for trial, _ in read_earlier(options, Data())] == [1]


class KnownTrials:
    """A listener that remembers what a resumed study knew."""

    def __init__(self, known: list[str]) -> None:
        self.known = known

    def on_known(self, attempt: str, trial: Trial, report: Report) -> None:
        self.known.append(attempt)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def test_what_this_process_can_not_do_is_one_line_each(tiny: str, tmp_path: Path) -> None:
    study = Study(
        "s", Grid([base_trial(tiny)]), Resources(workers=2, gpus=True),
        Store(tmp_path, storage="s3://bucket"), backend="process", concurrent=3,
    )  # fmt: skip
    with pytest.raises(UserError) as caught:
        study.check()
    starts = [line.partition(":")[0] for line in caught.value.problems]
    assert starts == ["workers", "gpus", "concurrent", "storage"]


def test_another_studys_checkpoints_are_not_taken_up(tiny: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "s").mkdir(parents=True)
    study = Study("s", Grid([base_trial(tiny)]), store=Store(tmp_path), backend="process")
    with pytest.raises(UserError, match="^name: .* holds another study's checkpoints"):
        study.check()


def test_an_error_of_a_listener_is_not_the_trials(tiny: str, tmp_path: Path) -> None:
    class Broken(KnownTrials):
        closed = False

        def on_report(self, attempt: str, reports: Any, checkpoint: str) -> None:
            raise RuntimeError("a listener's bug")

        def on_close(self) -> None:
            self.closed = True

    broken = Broken([])
    study = Study("s", Grid([base_trial(tiny)]), store=Store(tmp_path), backend="process")
    study.listeners = [broken]
    with pytest.raises(RuntimeError, match="a listener's bug"):
        study.run()
    assert broken.closed
    run = find_study(study.uri, "s")
    assert run is not None
    assert run.data.tags["bermo.status"] == "failed"


def test_what_is_not_there_can_not_be_resumed(tiny: str, tmp_path: Path) -> None:
    study = Study("s", Grid([base_trial(tiny)]), store=Store(tmp_path), backend="process")
    with pytest.raises(UserError, match="^resume: study 's' is not in"):
        study.run(resume=True)


def test_trials_of_earlier_studies_are_taken_not_run_again(tiny: str, tmp_path: Path) -> None:
    trials = [base_trial(tiny, seed=seed) for seed in range(3)]

    def run(name: str, wanted: list[Trial], **more: Any) -> tuple[Study, pa.Table]:
        study = Study(name, Grid(wanted), store=Store(tmp_path), backend="process", **more)
        return study, study.run().table

    _, first = run("first", trials[:2])
    study, table = run("second", trials)
    assert [known.trial.seed for known in study.taken] == [0, 1]
    assert table["study"].to_pylist() == ["first", "first", "second"]
    assert table["run_id"].to_pylist()[:2] == first["run_id"].to_pylist()
    assert results.load("second", study.uri).equals(table)  # and so it is read later
    again, same = run("third", trials)  # nothing is left to run
    assert same.num_rows == 3
    assert {known.study for known in again.taken} == {"first", "second"}
    assert again.known_trials() == again.taken
    fresh, ran = run("fourth", trials[:1], reuse=False)
    assert fresh.taken == []
    assert ran["study"].to_pylist() == ["fourth"]
    # Of other code, other workers or other data nothing is taken.
    client = connect(study.uri)
    for run_id in table["run_id"].to_pylist():
        client.set_tag(run_id, "commit", "another")
    client.set_tag(ran["run_id"][0].as_py(), "commit", "another")
    other, _ = run("fifth", trials[:1])
    assert other.taken == []


def test_an_interrupted_study_knows_what_it_knew_at_its_start(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [base_trial(tiny, seed=seed) for seed in range(3)]

    class Interrupting(Grid):
        def tell(self, trial: Trial, reports: Any) -> None:
            if trial.seed == 1:
                raise KeyboardInterrupt

    store = Store(tmp_path)
    Study("first", Grid(trials[:1]), store=store, backend="process").run()
    with pytest.raises(StudyInterrupted):
        Study("second", Interrupting(trials), store=store, backend="process").run()
    Study("meanwhile", Grid(trials[2:]), store=store, backend="process").run()
    tags = study_run.environment_tags() | {"commit": "a file was edited meanwhile"}
    monkeypatch.setattr(study_run, "environment_tags", lambda: tags)
    study = Study("second", Grid(trials), store=store, backend="process")
    table = study.run(resume=True).table
    assert [known.trial.seed for known in study.taken] == [0]  # not seed 2, which came later
    assert table["study"].to_pylist() == ["first", "second", "second"]


class FormulaStudy(Study):
    """A study whose trials end at once."""

    def __init__(self, trials: list[Trial], store: Store, name: str = "s", **more: Any) -> None:
        super().__init__(name, Grid(trials), store=store, backend="process", reuse=False, **more)
        self.backend = FormulaBackend()


def test_a_study_that_finds_no_room_to_start_can_be_started_again(
    tiny: str, tmp_path: Path
) -> None:
    with mount_disk(tmp_path / "disk", 16) as disk:
        store = Store(disk, tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
        settings = {"long": "x" * 20_000}
        ballast = fill_up(disk, leave=8192)  # for the folder and a part of the file
        study = FormulaStudy([base_trial(tiny)], store, settings=settings)
        with pytest.raises(UserError) as caught:
            study.run()
        assert caught.value.problems == (
            f"runs: no room left in {disk}; make some, then start again",
        )
        assert not isinstance(caught.value, StudyHaltedError)  # there is nothing to resume
        assert [file.name for file in disk.iterdir()] == ["ballast"]
        ballast.unlink()
        study = FormulaStudy([base_trial(tiny)], store, settings=settings)
        assert study.run().table.num_rows == 1
        assert sorted(file.suffix for file in study.folder.iterdir() if file.stem == "study") == [
            ".json"
        ]


def test_a_study_that_is_started_on_a_full_disk_is_told_so(tiny: str, tmp_path: Path) -> None:
    with mount_disk(tmp_path / "disk", 16) as disk:
        FormulaStudy([base_trial(tiny)], Store(disk), "first").run()
        fill_up(disk)
        with pytest.raises(UserError, match="^runs: no room left in .*; make some, then start aga"):
            FormulaStudy([base_trial(tiny)], Store(disk)).run()
        assert not (disk / "s").exists()


def test_results_for_which_there_is_no_room_are_published_by_a_resume(
    tiny: str, tmp_path: Path
) -> None:
    with mount_disk(tmp_path / "disk", 16) as disk:
        store = Store(disk)
        study = FormulaStudy([base_trial(tiny)], store)
        tables = {"trials": study.run().table, "large": pa.table({"x": list(range(50_000))})}
        ballast = fill_up(disk, leave=20_480)
        with pytest.raises(OutOfSpaceError, match=f"^runs: no room left in {disk / 's'}; make so"):
            study.publish(tables)
        assert not list(study.folder.glob("*.partial"))
        assert not (study.folder / "large.parquet").exists()
        ballast.unlink()
        again = FormulaStudy([base_trial(tiny)], store)
        assert again.run(resume=True).table.equals(tables["trials"])
        names = [file.name for file in again.publish(tables)]
        assert names[:2] == ["trials.parquet", "large.parquet"]
        assert pq.read_table(study.folder / "large.parquet").num_rows == 50_000


@pytest.mark.parametrize("where", ["wait", "close"])  # for MLflow; of the backend
def test_stopped_again_while_it_closes_it_can_be_resumed(
    where: str, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    study = FormulaStudy([base_trial(tiny)], Store(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(FormulaBackend, "run", lambda *args: None)  # stopped
        owner: Any = {"wait": Recorder, "close": FormulaBackend}[where]
        patch.setattr(owner, where, interrupt)
        with pytest.raises(StudyInterrupted):
            study.run()
    again = FormulaStudy([base_trial(tiny)], Store(tmp_path))
    assert again.run(resume=True).table.num_rows == 1

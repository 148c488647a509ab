"""The main job for real: the study script, its kills and resumes, and what it leaves behind."""

import json
import os
import shutil
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.record import Status
from bermo_ray.search.dialogue import LOG_FILE
from bermo_ray.tracking import store
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import Trial
from tests.support.studies import (
    finish_study,
    is_midway,
    same_as_alone,
    small_study,
    start_study,
    statuses,
    wait_for,
)

pytestmark = pytest.mark.ray

# Of a small study: a dense trial and one that is pruned, one after the other.
FEW = ("--fusions", "bermo", "--trials", "1", "--concurrent", "1")


def test_the_whole_study(tiny: str, tmp_path: Path) -> None:
    out = finish_study(start_study(tmp_path, *small_study(tiny)))
    assert "Models on the frontier: chosen on one half of dev" in out
    assert "one seed: no intervals, so nothing is said of which fusion is better" in out
    assert "measured on 41 rows" in out
    assert "bermo-ray ui" in out
    assert "bermo_ray.load('s'" in out
    path = str(tmp_path)
    assert all(len(line) <= 80 for line in out.splitlines() if path not in line), out

    table = results.load("s", store_uri(tmp_path))
    assert table.schema == results.SCHEMA
    assert table.num_rows == 6
    assert table["fusion"].to_pylist().count("bermo") == 3
    assert table["method"].to_pylist().count("dense") == 2
    rows = table.to_pylist()
    for row in rows:
        assert Status(row["status"]).measured
        assert row["trial_id"] == Trial.from_json(row["trial_json"]).id
        assert row["seconds"] > 0
        assert Path(row["checkpoint"], "model.safetensors").is_file()
        kept = results.predictions(row["run_id"], store_uri(tmp_path))
        assert kept["row"].to_pylist() == list(range(41))
        right = [p == t for p, t in zip(kept["predicted"], kept["gold"], strict=True)]
        assert kept["right"].to_pylist() == right
        assert sum(right) / 41 == pytest.approx(row["metric"])
    same_as_alone(next(r for r in rows if r["method"] == "l0"))
    assert pq.read_table(tmp_path / "s" / "trials.parquet").equals(table)
    assert pq.read_table(tmp_path / "s" / "frontier.parquet").equals(results.frontier(table))
    assert (tmp_path / "s" / "frontier.png").read_bytes().startswith(b"\x89PNG")

    # MLflow: one parent with the study's files, a child a trial with all that it takes to redo it.
    client = store.connect(store_uri(tmp_path))
    parent = store.find_study(store_uri(tmp_path), "s")
    assert parent is not None
    assert parent.data.tags["bermo.status"] == "completed"
    assert parent.data.tags["version.torch"]
    names = {a.path for a in client.list_artifacts(parent.info.run_id)}
    tables = {"frontier", "sizes", "trials"}
    if any(r["method"] == "dense" and r["status"] == "completed" for r in rows):
        tables.add("levels")  # they are shares of a dense baseline
    files = {f"{name}.parquet" for name in tables}
    report = {"frontier.png", "frontier.svg", "report.html", "report.json"}
    expected = {"description", "plan.json", "verdict.json", *report, *files}
    assert names - {"report_figures"} == expected  # which there are where trials completed
    child = client.get_run(rows[-1]["run_id"])
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.data.params["fusion.name"] == rows[-1]["fusion"]
    assert "seed" not in child.data.params  # it is the same for all
    assert "thread(s) of" in child.data.tags["bermo.hardware"]
    saved = Path(client.download_artifacts(child.info.run_id, "trial.json", str(tmp_path)))
    assert Trial.from_json(saved.read_text()).id == rows[-1]["trial_id"]

    again = start_study(tmp_path, *small_study(tiny))
    _, err = again.communicate(timeout=200)
    assert again.returncode == 2
    assert err.strip() == "error: --name: a study 's' exists; --resume it or rename"


def test_killed_it_goes_on(tiny: str, tmp_path: Path) -> None:
    process = start_study(tmp_path, *small_study(tiny, rows=1000, epochs=8), *FEW, session=True)

    wait_for(lambda: is_midway(tmp_path), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = {r["run_id"]: r for r in results.load("s", store_uri(tmp_path)).to_pylist()}
    kept = {i: r for i, r in before.items() if Status(r["status"]).measured}
    cut = next(r for r in before.values() if r["status"] == "running")

    finish_study(start_study(tmp_path, "--resume", "--name", "s"))
    after = {r["run_id"]: r for r in results.load("s", store_uri(tmp_path)).to_pylist()}
    assert len(after) == 2
    assert {i: after[i] for i in kept} == kept
    client = store.connect(store_uri(tmp_path))
    for run_id, row in after.items():
        steps = [m.step for m in client.get_metric_history(run_id, "metric")]
        assert steps == sorted(set(steps)), "a report is missing or written twice"
        assert len(steps) == 8
        assert Status(row["status"]).measured
    same_as_alone(after[cut["run_id"]])
    assert after[cut["run_id"]]["resumed_at"] > 0, "it began anew instead of going on"


def test_killed_before_anything_was_saved_it_starts_anew(tiny: str, tmp_path: Path) -> None:
    process = start_study(tmp_path, *small_study(tiny), *FEW, session=True)
    wait_for((tmp_path / "s" / "study.json").is_file, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    finish_study(start_study(tmp_path, "--resume", "--name", "s"))
    assert len(statuses(tmp_path)) == 2
    assert all(s.measured for s in statuses(tmp_path))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_says_how_to_go_on(tiny: str, tmp_path: Path, how: signal.Signals) -> None:
    process = start_study(tmp_path, *small_study(tiny, rows=1000, epochs=8), *FEW)
    wait_for(lambda: is_midway(tmp_path), process)
    process.send_signal(how)
    out = finish_study(process, code=130)
    assert "--resume --name s" in out
    assert Status.INTERRUPTED in statuses(tmp_path)
    parent = store.find_study(store_uri(tmp_path), "s")
    assert parent is not None
    assert parent.data.tags["bermo.status"] == "interrupted"
    if how is signal.SIGTERM:  # once is enough: what is resumed does not know what stopped it
        return
    finish_study(start_study(tmp_path, "--resume"))
    assert len(statuses(tmp_path)) == 2
    assert all(s.measured for s in statuses(tmp_path))


def test_a_trial_that_fails_is_a_row(tiny: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    runs = tmp_path / "runs"
    process = start_study(runs, *small_study(str(broken)))
    wait_for((runs / "s" / "study.json").is_file, process)  # all checks are passed
    (broken / "model.safetensors").write_bytes(b"not weights")
    out, _ = process.communicate(timeout=500)
    rows = results.load("s", store_uri(runs)).to_pylist()
    assert len(rows) == 6
    failed = [r for r in rows if r["status"] == "failed"]
    assert len(failed) >= 4  # the first two may have been quicker than the sabotage
    assert all("its weights can't be loaded" in r["reason"] for r in failed)
    assert f"{len(failed)} failed: " in out
    assert process.returncode == (1 if len(failed) == 6 else 0)  # no study succeeds without a trial


def test_seeds_are_searched_apart_and_compared(tmp_path: Path) -> None:
    """Two seeds of both fusions on the shipped encoder, which learns the task in 80 steps."""
    out = finish_study(
        start_study(
            tmp_path, "--name", "s", "--train-rows", "640", "--dev-rows", "100", "--epochs", "2",
            "--seeds", "0", "1", "--trials", "1", "--dense-trials", "1", "--multipliers", "1", "2",
            "--levels", "0.5", "0.9",
        )
    )  # fmt: skip
    assert all(len(line) <= 80 for line in out.splitlines() if str(tmp_path) not in line), out
    table = results.load("s", store_uri(tmp_path))
    kinds = {(r["fusion"], r["method"], r["seed"]) for r in table.to_pylist()}
    assert len(kinds) == table.num_rows == 8
    ratios = pq.read_table(tmp_path / "s" / "ratios.parquet")
    assert ratios.equals(results.compare_arms(table, (0.5, 0.9), arms=["last", "bermo"]))
    assert ratios["share"].to_pylist() == [0.5, 0.9]
    assert "times fewer" in out
    assert pq.read_table(tmp_path / "s" / "levels.parquet").num_rows == 4
    assert pq.read_table(tmp_path / "s" / "areas.parquet").num_rows == 1


def test_a_target_over_seeds_and_what_a_second_study_learns_from_the_first(tmp_path: Path) -> None:
    options = (
        "--train-rows", "600", "--dev-rows", "100", "--epochs", "2", "--fusions", "last",
        "--trials", "3", "--dense-trials", "1", "--multipliers", "0.5", "20", "--target", "0.9x",
        "--score-learning-rates", "0.04", "0.12",
    )  # fmt: skip
    first = ("--name", "first", "--seeds", "0", "1")
    out = finish_study(start_study(tmp_path, *options, *first))
    # A log that this version would not have written is one line, not a study gone astray.
    log = tmp_path / "first" / LOG_FILE
    kept = log.read_text()
    first_id = json.loads(kept.partition("\n")[0])["trial"]
    log.write_text(kept.replace(first_id, "another", 1))
    strange = start_study(tmp_path, "--resume", "--name", "first")
    _, err = strange.communicate(timeout=200)
    assert strange.returncode == 2
    assert err.strip().splitlines() == [
        "error: --resume: this version would have asked for other trials than the study did so "
        "far; resume it with the version that started it"
    ]
    rows = results.load("first", store_uri(tmp_path)).to_pylist()
    kinds = sorted((r["method"], r["seed"]) for r in rows)
    # Dense: one that chooses the rate, two that report it; pruned: three searched, one reported.
    assert (
        kinds
        == [("dense", 0), ("dense", 1), ("dense", 1000), ("l0", 0), ("l0", 1)] + [("l0", 1000)] * 3
    )
    dense = [r["metric_reported"] for r in rows if r["method"] == "dense" and r["seed"] < 2]
    reported = [r for r in rows if r["method"] == "l0" and r["seed"] < 2]
    (answer,) = pq.read_table(tmp_path / "first" / "answers.parquet").to_pylist()
    assert answer["target_metric"] == pytest.approx(0.9 * sum(dense) / 2)
    assert answer["metric"] == pytest.approx(sum(r["metric_reported"] for r in reported) / 2)
    assert answer["remaining"] == pytest.approx(sum(r["remaining"] for r in reported) / 2)
    assert {answer["recipe"]} == {r["recipe"] for r in reported}
    assert answer["met"] == (answer["metric"] >= answer["target_metric"])
    assert f"with {answer['remaining']:.1%} of the weights" in out

    finish_study(start_study(tmp_path, *options, "--name", "second", "--seeds", "0", "1"))
    again = results.load("second", store_uri(tmp_path)).to_pylist()
    searched = {r["trial_id"] for r in again if r["seed"] == 1000}
    assert not any(r["method"] == "dense" for r in again)  # they are known
    assert len(searched) == 3
    assert not searched & {r["trial_id"] for r in rows}
    too_much = start_study(
        tmp_path, *options, "--name", "third", "--target", "0.9999", "--seeds", "0", "1"
    )
    _, err = too_much.communicate(timeout=200)
    assert too_much.returncode == 2
    assert "is above last's dense baseline" in err
    assert len(err.strip().splitlines()) == 1

"""Every script of studies/: with the papers' settings as a dry run, and through Ray for real with a
minimal budget, all into one store."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from markupsafe import escape

from bermo_ray.record import Status
from bermo_ray.results.report import REPORT_FILE
from bermo_ray.results.verdict_store import load_verdicts
from bermo_ray.results.verdicts import VERDICT_FILE, parse_verdicts
from bermo_ray.tracking.store import store_uri
from tests.support.studies import ROOT, load_script, run_script

STUDIES = sorted(file.stem for file in (ROOT / "studies").glob("[!_]*.py"))
SMALL = ("--train-rows", "96", "--dev-rows", "40", "--seeds", "0", "1")
SHORT = (*SMALL, "--epochs", "1")
# So many that a teacher, or the undropped model, is better than a constant answer.
LEARNED = ("--train-rows", "320", "--dev-rows", "60", "--epochs", "2", "--seeds", "0")
FEW = ("--dev-rows", "40", "--seeds", "0", "1")
# A few short trials each; where studies share a trial, the later one takes it from the store.
MINIMAL: dict[str, tuple[str, ...]] = {
    "probing": (*SHORT, "--tasks", "tense"),
    "standalone": (*SHORT, "--tasks", "tense"),
    "stability": SHORT,
    "convergence": (*SMALL, "--epoch-counts", "1", "2"),
    "pruning_methods": (*SHORT, "--methods", "movement", "l0"),
    "distillation": LEARNED,
    "l0_frontier": (*SHORT, "--trials", "1", "--dense-trials", "1"),
    "soft_movement_frontier": (*SHORT, "--trials", "1", "--dense-trials", "1"),
    "combine_ablation": (*SHORT, "--choices", "norm"),
    "few_shot_fusion": (*FEW, "--epoch-counts", "1", "--shot-counts", "2", "4"),
    "features_vs_finetune": (*FEW, "--epochs", "1", "--shot-counts", "2"),
    "languages": (
        *FEW,
        "--epochs",
        "1",
        "--train-rows",
        "20",
        "--fusions",
        "extra_layers",
        "concat",
    ),
    "mlm_fusion": (*SHORT, "--fusions", "last", "concat"),
    "layer_drop": (*SHORT, "--strategies", "top", "bottom", "--counts", "3"),
    "optimal_layers": (*LEARNED, "--tasks", "tense", "--thresholds", "3"),
    "everything": (*LEARNED, "--sizes", "0.5", "--counts", "0", "3", "--fusions", "last"),
}
# What a dry run may say of the papers' data and encoders, which are not on this machine.
MISSING = ("no such folder", "no tokenizer found", "no data", "hub")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(run_script, monkeypatch, capsys)


@pytest.mark.parametrize("name", STUDIES)
def test_the_papers_settings_are_listed(run: Run, name: str, tmp_path: Path) -> None:
    code, out, err = run(name, "--paper", "--dry-run", "--runs", str(tmp_path / "runs"))
    if load_script(name).Options.PAPER is None:
        assert (code, out) == (2, "")
        assert err == "error: --paper: no paper asked this question; leave it out\n"
        return
    assert " trials" in out, err
    assert all(len(line) <= 80 for line in out.splitlines()), out
    for line in err.splitlines():
        assert any(words in line for words in MISSING), line
    assert (code == 2) == bool(err)
    assert not (tmp_path / "runs").exists()


def test_every_study_is_run_below() -> None:
    assert sorted(MINIMAL) == STUDIES


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One store for all studies, and one Ray that all of them join."""
    import ray

    from bermo_ray.ray_backend.cluster import quiet_environment

    environment = {"env_vars": quiet_environment()}
    ray.init(
        "local", num_cpus=2, log_to_driver=False, logging_level="ERROR", runtime_env=environment
    )
    yield tmp_path_factory.mktemp("studies") / "runs"
    ray.shutdown()


@pytest.mark.ray
@pytest.mark.parametrize("name", sorted(MINIMAL, key=list(MINIMAL).index))
def test_a_minimal_budget_gives_tables_a_figure_and_verdicts(
    run: Run, runs: Path, name: str
) -> None:
    code, out, err = run(name, *MINIMAL[name], "--runs", str(runs), "--name", name)
    assert code == 0, out + err
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line), out
    trials = pq.read_table(runs / name / "trials.parquet")
    assert trials.num_rows >= 2
    statuses = [Status(status) for status in trials["status"].to_pylist()]
    assert all(status.measured for status in statuses), trials.to_pylist()
    verdicts = parse_verdicts((runs / name / VERDICT_FILE).read_text())
    assert verdicts
    printed = " ".join(out.split())
    for verdict in verdicts:
        assert " ".join(verdict.sentence.split()) in printed
        assert verdict.command.startswith(f"bermo-ray study {name}")
        assert verdict.study == name
    figures = list((runs / name).glob("*.png"))
    assert figures
    assert all(file.stat().st_size > 5_000 for file in figures)
    kept = [v for v in load_verdicts(store_uri(runs)) if v.study == name]
    assert kept == verdicts
    page = (runs / name / REPORT_FILE).read_text()
    question = (load_script(name).__doc__ or "").partition("\n")[0]
    assert f"<h1>{escape(question)}</h1>" in page
    assert all(file.with_suffix(".svg").is_file() for file in figures)
    for verdict in verdicts:
        assert escape(verdict.command) in page


@pytest.mark.ray
def test_what_an_earlier_study_ran_is_not_run_again(run: Run, runs: Path) -> None:
    options = (*MINIMAL["standalone"], "--runs", str(runs), "--name", "again")
    code, out, err = run("standalone", *options)
    assert code == 0, err
    assert "4 trials taken from" in out
    assert "0 trials ended in" in out
    tables = [pq.read_table(runs / name / "trials.parquet") for name in ("standalone", "again")]
    assert tables[0]["run_id"].to_pylist() == tables[1]["run_id"].to_pylist()
    verdicts = json.loads((runs / "again" / VERDICT_FILE).read_text())
    earlier = json.loads((runs / "standalone" / VERDICT_FILE).read_text())
    assert [v["value"] for v in verdicts] == [v["value"] for v in earlier]

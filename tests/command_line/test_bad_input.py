"""Bad input: one clear line each, before any trial starts, exit code 2."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.training.check import check_trials
from bermo_ray.trial import Trial
from tests.support.studies import ROOT, load_script, run_script
from tests.support.task_files import write_parquet


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def call(*options: str, name: str = "l0_frontier") -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        return run_script(monkeypatch, capsys, name, *options)

    return call


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--task", "tenze"], "unknown task 'tenze': did you mean tense?"),
        (["--fusions", "brmo"], "unknown fusion 'brmo': did you mean bermo?"),
        (["--backbone", "./nowhere"], "backbone './nowhere': no such folder"),
        (["--multipliers", "-1", "10"], "--multipliers: got -1.0..10.0, expected 0 < low <= high"),
        (["--metric", "f1"], "--metric: it is for your own rows; give --train or --dataset too"),
        (["--epochs", "0"], "--epochs: got 0, expected greater than or equal to 1"),
        (["--train-rows", "-5"], "--train-rows: got -5"),
        (["--warmup", "0.5", "--train-rows", "64"], "no steps left between the flat ends"),
        (
            ["--warmup", "9", "--train-rows", "16"],
            "--warmup: 9 steps of warm-up, but only 4 steps in all",
        ),
        (["--task", "sst2", "--data-dir", "nowhere"], "no data directory"),
        (["--tracking-uri", "http://127.0.0.1:9"], "no MLflow server answers at"),
        (["--workers", "0"], "--workers: got 0, expected >= 1"),
        (["--gpus-per-worker", "0.5"], "--gpus-per-worker: got 0.5 without --gpus"),
        (["--gpus", "--gpus-per-worker", "2"], "--gpus-per-worker: got 2, expected 0 < gpus"),
        (
            ["--gpus", "--gpus-per-worker", "0.5", "--workers", "2"],
            "--gpus-per-worker: got 0.5 with 2 workers, each of which needs a GPU of its own",
        ),
        (["--set", "precision=tf32"], "precision: got 'tf32', which GPUs alone have"),
        (["--trials", "0"], "--trials: got 0, expected >= 1"),
        (["--seeds", "1", "1"], "--seeds: got [1, 1], expected different numbers"),
        (["--start", "nowhere"], "--start: no folder 'nowhere', and no trial of that id"),
        (["--target", "good"], "--target: got 'good', expected a metric (0.885) or a share"),
        (["--target", "1.2x"], "--target: got 1.2x, which is above the dense baseline itself"),
        (["--target", "88.5"], "--target: got 88.5, but accuracy is at most 1"),
        (["--levels", "0.9", "--seeds", "0"], "--seeds: one seed gives no interval to compare by"),
        (["--levels", "0.9", "--fusions", "last"], "--levels: got one fusion, last; comparing"),
        (["--levels", "0.9", "--target", "0.9x"], "--target asks for one point"),
        (["--target", "0.9x", "--seeds", "1000"], "--search-seed: 1000 is among the --seeds that"),
        (["--resume"], "--resume: no l0_frontier study in runs"),
        (["--train-rows", "2.5"], "--train-rows: got 2.5, expected whole rows, or a share below 1"),
        (["--shots", "2", "--train-rows", "9"], "--shots: train_rows says too how many rows"),
        (["--seeds", "-1"], "--seeds: got -1, expected greater"),
        (["--backend", "process", "--workers", "2"], "--workers: got 2, backend 'process' has one"),
        (["--plugin", "nowhere"], "--plugin: 'nowhere' can't be imported"),
        (["--resume", "--name", "x"], "--resume: no study 'x' in runs"),
        (["--fusion-learning-rate", "0"], "--fusion-learning-rate: got 0.0, expected greater"),
        (["--set", "pruning.flat_end"], "--set: got 'pruning.flat_end', expected FIELD=VALUE"),
        (["--set", "pruning.flat_nd=3"], "--set: unknown key 'pruning.flat_nd': did you mean"),
        (["--set", "epochs=2", "epochs=3"], "--set: epochs is given twice"),
        (["--set", "epochs=many"], "--epochs: got 'many', expected a valid integer"),
        (
            ["--set", "layer_drop.count=2"],
            "--set: no trial of this study has a section 'layer_drop', so layer_drop.count",
        ),
        (
            ["--set", "pruning.final_density=0.2"],
            "--set: pruning.final_density: only magnitude and movement have it, not this method",
        ),
        (["--paper", "--task", "cola"], "--task: got cola, but the paper has qqp, mnli, squad;"),
        (
            ["--paper", "--backbone", "roberta-base"],
            "--backbone: got roberta-base, but the paper has bert-base-uncased; leave --paper out",
        ),
    ],
)
def test_one_line_and_exit_code_2(run: Any, tmp_path: Path, options: list[str], line: str) -> None:
    code, out, err = run(*options)
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1, err
    assert err.startswith("error: ")
    assert line in err
    assert not (tmp_path / "runs").exists()


def test_all_problems_are_listed_at_once(run: Any) -> None:
    code, _, err = run("--task", "tenze", "--fusions", "brmo", "--workers", "0")
    assert code == 2
    assert len(err.strip().splitlines()) == 3


def test_an_option_that_does_not_exist_is_code_2(run: Any) -> None:
    code, _, err = run("--taks", "tense")
    assert code == 2
    assert "--taks" in err
    assert "--task" in err


def test_help_tells_every_option_with_its_default(run: Any) -> None:
    from dataclasses import fields

    code, out, _ = run("--help")
    assert code == 0
    names = [field.name for field in fields(load_script("l0_frontier").Options)]
    for name in names:
        assert f"--{'set' if name == 'overrides' else name.replace('_', '-')}" in out
    assert out.count("(default:") == len(names)
    assert "By default: tasks tense; encoders embedded; seeds 0 1 2." in " ".join(out.split())


def test_dry_run_prints_the_trials_and_starts_nothing(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("--dry-run", "--trials", "2", "--train-rows", "100", "--name", "d")
    assert code == 0
    assert "d: 24 trials" in out
    assert out.count("by search") == 12
    assert out.count("dense") == 12
    assert all(len(line) <= 80 for line in out.splitlines())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", sorted(f.stem for f in (ROOT / "studies").glob("[!_]*.py")))
def test_every_study_loads_with_its_defaults(run: Any, name: str) -> None:
    code, out, err = run("--dry-run", name=name)
    assert (code, err) == (0, "")
    assert " trials" in out
    assert all(len(line) <= 80 for line in out.splitlines()), out
    code, out, _ = run("--help", name=name)
    assert code == 0
    assert "(default:" in out


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("layer_drop", ["--counts", "6"], "--counts: got 6, expected < 6 layers"),
        ("layer_drop", ["--counts", "4"], "alternate_even has only 3 of 6 layers to drop"),
        ("layer_drop", ["--strategies", "tpo"], "unknown layer_drop.strategy 'tpo': did you mean"),
        ("layer_drop", ["--epochs-per-layer", "2"], "one every 2 epochs, take 4 epochs"),
        ("layer_drop", ["--learning-rate", "0"], "--learning-rate: got 0.0, expected greater"),
        ("layer_drop", ["--tasks", "tenze"], "unknown task 'tenze': did you mean tense?"),
        ("optimal_layers", ["--strategy", "tpo"], "unknown layer_drop.strategy 'tpo'"),
        (
            "optimal_layers",
            ["--strategy", "explicit"],
            "strategy 'explicit' and a list of dropped_layers",
        ),
        (
            "layer_drop",
            ["--strategies", "explicit"],
            "strategy 'explicit' and a list of dropped_layers",
        ),
        ("layer_drop", ["--counts", "-1"], "--counts: got -1, expected greater"),
        ("optimal_layers", ["--thresholds", "-1"], "--thresholds: got [-1.0], expected points"),
        ("everything", ["--sizes", "1.5"], "--sizes: got 1.5, expected 0 < size < 1"),
        ("everything", ["--counts", "6"], "--counts: got 6, expected 0 <= count < 6 layers"),
        (
            "everything",
            ["--method", "movement"],
            "--method: got 'movement', expected one that learns λ",
        ),
    ],
)
def test_mistakes_in_other_studies(run: Any, name: str, options: list[str], line: str) -> None:
    code, out, err = run(*options, "--train-rows", "64", name=name)
    assert (code, out) == (2, "")
    assert line in err
    assert all(text.startswith("error: ") for text in err.strip().splitlines())


def test_too_few_rows_to_verify_on_name_the_options(run: Any, tmp_path: Path) -> None:
    columns = {"sentence": ["the dog slept ."] * 64, "label": [0, 1] * 32}
    for part in ("train", "validation"):
        write_parquet(tmp_path, f"glue/sst2/{part}.parquet", columns)
    options = ["--task", "sst2", "--data-dir", ".", "--dev-rows", "12", "--dry-run"]
    line = (
        "error: --dev-rows: 12 dev rows leave 6 to verify sst2 on, expected >= 10; give more, or "
        "--whole-dev\n"
    )
    code, out, err = run(*options)
    assert (code, err) == (2, line)
    assert "42 trials" in out  # a dry run lists them all the same
    assert run(*options, "--whole-dev")[0] == 0


@pytest.mark.ray
def test_gpus_that_are_not_there_are_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setenv("RAY_ADDRESS", "local")
    code, _, err = run("--gpus", "--train-rows", "200")
    ray.shutdown()
    assert code == 2
    assert "a trial needs 1 GPU(s), this Ray cluster has 0" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("pruning", "line"),
    [
        ({"method": "movement", "final_density": 1.3}, "final_density: got 1.3, expected less"),
        ({"method": "movement", "final_density": 0.0}, "final_density: got 0.0, expected great"),
        ({"method": "magnitude", "initial_density": 0.0}, "initial_density: got 0.0, expected gr"),
        (
            {"method": "soft_movement", "initial_threshold": 1.0},
            "initial_threshold: got 1.0, expected less than 1",
        ),
        ({"method": "l0", "scope": "global"}, "pruning.scope: only magnitude and movement have it"),
        (
            {"method": "movement", "target_density": 0.1},
            "pruning.target_density: only soft_movement and l0 have it, not this method",
        ),
        ({"method": "l0", "target_density": 1.0}, "target_density: got 1.0, expected less than 1"),
        ({"method": "l0", "final_threshold": 0.5}, "final_threshold: only soft_movement have it"),
        ({"method": "l0", "name_pattern": "("}, "'(' is no regular expression"),
        (
            {"method": "l0", "name_pattern": "qery"},
            "pruning.name_pattern: 'qery' matches none of 36 matrices",
        ),
        ({"method": "l1"}, "unknown pruning.method 'l1'"),
        ({"method": "l0", "flat_start": 20}, "(flat_start=20 + flat_end=1) × warmup"),
    ],
)
def test_pruning_that_cannot_be_is_one_line(pruning: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_trials([Trial.from_dict({"pruning": pruning, "data": {"train_rows": 200}})])
    assert len(caught.value.problems) == 1
    assert line in caught.value.problems[0]


def test_a_teacher_of_another_vocabulary_is_one_line(tiny: str, tmp_path: Path) -> None:
    import shutil

    from bermo_ray.models import stock
    from bermo_ray.tasks import registry

    stock.load_stock(tiny, registry.get_task("tense")).save_pretrained(tmp_path)
    for file in Path(tiny).glob("*token*"):
        shutil.copy(file, tmp_path)
    text = (tmp_path / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace('"[MASK]"', '"[HIDE]"'))
    config = (tmp_path / "tokenizer_config.json").read_text()
    (tmp_path / "tokenizer_config.json").write_text(config.replace("[MASK]", "[HIDE]"))
    with pytest.raises(UserError) as caught:
        check_trials(
            [Trial.from_dict({"backbone": tiny, "distillation": {"teacher": str(tmp_path)}})]
        )
    assert len(caught.value.problems) == 1
    assert "its vocabulary is not that of" in caught.value.problems[0]

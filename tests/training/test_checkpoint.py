from pathlib import Path

from bermo_ray.training.checkpoint import read_progress
from bermo_ray.training.reporter import run_locally
from tests.support.runs import small_trial, untimed


def test_the_last_checkpoint_has_weights_alone_neither_optimizer_nor_scores(
    tiny: str, tmp_path: Path
) -> None:
    run_locally(small_trial(tiny, epochs=1, evaluations_per_epoch=1), tmp_path / "c")
    assert sorted(f.name for f in (tmp_path / "c").iterdir()) == [
        "model.safetensors",
        "predictions.parquet",
        "progress.json",
    ]


def test_progress_is_what_was_reported(tiny: str, tmp_path: Path) -> None:
    reports = run_locally(small_trial(tiny), tmp_path / "c")
    progress = read_progress(tmp_path / "c")
    assert (progress.step, progress.total, progress.ended) == (12, 12, True)
    assert untimed(progress.history) == untimed(reports)
    assert progress.history[-1].kept_by_matrix == reports[-1].kept_by_matrix

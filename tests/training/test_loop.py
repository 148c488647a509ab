import math
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.record import Status
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.training.checkpoint import read_progress
from bermo_ray.training.loop import train
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Trial
from tests.support.runs import (
    HistoryReporter,
    Interrupted,
    InterruptingReporter,
    small_trial,
    untimed,
)


def test_the_same_trial_twice_is_bit_equal(tiny: str) -> None:
    first, second = (untimed(run_locally(small_trial(tiny))) for _ in range(2))
    assert first == second
    assert len(first) == 4
    assert [r["step"] for r in first] == [3, 6, 9, 12]
    assert first[-1]["status"] in ("completed", "diverged")
    other = untimed(run_locally(small_trial(tiny, seed=1)))
    assert other[-1]["loss"] != first[-1]["loss"]


def test_resume_is_exact(tiny: str, tmp_path: Path) -> None:
    straight = untimed(run_locally(small_trial(tiny)))
    with pytest.raises(Interrupted):
        train(small_trial(tiny), InterruptingReporter(tmp_path / "c", stop_at=3))
    assert read_progress(tmp_path / "c").step == 3  # in the middle of an epoch
    resumed = HistoryReporter(tmp_path / "c")
    train(small_trial(tiny), resumed)
    again = untimed(resumed.reports)
    assert again[0] == straight[0] | {"resumed_at": 3}  # what was last done is told again
    assert again[1:] == straight[1:]
    assert [untimed(history) for history in resumed.histories] == [straight[:1], [], [], []]
    # Once ended, it only tells its end, with the history for whoever missed it.
    ended = HistoryReporter(tmp_path / "c")
    assert train(small_trial(tiny), ended) == ended.reports[0]
    assert untimed(ended.reports) == straight[-1:]
    assert untimed(ended.histories[0]) == straight


def masked_trial(tiny: str) -> Trial:
    return small_trial(tiny, data={"task": "masked_words"}, pruning=None, seed=3)


def test_training_hides_other_pieces_in_every_epoch_and_evaluation_the_same(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, draws = EncodedRows.batch, []

    def watched(data: EncodedRows, rows: Any, draw: Any = None) -> Any:
        draws.append(draw)
        return batch(data, rows, draw)

    monkeypatch.setattr(EncodedRows, "batch", watched)
    run_locally(masked_trial(tiny))
    assert [draw for draw in draws if draw] == [(3, 0)] * 6 + [(3, 1)] * 6  # (seed, epoch)
    assert draws.count(None) == 5  # 51 rows in batches of 64: four times dev, once test


def test_a_resumed_run_hides_the_same_pieces(tiny: str, tmp_path: Path) -> None:
    trial = masked_trial(tiny)
    straight = untimed(run_locally(trial))
    for stop_at in (3, 6, 9):  # within an epoch, and between two
        folder = tmp_path / str(stop_at)
        with pytest.raises(Interrupted):
            train(trial, InterruptingReporter(folder, stop_at=stop_at))
        assert untimed(run_locally(trial, folder))[1:] == straight[stop_at // 3 :]


def test_the_penalty_thins_the_encoder_and_more_lambda_thins_it_more(tiny: str) -> None:
    fast = {"optimizer.score_learning_rate": 0.5, "epochs": 4, "evaluations_per_epoch": 1}
    remaining = [
        run_locally(small_trial(tiny, pruning={"multiplier": value}, **fast))[-1].remaining
        for value in (0.0, 0.01, 0.1)
    ]
    assert remaining[0] > remaining[1] > remaining[2]
    assert remaining[2] < 0.5


def test_a_run_that_explodes_is_a_result(tiny: str) -> None:
    last = run_locally(small_trial(tiny, optimizer={"learning_rate": 1e30, "warmup": 0}))[-1]
    assert last.status is Status.DIVERGED
    assert last.reason.startswith("non-finite loss at step")
    assert all(math.isfinite(v) for v in last.to_dict().values() if isinstance(v, float))


def test_a_run_no_better_than_a_constant_has_diverged(tiny: str) -> None:
    last = run_locally(
        small_trial(tiny, pruning={"multiplier": 1e4}, optimizer={"score_learning_rate": 1.0})
    )[-1]
    assert last.metric <= last.constant_metric
    assert last.status is Status.DIVERGED
    assert "no better than a constant answer" in last.reason


@pytest.mark.parametrize(
    "task", ["tense", "paraphrase", "similarity", "entities", "answer_span", "masked_words"]
)  # fmt: skip
def test_every_head_kind_learns(tiny: str, task: str) -> None:
    trial = small_trial(
        tiny, data={"task": task, "train_rows": 32}, pruning=None, epochs=25,
        evaluations_per_epoch=1, optimizer={"learning_rate": 3e-3},
    )  # fmt: skip
    reports = run_locally(trial)
    assert reports[-1].train_loss < 0.8 * reports[0].train_loss
    assert reports[-1].remaining == 1.0

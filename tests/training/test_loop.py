import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bermo_ray.training import checkpoint
from bermo_ray.training.loop import batches, prepare, steps_per_epoch, train
from bermo_ray.training.trainer import LocalReporter, run_locally
from bermo_ray.trial import Data, Fusion, Optimizer, Pruning, Trial


def small(tiny: str, **changes: Any) -> Trial:
    base = Trial(
        data=Data(task="tense", train_rows=96, dev_rows=51),
        backbone=tiny,
        fusion=Fusion(name="bermo"),
        pruning=Pruning(final_lambda=2.0),
        optimizer=Optimizer(learning_rate=1e-3, mask_rate=0.1),
        epochs=2,
        batch_size=16,
        evaluations=2,
    )
    return base.replace(**changes)


def numbers(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    timed = ("rows_per_second", "latency", "history")
    return [{k: v for k, v in r.items() if k not in timed} for r in reports]


class Interrupt(Exception):
    pass


class Stopping(LocalReporter):
    """Dies right after its n-th report, as a killed process would."""

    def report(self, metrics: Any, save: Any) -> None:
        super().report(metrics, save)
        if len(self.reports) == 1:
            raise Interrupt


def test_the_same_trial_twice_is_bit_equal(tiny: str) -> None:
    first, second = (numbers(run_locally(small(tiny))) for _ in range(2))
    assert first == second
    assert len(first) == 4
    assert [r["step"] for r in first] == [3, 6, 9, 12]
    assert first[-1]["final"]
    other = numbers(run_locally(small(tiny, seed=1)))
    assert other[-1]["loss"] != first[-1]["loss"]


def test_resume_is_exact(tiny: str, tmp_path: Path) -> None:
    whole = numbers(run_locally(small(tiny)))
    with pytest.raises(Interrupt):
        train(small(tiny), Stopping(tmp_path / "c"))
    assert checkpoint.progress(tmp_path / "c").step == 3  # in the middle of an epoch
    again = numbers(run_locally(small(tiny), tmp_path / "c"))
    assert again[0] == whole[0] | {"resumed_at": 3}  # what was last done is told again
    assert again[1:] == whole[1:]
    # Once ended, it only tells its end, with the history for whoever missed it.
    ended = run_locally(small(tiny), tmp_path / "c")
    assert numbers(ended) == whole[-1:]
    assert numbers(ended[0]["history"]) == whole


def test_the_penalty_thins_the_encoder_and_more_lambda_thins_it_more(tiny: str) -> None:
    fast = {"optimizer__mask_rate": 0.5, "epochs": 4, "evaluations": 1}
    left = [
        run_locally(small(tiny, pruning__final_lambda=value, **fast))[-1]["remaining"]
        for value in (0.0, 0.01, 0.1)
    ]
    assert left[0] > left[1] > left[2]
    assert left[2] < 0.5


def test_a_run_that_explodes_is_a_result(tiny: str) -> None:
    last = run_locally(small(tiny, optimizer__learning_rate=1e30, optimizer__warmup=0))[-1]
    assert last["status"] == "diverged"
    assert last["reason"].startswith("non-finite loss at step")
    assert last["final"]
    assert all(math.isfinite(v) for v in last.values() if isinstance(v, float))


def test_a_run_no_better_than_a_constant_has_diverged(tiny: str) -> None:
    last = run_locally(small(tiny, pruning__final_lambda=1e4, optimizer__mask_rate=1.0))[-1]
    assert last["metric"] <= last["trivial"]
    assert last["status"] == "diverged"
    assert "no better than a constant answer" in last["reason"]


def test_features_mode_trains_fusion_and_head_alone(tiny: str) -> None:
    trial = small(tiny, pruning=None, mode="features", epochs=1)
    run = prepare(trial, 1, torch.device("cpu"))
    names = {n for n, p in run.built.model.named_parameters() if p.requires_grad}
    assert names == {
        "fusion.alpha", "fusion.gamma", "classifier.weight", "classifier.bias",
        "bert.pooler.dense.weight", "bert.pooler.dense.bias",
    }  # fmt: skip


def test_optimizer_groups(tiny: str) -> None:
    run = prepare(small(tiny, optimizer__weight_decay=0.3), 1, torch.device("cpu"))
    groups = run.adam.param_groups
    assert [g["weight_decay"] for g in groups] == [0.0, 0.3, 0.0]
    assert [g["initial_lr"] for g in groups] == [0.1, 1e-3, 1e-3]
    fast = {id(p) for p in groups[0]["params"]}
    assert {id(s) for s in run.pruner.scores()} < fast  # type: ignore[union-attr]
    assert {id(p) for p in run.built.fusion.scalars()} < fast
    assert all(p.ndim >= 2 for p in groups[1]["params"])
    embeddings = run.built.model.bert.embeddings
    assert not any(p.requires_grad for p in embeddings.parameters())
    # Linear warm-up over w steps, then linear decay to 0 at T.
    rates = []
    for _ in range(run.total):
        rates.append(groups[1]["lr"] / 1e-3)
        run.adam.step()
        run.rates.step()
    assert run.total == 12
    assert np.allclose(rates[:3], [0.5, 1.0, 10 / 11])  # w = round(0.1·12) = 1
    assert math.isclose(rates[-1], 1 / 11)


def test_batches_hold_every_row_once_and_change_by_epoch(tiny: str) -> None:
    trial = small(tiny, data__train_rows=70)
    data = prepare(trial, 1, torch.device("cpu")).data["train"]
    first, again, second = (batches(data, trial, epoch) for epoch in (0, 0, 1))
    assert sorted(np.concatenate(first).tolist()) == list(range(70))
    assert [b.tolist() for b in first] == [b.tolist() for b in again]
    assert [b.tolist() for b in first] != [b.tolist() for b in second]
    assert len(first) == steps_per_epoch(70, 16) == 5
    # Of 65 rows in batches of 16, the last can't be shared by two workers: never used.
    assert steps_per_epoch(65, 16, world_size=2) == 4
    odd = prepare(small(tiny, data__train_rows=65), 2, torch.device("cpu")).data["train"]
    for epoch in range(20):
        parts = batches(odd, trial, epoch, world_size=2)
        assert [len(part) for part in parts] == [16] * 4


@pytest.mark.parametrize(
    "task", ["tense", "paraphrase", "similarity", "entities", "answer_span", "masked_words"]
)  # fmt: skip
def test_every_head_kind_learns(tiny: str, task: str) -> None:
    trial = small(
        tiny, data__task=task, data__train_rows=32, pruning=None, epochs=25, evaluations=1,
        optimizer__learning_rate=3e-3,
    )  # fmt: skip
    reports = run_locally(trial)
    assert reports[-1]["train_loss"] < 0.8 * reports[0]["train_loss"]
    assert reports[-1]["remaining"] == 1.0


def test_a_checkpoint_holds_no_pickle_of_weights_and_the_last_no_optimizer(
    tiny: str, tmp_path: Path
) -> None:
    run_locally(small(tiny, epochs=1, evaluations=1), tmp_path / "c")
    assert sorted(f.name for f in (tmp_path / "c").iterdir()) == [
        "model.safetensors",
        "predictions.parquet",
        "progress.json",
        "scores.safetensors",
    ]

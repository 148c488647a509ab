"""Which evaluation's model a trial ends with, and that it is that one to the bit."""

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.record import Report, Status
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.training import best_model, loop
from bermo_ray.training.check import check_trials
from bermo_ray.training.evaluate import Evaluation, evaluate
from bermo_ray.training.loop import train
from bermo_ray.training.model import load_trained
from bermo_ray.training.reporter import run_locally
from bermo_ray.training.setup import TrainingRun
from bermo_ray.trial import L0, LayerDrop, Magnitude, Movement, SoftMovement, Trial
from tests.support.runs import Interrupted, InterruptingReporter, small_trial, untimed
from tests.support.task_files import data_in, write_parquet

CPU = torch.device("cpu")
# What differs between the last report of a run and the report of the evaluation it went back to:
# how far the run is, what it was trained on since, and what is measured at the end alone.
AT_THE_END = (
    "step", "epoch", "status", "reason", "train_loss", "best_step", "metric_test", "weight_bytes",
    "rows_reported", "hardware", "precision", "kept_by_matrix", "multiplier_now",
)  # fmt: skip
FLAT = {"flat_end": 6}  # of 12 steps, 1 of them warm-up: full sparsity from step 6 on


@pytest.fixture
def select(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has an evaluation count as good as it is told to be, by the step it comes after; gives the
    steps that were asked for."""

    def script(metrics: dict[int, float]) -> list[int]:
        asked: list[int] = []
        keep_if_best = best_model.keep_if_best

        class Scripted:
            def __init__(self, step: int) -> None:
                self.step = step

            @property
            def metric_selection(self) -> float:
                asked.append(self.step)
                return metrics[self.step]

        def scripted(run: TrainingRun, step: int, _: Evaluation) -> None:
            evaluation: Any = Scripted(step)
            keep_if_best(run, step, evaluation)

        for module in (best_model, loop):
            monkeypatch.setattr(module, "keep_if_best", scripted)
        return asked

    return script


def compared(report: Report) -> dict[str, Any]:
    return {k: v for k, v in untimed([report])[0].items() if k not in AT_THE_END}


def best(trial: Trial) -> Trial:
    return trial.replace(final_checkpoint="best")


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({"pruning": None}, [3, 6, 9, 12]),
        ({"pruning": None, "mode": "features"}, [3, 6, 9, 12]),
        ({"pruning": L0(multiplier=2.0, **FLAT)}, [6, 9, 12]),
        ({"pruning": SoftMovement(multiplier=2.0, **FLAT)}, [6, 9, 12]),
        ({"pruning": Movement(final_density=0.5, **FLAT)}, [6, 9, 12]),
        ({"pruning": Magnitude(final_density=0.5, **FLAT)}, [6, 9, 12]),
        ({"pruning": None, "fusion.opening_share": 0.7}, [9, 12]),
    ],
)
def test_the_end_is_the_best_evaluation_that_counts(
    tiny: str, tmp_path: Path, select: Any, changes: dict[str, Any], counted: list[int]
) -> None:
    trial = small_trial(tiny, **changes)
    straight = {report.step: report for report in run_locally(trial)}
    # Step 3 would be best, then 6, then 9: the first that counts is what is gone back to.
    asked = select({3: 0.9, 6: 0.8, 9: 0.7, 12: 0.6})
    *before, last = run_locally(best(trial), tmp_path / "c")
    assert asked == counted
    assert untimed(before) == untimed([straight[step] for step in (3, 6, 9)])  # trains the same
    assert (last.step, last.best_step) == (12, counted[0])
    assert compared(last) == compared(straight[counted[0]])
    assert compared(last) != compared(straight[12])
    # What was saved is that model too, and so are its predictions.
    trained = load_trained(tmp_path / "c")
    data = encode_split(trained.task, trial.data, "dev", 0, backbone.load_tokenizer(tiny))
    evaluation = evaluate(trained.model.network, data, 64, CPU)
    assert evaluation.loss == pytest.approx(last.loss, abs=1e-6)
    assert trained.count.remaining == last.remaining
    rows = pq.read_table(tmp_path / "c" / "predictions.parquet")
    assert rows["predicted"].to_pylist() == evaluation.predicted
    assert not (tmp_path / "c" / "best.safetensors").exists()


def test_nothing_counts_before_full_sparsity(tiny: str, select: Any) -> None:
    trial = small_trial(tiny)  # L0, its flat end the last of 12 steps: only the last one counts
    asked = select({3: 0.9, 6: 0.8, 9: 0.7, 12: 0.1})
    last = run_locally(best(trial))[-1]
    assert asked == [12]
    assert untimed([last]) == [untimed(run_locally(trial))[-1] | {"best_step": 12}]


def test_the_last_is_the_default_and_of_equal_ones_the_later(tiny: str, select: Any) -> None:
    asked = select({3: 0.5, 6: 0.9, 9: 0.9, 12: 0.8})
    assert run_locally(small_trial(tiny, pruning=None))[-1].best_step is None
    assert asked == []
    assert run_locally(best(small_trial(tiny, pruning=None)))[-1].best_step == 9


def test_layers_that_are_still_to_go_do_not_compete(deeper: str, select: Any) -> None:
    drop = LayerDrop(strategy="top", count=1, epochs_per_layer=1)
    trial = best(small_trial(deeper, pruning=None, layer_drop=drop))
    asked = select({3: 0.9, 6: 0.8, 9: 0.7, 12: 0.6})
    last = run_locally(trial)[-1]
    assert asked == [9, 12]  # the layer goes behind step 6
    assert (last.best_step, last.layers_left) == (9, 3)


def test_a_target_density_that_is_missed_does_not_compete(tiny: str, select: Any) -> None:
    asked = select({})
    trial = best(small_trial(tiny, pruning=L0(target_density=0.1, **FLAT)))
    last = run_locally(trial.replace(optimizer={"score_learning_rate": 1e-3}))[-1]
    assert asked == []
    assert last.best_step is None
    assert "missed its target" in last.reason


@pytest.mark.parametrize("stop_at", [3, 6, 9])
def test_a_resumed_run_remembers_the_best(
    tiny: str, tmp_path: Path, select: Any, stop_at: int
) -> None:
    trial = best(small_trial(tiny, pruning=L0(multiplier=2.0, **FLAT)))
    select({6: 0.8, 9: 0.7, 12: 0.6})
    straight = untimed(run_locally(trial))
    folder = tmp_path / "c"
    with pytest.raises(Interrupted):
        train(trial, InterruptingReporter(folder, stop_at=stop_at))
    assert (folder / "best.safetensors").exists() == (stop_at >= 6)
    assert untimed(run_locally(trial, folder))[1:] == straight[stop_at // 3 :]
    assert straight[-1]["best_step"] == 6


def test_a_run_that_explodes_ends_where_it_exploded(
    tiny: str, select: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = small_trial(tiny, pruning=None)
    straight = run_locally(trial)
    clip, steps = torch.nn.utils.clip_grad_norm_, []

    def explode_at_step_6(*args: Any) -> torch.Tensor:
        steps.append(clip(*args))
        return steps[-1] if len(steps) < 6 else torch.tensor(torch.inf)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", explode_at_step_6)
    asked = select({3: 0.9})
    last = run_locally(best(trial))[-1]
    assert asked == [3]
    assert (last.status, last.step, last.best_step) == (Status.DIVERGED, 6, None)
    assert last.loss == straight[1].loss != straight[0].loss


@pytest.mark.parametrize("whole_dev", [False, True])
def test_it_is_chosen_on_the_rows_that_choose(tiny: str, whole_dev: bool) -> None:
    trial = small_trial(
        tiny, pruning=None, epochs=6, evaluations_per_epoch=3, data={"whole_dev": whole_dev}
    )
    straight, last = run_locally(trial), run_locally(best(trial))[-1]
    metrics = [r.metric if whole_dev else r.metric_selection for r in straight]
    assert len(metrics) == 18
    assert last.metric_selection == max(metrics)
    assert last.best_step == 2 * (18 - metrics[::-1].index(max(metrics)))  # the latest of the best


def test_best_loss_is_the_evaluation_with_the_least_loss_on_all_of_dev(tiny: str) -> None:
    # So large a rate that the loss goes up and down, and accuracy peaks elsewhere.
    trial = small_trial(
        tiny, pruning=None, epochs=6, evaluations_per_epoch=3, optimizer={"learning_rate": 2e-2}
    )
    straight = run_locally(trial)
    losses = [report.loss for report in straight]
    least = straight[losses.index(min(losses))]
    assert losses.count(least.loss) == 1
    last = run_locally(trial.replace(final_checkpoint="best_loss"))[-1]
    assert (last.best_step, last.loss, last.metric) == (least.step, least.loss, least.metric)
    assert least.step < straight[-1].step
    assert least.step != run_locally(best(trial))[-1].best_step


def test_of_equal_losses_the_later_and_never_nan(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = {3: 0.7, 6: 0.4, 9: 0.4, 12: float("nan")}
    keep_if_best = best_model.keep_if_best

    def scripted(run: TrainingRun, step: int, evaluation: Evaluation) -> None:
        keep_if_best(run, step, dataclasses.replace(evaluation, loss=losses[step]))

    for module in (best_model, loop):
        monkeypatch.setattr(module, "keep_if_best", scripted)
    trial = small_trial(tiny, pruning=None, final_checkpoint="best_loss")
    assert run_locally(trial)[-1].best_step == 9


def test_best_loss_chooses_on_all_of_dev_so_that_it_needs_a_test_split(
    tiny: str, tmp_path: Path
) -> None:
    columns = {"sentence": ["the dog slept ."] * 40, "label": [0, 1] * 20}
    for part in ("train", "validation"):
        write_parquet(tmp_path, f"glue/sst2/{part}.parquet", columns)
    trial = Trial(data=data_in(tmp_path, "sst2"), backbone=tiny, final_checkpoint="best_loss")
    with pytest.raises(UserError) as raised:
        check_trials([trial])
    assert raised.value.problems == (
        "final_checkpoint: best_loss chooses on all of dev, and sst2 has no labelled test split to "
        "verify on; give best, or `whole_dev`",
    )
    check_trials([trial.replace(data={"whole_dev": True}), trial.replace(final_checkpoint="best")])
    check_trials([small_trial(tiny, pruning=None, final_checkpoint="best_loss")])  # has one

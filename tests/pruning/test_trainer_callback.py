"""A real Trainer with our callback does what our own training loop does.

Both draw the same numbers: a run that evaluates after every step reseeds before every step, and so
does a callback here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from bermo_ray.errors import UserError
from bermo_ray.models.assembly import AssembledModel, assemble
from bermo_ray.models.backbone import embedding_module
from bermo_ray.models.stock import load_stock
from bermo_ray.pruning.pruner import prunable_matrices
from bermo_ray.pruning.trainer_callback import SCORES_FILE, PruningCallback
from bermo_ray.record import Report
from bermo_ray.tasks.registry import get_task
from bermo_ray.training.batches import epoch_batches
from bermo_ray.training.checkpoint_folder import SaveCheckpoint
from bermo_ray.training.loop import _backward, _seed, train
from bermo_ray.training.model import load_trained
from bermo_ray.training.optimizer import build_optimizer
from bermo_ray.training.reporter import LocalReporter
from bermo_ray.training.setup import set_up
from bermo_ray.trial import L0, Fusion, Magnitude, Movement, Optimizer, Pruning, SoftMovement, Trial
from tests.support.runs import small_trial

STEPS, WARMUP = 12, 2
UNCLIPPED, CLIPPED = 1e9, 0.05
METHODS: list[Pruning] = [
    Magnitude(final_density=0.3),
    Movement(final_density=0.3, scope="global"),
    SoftMovement(multiplier=0.01, final_threshold=0.5),
    L0(multiplier=0.01, initial_score=0.0),
    L0(target_density=0.5, initial_score=0.0),
]
METHOD_NAMES = ["magnitude", "movement", "soft_movement", "l0", "l0_target"]


def pruned_trial(tiny: str, settings: Pruning, max_norm: float = UNCLIPPED) -> Trial:
    """Two epochs of six steps, evaluated after every one of them."""
    optimizer = Optimizer(
        learning_rate=1e-3, score_learning_rate=0.5, warmup=WARMUP, max_gradient_norm=max_norm
    )
    base = small_trial(tiny, pruning=None, fusion=Fusion(), optimizer=optimizer)
    return base.replace(pruning=settings, evaluations_per_epoch=6)


class Reseed(TrainerCallback):
    """Before every step, the seed that our loop has there."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        _seed(0, state.global_step + 1, 0)


class Record(TrainerCallback):
    """Copies gradients before the optimiser's step, dense weights and scores behind it."""

    def __init__(self, pruning: PruningCallback) -> None:
        self.pruning, self.gradients, self.weights, self.scores = pruning, [], [], []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        named = gradients_of(kwargs["model"], self.pruning.pruner)
        self.gradients.append({name: grad.clone() for name, grad in named.items()})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        named = kwargs["model"].state_dict()
        self.weights.append({name: value.clone() for name, value in named.items()})
        assert self.pruning.pruner is not None
        state_dict = self.pruning.pruner.state_dict()
        self.scores.append({name: value.clone() for name, value in state_dict.items()})


def gradients_of(model: nn.Module, pruner: Any) -> dict[str, torch.Tensor]:
    named = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    scores = {f"scores.{m.name}": m.scores.grad for m in pruner.matrices if m.scores is not None}
    return named | scores


def stock_model(trial: Trial) -> AssembledModel:
    torch.manual_seed(trial.seed)
    model = assemble(load_stock(trial.backbone, get_task("tense")), trial.fusion)
    embedding_module(model.network).requires_grad_(False)  # as our loop has it while pruning
    return model


def batches_of(trial: Trial) -> list[dict[str, torch.Tensor]]:
    """What every step trains on, in as many parts as the trial has micro-batches."""
    data = set_up(trial, 1, torch.device("cpu")).data["train"]
    rows = [rows for epoch in range(trial.epochs) for rows in epoch_batches(data, trial, epoch)]
    return [data.batch(part) for step in rows for part in np.array_split(step, trial.micro_batches)]


def make_trainer(
    trial: Trial, folder: Path, **arguments: Any
) -> tuple[Trainer, PruningCallback, Record]:
    """A Trainer whose rates are those of our loop."""
    model, batches = stock_model(trial), batches_of(trial)
    assert trial.pruning is not None
    settings = trial.optimizer
    callback = PruningCallback(trial.pruning, settings.score_learning_rate)
    record = Record(callback)
    trainer = Trainer(
        model.network,
        TrainingArguments(
            **{
                "output_dir": str(folder), "per_device_train_batch_size": 1, "max_steps": STEPS,
                "gradient_accumulation_steps": trial.micro_batches, "warmup_steps": WARMUP,
                "max_grad_norm": settings.max_gradient_norm, "logging_steps": 1,
                "train_sampling_strategy": "sequential", "save_strategy": "no", "use_cpu": True,
                "report_to": "none", "disable_tqdm": True, "remove_unused_columns": False,
            } | arguments
        ),
        train_dataset=batches,
        eval_dataset=batches[:2],
        data_collator=lambda items: items[0],
        optimizers=build_optimizer(settings, model, None, STEPS, WARMUP),
        callbacks=[Reseed(), callback, record],
    )  # fmt: skip
    return trainer, callback, record


def assert_close(
    ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], atol: float
) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        # NaN where there is none: the density before the shift of a run that has no target.
        torch.testing.assert_close(theirs[name], value, rtol=0, atol=atol, equal_nan=True, msg=name)


@pytest.mark.parametrize("settings", METHODS, ids=METHOD_NAMES)
def test_a_run_is_that_of_our_own_loop(tiny: str, tmp_path: Path, settings: Pruning) -> None:
    trial = pruned_trial(tiny, settings)
    ours_ran = run_ours(trial, tmp_path / "ours")
    reports = ours_ran.reports
    trainer, _, record = make_trainer(trial, tmp_path / "theirs")
    trainer.train()
    # Masks: as many weights are left after each of the twelve steps.
    remaining = [entry["remaining"] for entry in trainer.state.log_history if "loss" in entry]
    assert remaining == [report.remaining for report in reports]
    assert 0.1 < remaining[-1] < 0.9
    # Weights and scores to the bit; and the model that is left is the one our checkpoint gives.
    ours = load_trained(tmp_path / "ours").model.network.state_dict()
    assert_close(ours, trainer.model.state_dict(), atol=0)
    assert_close(ours_ran.scores, record.scores[-1], atol=0)


class ScoresReporter(LocalReporter):
    """Remembers the scores at the last report; the checkpoint of a run that has ended has none."""

    scores: dict[str, torch.Tensor]

    def report(
        self, report: Report, save: SaveCheckpoint | None, history: Sequence[Report] = ()
    ) -> None:
        super().report(report, save, history)
        pruner = save.func.__self__.pruner  # type: ignore[union-attr]
        self.scores = {name: scores.clone() for name, scores in pruner.state_dict().items()}


def run_ours(trial: Trial, folder: Path) -> ScoresReporter:
    reporter = ScoresReporter(folder)
    train(trial, reporter)
    return reporter


@pytest.mark.parametrize("settings", METHODS, ids=METHOD_NAMES)
@pytest.mark.parametrize("max_norm", [UNCLIPPED, CLIPPED])
def test_gradients_are_those_of_our_own_step(
    tiny: str, tmp_path: Path, settings: Pruning, max_norm: float
) -> None:
    trial = pruned_trial(tiny, settings, max_norm)
    run = set_up(trial, 1, torch.device("cpu"))
    rows = epoch_batches(run.data["train"], trial, 0)[0]
    run.start_training()
    _seed(trial.seed, 1, 0)
    assert run.pruner is not None
    with run.pruner.step(1):
        _backward(run, rows, rows)
    norm = nn.utils.clip_grad_norm_(run.trained_parameters(), max_norm)
    trainer, _, record = make_trainer(trial, tmp_path)
    trainer.train()
    # A norm is a sum over tensors, which stand in another order in our optimiser's groups: the
    # factor that clips may differ in its last bit.
    tolerance = 0.0 if max_norm == UNCLIPPED else 1e-8
    assert_close(gradients_of(run.model.network, run.pruner), record.gradients[0], tolerance)
    assert trainer.state.log_history[0]["grad_norm"] == pytest.approx(float(norm), rel=1e-6)
    assert trainer.args.max_grad_norm == max_norm  # given back
    if max_norm == CLIPPED:
        clipped = torch.cat([g.flatten() for g in record.gradients[0].values()]).norm()
        assert float(clipped) == pytest.approx(CLIPPED, rel=1e-4)


def test_accumulated_gradients_are_those_of_micro_batches(tiny: str, tmp_path: Path) -> None:
    trial = pruned_trial(tiny, METHODS[3]).replace(micro_batches=2)
    ours_ran = run_ours(trial, tmp_path / "ours")
    reports = ours_ran.reports
    trainer, _, record = make_trainer(trial, tmp_path / "theirs")
    # By itself the Trainer adds up the parts' mean losses: it takes the classifier's loss for one
    # that was divided by the rows of all parts.
    trainer.loss_is_scaled_for_ga = False
    trainer.train()
    remaining = [entry["remaining"] for entry in trainer.state.log_history if "loss" in entry]
    assert remaining == [report.remaining for report in reports]
    assert_close(ours_ran.scores, record.scores[-1], atol=0)


def test_the_saved_model_is_a_plain_one_with_zeros(tiny: str, tmp_path: Path) -> None:
    trainer, callback, record = make_trainer(pruned_trial(tiny, METHODS[1]), tmp_path)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").state_dict()
    assert set(saved) == set(record.weights[-1])
    matrices = [n for n in saved if "encoder.layer" in n and saved[n].ndim == 2]
    sizes = sum(saved[n].numel() for n in matrices)
    assert sum(int(saved[n].count_nonzero()) for n in matrices) == int(0.3 * sizes)
    for name, dense in record.weights[-1].items():  # what is not zero is as it was trained
        kept = saved[name] != 0 if name in matrices else torch.ones_like(dense, dtype=torch.bool)
        assert torch.equal(saved[name][kept], dense[kept])
    assert callback.pruner is not None
    assert callback.pruner.state == "folded"


def test_evaluation_sees_the_masks_and_training_goes_on_with_dense_weights(
    tiny: str, tmp_path: Path
) -> None:
    settings = Magnitude(final_density=0.1)
    trial = pruned_trial(tiny, settings)
    plain, _, straight = make_trainer(trial, tmp_path / "plain")
    plain.train()
    arguments = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 1}
    trainer, _, record = make_trainer(trial, tmp_path / "evaluated", **arguments)
    trainer.train()
    for before, after in zip(straight.weights, record.weights, strict=True):
        assert_close(before, after, atol=0)
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(losses) == STEPS
    assert trainer.evaluate()["eval_loss"] == losses[-1]  # of the folded model: the same masks
    trainer.model.load_state_dict(record.weights[-1])
    assert trainer.evaluate()["eval_loss"] != losses[-1]


def test_a_resumed_run_ends_as_one_in_one_go(tiny: str, tmp_path: Path) -> None:
    trial = pruned_trial(tiny, METHODS[3])
    folder, saving = tmp_path / "run", {"save_strategy": "steps", "save_steps": 5}
    first, _, straight = make_trainer(trial, folder, **saving)
    first.train()
    assert (folder / "checkpoint-5" / SCORES_FILE).is_file()
    again, _, resumed = make_trainer(trial, folder, **saving)
    again.train(resume_from_checkpoint=str(folder / "checkpoint-5"))
    assert len(resumed.weights) == STEPS - 5
    assert_close(straight.scores[-1], resumed.scores[-1], atol=0)
    assert_close(first.model.state_dict(), again.model.state_dict(), atol=0)
    (folder / "checkpoint-10" / SCORES_FILE).unlink()
    with pytest.raises(UserError, match="no mask_scores.safetensors in .*checkpoint-10; scores"):
        make_trainer(trial, folder)[0].train(resume_from_checkpoint=str(folder / "checkpoint-10"))


def test_the_best_checkpoint_comes_with_its_masks(tiny: str, tmp_path: Path) -> None:
    trial = pruned_trial(tiny, METHODS[1])
    trainer, _, _ = make_trainer(
        trial, tmp_path, eval_strategy="steps", eval_steps=4, save_strategy="steps", save_steps=4,
        load_best_model_at_end=True, per_device_eval_batch_size=1,
    )  # fmt: skip
    trainer.train()
    losses = {e["step"]: e["eval_loss"] for e in trainer.state.log_history if "eval_loss" in e}
    density = {e["step"]: e["density"] for e in trainer.state.log_history if "density" in e}
    best = min(losses, key=lambda step: losses[step])
    assert best == trainer.state.best_global_step < STEPS
    assert trainer.evaluate()["eval_loss"] == losses[best]
    matrices = prunable_matrices(trainer.model.bert.encoder.layer).values()
    kept = sum(int(matrix.count_nonzero()) for matrix in matrices)
    assert kept / sum(matrix.numel() for matrix in matrices) == density[best] > density[STEPS]


class NoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.linear(x), labels)}


def test_a_trainer_that_can_not_prune_is_told_so_in_one_line(tiny: str, tmp_path: Path) -> None:
    arguments = TrainingArguments(str(tmp_path), max_steps=3, use_cpu=True, report_to="none")
    rows = [{"x": torch.ones(2), "labels": torch.tensor(1)}] * 8
    trainer = Trainer(NoEncoder(), arguments, train_dataset=rows)
    trainer.add_callback(PruningCallback(Magnitude()))
    with pytest.raises(UserError) as caught:
        trainer.train()
    assert caught.value.problems == (
        "pruning: NoEncoder has no prunable layers: expected a transformers encoder, whose config "
        "has num_hidden_layers",
    )
    assert arguments.max_grad_norm == 1.0
    trial = pruned_trial(tiny, Magnitude())
    with pytest.raises(UserError, match="no steps left between the flat ends"):
        make_trainer(trial, tmp_path, max_steps=4)[0].train()
    frozen, _, _ = make_trainer(trial, tmp_path)
    frozen.model.base_model.requires_grad_(False)
    with pytest.raises(UserError, match="all layers of BertForSequenceClassification are frozen"):
        frozen.train()
    with pytest.raises(UserError, match="score_learning_rate: got 0, expected > 0"):
        PruningCallback(L0(), score_learning_rate=0)

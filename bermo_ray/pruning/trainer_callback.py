"""Pruning in anybody's `transformers` Trainer, by one callback."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback

from bermo_ray.errors import UserError
from bermo_ray.models.backbone import find_stack
from bermo_ray.pruning.counting import count_parameters
from bermo_ray.pruning.pruner import Pruner
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.trial import Optimizer, Penalized, Pruning

SCORES_FILE, OPTIMIZER_FILE = "mask_scores.safetensors", "mask_optimizer.pt"


class PruningCallback(TrainerCallback):
    """Prunes the encoder layers of the model that a `transformers` Trainer trains::

        trainer = Trainer(model, arguments, ..., callbacks=[PruningCallback(L0(multiplier=20))])

    Masks, gradients and schedule are those of our own training loop (docs/methods.md §2); the
    Trainer's warm-up steps are the schedule's w. The life of a run:

    1. When training begins, every weight matrix of the layers gets its scores, which have an AdamW
       of their own. Its rate follows the shape of the Trainer's: warm-up, decay.
    2. In a step the model runs on masked weights. Before the optimiser steps, the gradients of
       weights and scores follow, the penalty's included, and all of them are clipped together at
       ``max_grad_norm``. That is why the Trainer's own clipping is off while it trains, and the
       ``grad_norm`` that is logged is that of all of them.
    3. Evaluations see the masks of evaluation. The log gets ``remaining`` (the papers' figure),
       ``density`` (of the masked matrices alone) and, where there is a penalty, ``multiplier`` (λ).
    4. Checkpoints hold dense weights with the scores beside them, so that a run can be resumed.
    5. When training ends, pruned weights are zeros in the model itself: ``trainer.save_model()``
       writes a plain model. With ``load_best_model_at_end`` it is the best checkpoint's.

    Whether embeddings are frozen, as they are by default when we prune, is up to the script.

    Args:
        settings: Method and settings: ``L0``, ``SoftMovement``, ``Movement`` or ``Magnitude``.
        score_learning_rate: Of the mask scores, at its peak.
    """

    def __init__(
        self,
        settings: Pruning,
        score_learning_rate: float = Optimizer().score_learning_rate,
    ) -> None:
        if score_learning_rate <= 0:
            raise UserError(f"score_learning_rate: got {score_learning_rate}, expected > 0")
        self.settings, self.score_learning_rate = settings, score_learning_rate
        self.pruner: Pruner | None = None
        self._layers: nn.ModuleList | None = None
        self._score_optimizer: torch.optim.AdamW | None = None
        self._max_norm = 0.0  # of the Trainer's arguments, while they say 0
        self._norm: torch.Tensor | None = None  # of all gradients of the last step
        self._masked: AbstractContextManager[Any] | None = None  # masked weights in the model now
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attaches the masks.

        Raises:
            UserError: The model has no layers to prune, or the run can't prune them as asked.
        """
        model = kwargs["model"]
        self._restore_weights()  # of a run that was interrupted
        schedule = Schedule.from_settings(
            self.settings, state.max_steps, args.get_warmup_steps(state.max_steps)
        )
        problems = [*_find_problems(args), *filter(None, [schedule.find_problem()])]
        if problems:
            raise UserError(*problems)
        layers = find_layers(model)
        self.pruner, self._layers = Pruner(self.settings, schedule), layers
        self.pruner.attach(layers)
        if scores := self.pruner.scores():
            self._score_optimizer = torch.optim.AdamW(
                scores, lr=self.score_learning_rate, weight_decay=0.0, fused=True
            )
        if state.global_step:
            self._load(_checkpoint_folder(args, state), state.global_step)
        if args.max_grad_norm:
            self._max_norm, args.max_grad_norm = args.max_grad_norm, 0.0
        if self._hook is None:
            self._hook = model.register_forward_pre_hook(self._mask_for_evaluation)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Puts the step's masked weights into the model."""
        self._restore_weights()
        assert self.pruner is not None
        step = state.global_step + 1
        self._masked = self.pruner.step(step)
        with _same_noise(args.seed, step) if args.world_size > 1 else nullcontext():
            self._masked.__enter__()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Turns the gradients of masked weights into those of weights and scores; clips them."""
        self._restore_weights()
        assert self.pruner is not None
        parameters = [*self.pruner.scores(), *kwargs["model"].parameters()]
        limit = self._max_norm or float("inf")
        self._norm = nn.utils.clip_grad_norm_(parameters, limit)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Moves the scores, at their rate times the share of the peak that the Trainer's is at."""
        assert self.pruner is not None
        if self._score_optimizer is None:
            return
        group = kwargs["optimizer"].param_groups[0]
        peak = group.get("initial_lr", args.learning_rate)
        share = group["lr"] / peak if peak else 1.0
        for score_group in self._score_optimizer.param_groups:
            score_group["lr"] = self.score_learning_rate * share
        self._score_optimizer.step()
        self.pruner.shift_scores_to_density(self.score_learning_rate)
        self._score_optimizer.zero_grad(set_to_none=True)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Takes the masks of evaluation out of the model again."""
        self._restore_weights()

    def on_predict(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """As after an evaluation."""
        self._restore_weights()

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Adds what remains to the log of training steps."""
        logs = kwargs.get("logs") or {}
        if self.pruner is None or self.pruner.state != "attached" or "loss" not in logs:
            return
        added = self._describe(kwargs["model"])
        if "grad_norm" in logs and self._norm is not None:
            added["grad_norm"] = float(self._norm)
        logs.update(added)
        state.log_history[-1].update(added)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Adds the scores to the Trainer's checkpoint."""
        folder = _checkpoint_folder(args, state)
        if self.pruner is None or not args.should_save or not folder.is_dir():
            return
        save_file(self.pruner.state_dict(), folder / SCORES_FILE)
        if self._score_optimizer is not None:
            torch.save(self._score_optimizer.state_dict(), folder / OPTIMIZER_FILE)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Folds the masks into the weights for good."""
        self._restore_weights()
        assert self.pruner is not None
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self._load(Path(state.best_model_checkpoint), state.best_global_step)
        self.pruner.fold()
        self._hook.remove()
        args.max_grad_norm, self._max_norm = self._max_norm, 0.0
        self._hook = self._score_optimizer = None

    def _describe(self, model: nn.Module) -> dict[str, float]:
        assert self.pruner is not None
        assert self._layers is not None
        count = count_parameters(model, self._layers, self.pruner)
        description = {"remaining": count.remaining, "density": count.density}
        if isinstance(self.settings, Penalized):
            description["multiplier"] = self.pruner.multiplier
        return description

    def _mask_for_evaluation(self, model: nn.Module, inputs: Any) -> None:
        """Before each forward: outside of training steps the model runs as it would be saved."""
        if not model.training and self._masked is None and self.pruner is not None:
            # Not `frozen`: it would keep gradients off until the masks are taken out.
            self._masked = self.pruner.masked(training=False)
            self._masked.__enter__()

    def _restore_weights(self) -> None:
        """Dense weights in the model; of a training step, with their gradients."""
        if self._masked is not None:
            masked, self._masked = self._masked, None
            masked.__exit__(None, None, None)

    def _load(self, folder: Path, step: int) -> None:
        """The scores of a checkpoint, and what their optimiser knows."""
        assert self.pruner is not None
        if not (folder / SCORES_FILE).is_file():
            raise UserError(
                f"pruning: no {SCORES_FILE} in {folder}; scores are resumed from a checkpoint in "
                "output_dir that was saved while pruning"
            )
        self.pruner.load_state_dict(load_file(folder / SCORES_FILE))
        self.pruner.now = step
        if self._score_optimizer is not None:
            state = torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)
            self._score_optimizer.load_state_dict(state)


def find_layers(model: Any) -> nn.ModuleList:
    """The layers of a model that can be pruned.

    Raises:
        UserError: It has none, or all of their weights are frozen.
    """
    name, base = type(model).__name__, getattr(model, "base_model", model)
    if getattr(getattr(base, "config", None), "num_hidden_layers", None) is None:
        raise UserError(
            f"pruning: {name} has no prunable layers: expected a transformers encoder, whose "
            "config has num_hidden_layers"
        )
    layers = find_stack(model).modules
    if not any(p.requires_grad for p in layers.parameters()):
        raise UserError(f"pruning: all layers of {name} are frozen; let them learn to prune them")
    return layers


def _find_problems(args: Any) -> list[str]:
    """What a Trainer's arguments ask for that can't be pruned under, one line each."""
    problems = []
    if args.fp16:
        problems.append("fp16: it scales gradients, which masks can't see; use bf16 to prune")
    if getattr(args, "fsdp", None) or getattr(args, "deepspeed", None):
        problems.append("fsdp, deepspeed: they take weights apart; prune in one process or by DDP")
    return problems


def _checkpoint_folder(args: Any, state: Any) -> Path:
    """Where the Trainer keeps its checkpoint of this step."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


@contextmanager
def _same_noise(seed: int, step: int) -> Iterator[None]:
    """Within: the same random numbers in every process, so that all have L0's masks alike and DDP
    averages gradients of one function."""
    with torch.random.fork_rng():
        torch.manual_seed(int(np.random.SeedSequence([seed, step]).generate_state(1)[0]))
        yield

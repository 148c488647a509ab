"""What one worker holds while it trains a trial, and how it is put together."""

import gc
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.models.assembly import AssembledModel
from bermo_ray.models.layer_strategies import layers_due
from bermo_ray.pruning.counting import ParameterCount
from bermo_ray.pruning.pruner import Pruner
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.tasks.registry import resolve_task
from bermo_ray.tasks.task import Split, Task
from bermo_ray.training import checkpoint, features
from bermo_ray.training.batches import steps_per_epoch
from bermo_ray.training.checkpoint import BestModel, Progress
from bermo_ray.training.contribution import layer_similarity
from bermo_ray.training.distillation import Teacher
from bermo_ray.training.model import build_model, build_pruner
from bermo_ray.training.optimizer import build_optimizer, forget_removed
from bermo_ray.training.precision import Precision
from bermo_ray.trial import Trial


@dataclass
class TrainingRun:
    """All that one worker holds while it trains a trial."""

    trial: Trial
    task: Task
    data: dict[Split, EncodedRows]
    model: AssembledModel
    network: nn.Module  # what a forward calls: the model's network, or its replay from features
    pruner: Pruner | None
    teacher: Teacher | None
    optimizer: torch.optim.AdamW
    rates: LambdaLR
    steps_per_epoch: int
    total_steps: int
    world_size: int
    device: torch.device
    precision: Precision
    epoch: int = 0  # of the step that is being trained
    count: ParameterCount | None = None  # parameters that remain, when last counted
    best: BestModel | None = None  # so far, where the trial wants the best one
    parallel: nn.Module = field(init=False)  # the network as a training step calls it

    def __post_init__(self) -> None:
        self.parallel = self.network

    @property
    def evaluation_batch_size(self) -> int:
        """Evaluation has no gradients to keep, so larger batches fit."""
        return 4 * self.trial.batch_size

    def trained_parameters(self) -> list[nn.Parameter]:
        """All that the optimiser moves: weights, fusion scalars, scores."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def layers_due(self, epoch: int) -> Sequence[int]:
        """The layers that are to be gone when that epoch, counted from 0, begins."""
        settings = self.trial.layer_drop
        return layers_due(settings, self.model.dropping_order, epoch) if settings else ()

    def remove_layers(self, layers: Sequence[int]) -> bool:
        """Removes layers from the model, and all that masks and optimiser hold for them; whether
        any of them was still there."""
        if not set(layers) & set(self.model.layers_left):
            return False
        self.model.remove_layers(layers)
        present = list(self.model.network.parameters())
        if self.pruner:
            self.pruner.forget_removed(self.model.stack.modules)
            present += self.pruner.scores()
        forget_removed(self.optimizer, present)
        self.count = None
        return True

    def resume(self, folder: Path, progress: Progress) -> None:
        """Puts everything back as it was when the checkpoint was written."""
        self.remove_layers(progress.history[-1].dropped_layers)
        checkpoint.load_checkpoint(
            folder,
            self.model.network,
            self.pruner,
            self.optimizer,
            self.rates,
            self.precision.scaler,
        )
        self.best = BestModel.load(folder)

    def save(self, folder: Path, progress: Progress, predictions: pa.Table | None) -> None:
        """Writes a checkpoint into an empty folder; a final one comes with ``predictions``."""
        checkpoint.save_checkpoint(
            folder,
            self.trial,
            self.task.labels,
            self.model.network,
            self.pruner,
            self.optimizer,
            self.rates,
            self.precision.scaler,
            progress,
            predictions,
            self.best,
        )

    def start_training(self) -> None:
        """Puts the network into training mode; what is frozen goes without dropout too."""
        self.network.train()
        if self.trial.mode == "features":
            self.model.stack.base.eval()

    def wrap_network(self) -> None:
        """Puts the network under DDP if there are several workers: before the first step, and again
        whenever layers were removed. What the pruner averages itself is left alone.

        Some parameters may go unused (XLNet has such). A static graph knows without a search at
        every step, but can't skip the exchange between micro-batches.
        """
        self.parallel = self.network
        if self.world_size == 1:
            return
        gc.collect()  # references within an earlier wrapper would keep gradients of other shapes
        ignored = {id(p) for p in self.pruner.noisy_weights()} if self.pruner else set()
        names = [name for name, p in self.network.named_parameters() if id(p) in ignored]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.network, names)
        static = self.trial.micro_batches == 1
        self.parallel = DistributedDataParallel(
            self.network, static_graph=static, find_unused_parameters=not static
        )

    def no_exchange(self) -> AbstractContextManager[None]:
        """Within: workers do not exchange the gradients of a backward."""
        if isinstance(self.parallel, DistributedDataParallel):
            return self.parallel.no_sync()
        return nullcontext()


def set_up(
    trial: Trial,
    world_size: int,
    device: torch.device,
    dropping_order: list[int] | None = None,
) -> TrainingRun:
    """Data, model, masks and optimiser of a trial, as they are before the first step.

    Args:
        trial: What is trained.
        world_size: Number of workers.
        device: Of this worker.
        dropping_order: Of a checkpoint: which layers the run drops.

    Raises:
        UserError: What the trial would keep of its rows changes from epoch to epoch.
    """
    task = resolve_task(trial.data)
    if problems := find_redraw_problems(trial, task):
        raise UserError(*problems)
    precision = Precision(trial.precision, device)
    tokenizer = backbone.load_tokenizer(trial.backbone)
    splits: tuple[Split, Split] = ("train", "dev")
    data = {s: encode_split(task, trial.data, s, trial.seed, tokenizer) for s in splits}
    teacher = None
    if trial.distillation:
        teacher = Teacher(trial.distillation, data["train"], trial.batch_size, device)
    score_layers = partial(
        layer_similarity, data=data["train"], batch_size=4 * trial.batch_size, device=device
    )
    model = build_model(trial, task, score_layers, dropping_order)
    model.network.to(device)
    per_epoch = steps_per_epoch(len(data["train"]), trial.batch_size, world_size)
    total = trial.epochs * per_epoch
    warmup = trial.warmup_steps(total)
    pruner = build_pruner(trial.pruning, model, total, warmup)
    if trial.embeddings_frozen:
        backbone.embedding_module(model.network).requires_grad_(False)
    optimizer, rates = build_optimizer(trial.optimizer, model, pruner, total, warmup)
    run = TrainingRun(
        trial, task, data, model, model.network, pruner, teacher, optimizer, rates,
        per_epoch, total, world_size, device, precision,
    )  # fmt: skip
    if trial.mode == "features":
        _read_features(run)
    return run


def find_redraw_problems(trial: Trial, task: Task) -> list[str]:
    """What the trial would keep of rows that are drawn anew every epoch, one line each."""
    if not task.head.redraws_gold:
        return []
    why = f"{task.name} hides other pieces in every epoch"
    problems = []
    if trial.mode == "features":
        problems.append(f"mode: got 'features', which keeps the states of fixed rows, but {why}")
    if trial.distillation:
        problems.append(f"distillation: a teacher's logits are kept of fixed rows, but {why}")
    return problems


def _read_features(run: TrainingRun) -> None:
    """Has the run train from frozen states where the fusion allows it."""
    size, device = run.evaluation_batch_size, run.device
    run.data = {s: features.with_states(run.model, d, size, device) for s, d in run.data.items()}
    if (states := run.model.fusion.states_read()) is not None:
        run.network = features.ReplayNetwork(run.model, states)

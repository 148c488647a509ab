"""Which evaluation's model a trial ends with (docs/methods.md §2, Evaluation)."""

from contextlib import nullcontext

from bermo_ray.training.checkpoint import BestModel
from bermo_ray.training.evaluate import Evaluation, evaluate_dev
from bermo_ray.training.judge import DENSITY_TOLERANCE
from bermo_ray.training.setup import TrainingRun
from bermo_ray.trial import Penalized


def keep_if_best(run: TrainingRun, step: int, evaluation: Evaluation) -> None:
    """Keeps a copy of the model after ``step`` if the trial wants the best one and no evaluation
    that counts was better; of equal ones the later is kept."""
    if run.trial.final_checkpoint == "last" or not is_at_full_sparsity(run, step):
        return
    by_loss = run.trial.final_checkpoint == "best_loss"
    metric = -evaluation.loss if by_loss else evaluation.metric_selection
    if metric >= (run.best.metric if run.best else float("-inf")):  # never so for NaN
        run.best = BestModel.copy(step, metric, run.model.network, run.pruner)


def restore_best(run: TrainingRun, step: int) -> int | None:
    """Behind the last ``step``: puts the best model back, if the trial wants it, and gives the step
    that it was evaluated after. None, and the model as it is, where no evaluation counted."""
    if run.trial.final_checkpoint == "last":
        return None
    with run.pruner.frozen() if run.pruner else nullcontext():
        last = evaluate_dev(run)
    keep_if_best(run, step, last)
    if run.best is None:
        return None
    run.best.restore(run.model.network, run.pruner)
    return run.best.step


def is_at_full_sparsity(run: TrainingRun, step: int) -> bool:
    """Whether the model after ``step`` is what the trial asks for: no layer is still to be dropped,
    no state still to be mixed in, the pruning schedule is at its end, and a target density is
    met. An earlier model is a larger or another one, so that it does not compete."""
    if set(run.model.dropping_order) & set(run.model.layers_left):
        return False
    if step / run.total_steps < run.trial.fusion.opening_share:
        return False
    if run.pruner is None:
        return True
    return run.pruner.schedule.at_full_sparsity(step) and _meets_target_density(run)


def _meets_target_density(run: TrainingRun) -> bool:
    pruning = run.trial.pruning
    target = pruning.target_density if isinstance(pruning, Penalized) else None
    if run.pruner is None or target is None:
        return True
    matrices = run.pruner.kept_by_matrix()
    density = sum(m.kept for m in matrices) / sum(m.size for m in matrices)
    return abs(density - target) <= DENSITY_TOLERANCE

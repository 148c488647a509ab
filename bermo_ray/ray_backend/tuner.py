"""Runs a plan with Ray Tune."""

import tempfile
from collections.abc import Sequence

from ray import tune

from bermo_ray.errors import UserError
from bermo_ray.ray_backend.callbacks import GiveUpStopper, ListenerCallback
from bermo_ray.ray_backend.searcher import PlanSearcher
from bermo_ray.ray_backend.trials import TrialConfig, run_trial
from bermo_ray.record import Listener
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.plan import Plan
from bermo_ray.training.reporter import Resources


def run_plan(
    dialogue: Dialogue,
    config: TrialConfig,
    listeners: Sequence[Listener],
    *,
    name: str,
    concurrent: int,
) -> Plan | None:
    """Runs all trials of a dialogue's plan that have not ended; gives the plan, which knows what
    came out, or None when interrupted.

    Tune's own state, which it saves to a folder, is not used: the dialogue's log says what was
    asked and told, and each trial finds its checkpoint by itself.

    Raises:
        UserError: a disk is full; what had not ended goes on when the study is resumed.
    """
    searcher = PlanSearcher(dialogue, config)
    with tempfile.TemporaryDirectory(prefix="bermo-tune-", ignore_cleanup_errors=True) as folder:
        tune.Tuner(
            tune.with_resources(run_trial, _per_trial(config.resources)),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=dialogue.plan.most_trials,
                max_concurrent_trials=concurrent,
                reuse_actors=config.resources.workers == 1,
                trial_dirname_creator=lambda trial: str(trial.config["attempt"]),
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=folder,
                callbacks=[ListenerCallback(listeners, searcher)],
                verbose=0,
                stop=GiveUpStopper(searcher),
                failure_config=tune.FailureConfig(max_failures=2),
            ),
        ).fit()
    if searcher.stop_reason is not None:
        raise UserError(searcher.stop_reason)
    return dialogue.plan if dialogue.finished else None


def _per_trial(resources: Resources) -> dict[str, float]:
    if resources.workers > 1:  # the inner TorchTrainer asks for its own; {"CPU": 0} alone raises
        return {"CPU": 0, "node:__internal_head__": 0.001}
    gpu = {"GPU": 1.0} if resources.gpus else {}
    return {"CPU": resources.cpus_per_worker, **gpu}

"""Runs a search with Ray Tune, or goes on with one that was cut off."""

from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.search.searcher import ArmSearcher
from bermo_ray.training.trainer import Resources, trainable


def run(
    searcher: ArmSearcher,
    *,
    name: str,
    storage: str,
    resources: Resources,
    concurrent: int,
    callbacks: list[Any],
    resume: bool,
) -> bool:
    """Runs all trials; True when they all ended, False when it was interrupted (Ctrl-C).

    With ``resume`` the state on disk decides: callbacks and searcher come back from it.
    """
    from ray import tune

    if resources.workers == 1:
        per_trial: dict[str, float] = {"CPU": resources.cpus_per_worker}
        per_trial |= {"GPU": 1} if resources.gpus else {}
    else:  # the inner TorchTrainer asks for its own; {"CPU": 0} alone would raise
        per_trial = {"CPU": 0, "node:__internal_head__": 0.001}
    function = tune.with_resources(trainable, per_trial)
    folder = f"{storage}/{name}"
    if resume:
        if not tune.Tuner.can_restore(folder):
            raise UserError(f"--resume: no saved state in {folder}; start it again without")
        tuner = tune.Tuner.restore(folder, function, resume_unfinished=True, resume_errored=True)
    else:
        if "://" not in storage:
            Path(storage).mkdir(parents=True, exist_ok=True)
        tuner = tune.Tuner(
            function,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=searcher.total,
                max_concurrent_trials=concurrent,
                reuse_actors=resources.workers == 1,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=storage,
                callbacks=callbacks,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=2),
                checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            ),
        )
    results = tuner.fit()
    ended = sum(1 for r in results if r.error is not None or (r.metrics or {}).get("final"))
    return ended >= searcher.total

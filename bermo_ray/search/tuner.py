"""Runs a search with Ray Tune, or goes on with one that was cut off."""

import json
from typing import Any

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

    With ``resume`` the state on disk decides: callbacks and searcher come back from it. A run that
    was killed before it could save any state starts anew.
    """
    from ray import tune

    if resources.workers == 1:
        per_trial: dict[str, float] = {"CPU": resources.cpus_per_worker}
        per_trial |= {"GPU": 1} if resources.gpus else {}
    else:  # the inner TorchTrainer asks for its own; {"CPU": 0} alone would raise
        per_trial = {"CPU": 0, "node:__internal_head__": 0.001}
    function = tune.with_resources(trainable, per_trial)
    folder = f"{storage}/{name}"
    if resume and has_state(storage, name):
        tuner = tune.Tuner.restore(folder, function, resume_unfinished=True, resume_errored=True)
    else:
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
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            ),
        )
    results = tuner.fit()
    ended = sum(1 for r in results if r.error is not None or (r.metrics or {}).get("final"))
    return ended >= searcher.total


def has_state(storage: str, name: str) -> bool:
    """Whether Tune saved a whole state of its trials there; without one it would run a single trial
    and call that the study."""
    from pyarrow import fs
    from ray import tune

    folder = f"{storage}/{name}"
    if not tune.Tuner.can_restore(folder):
        return False
    files, path = (
        fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
    )
    names = [i.path for i in files.get_file_info(fs.FileSelector(path))]
    states = sorted(n for n in names if n.rsplit("/", 1)[-1].startswith("experiment_state-"))
    if not states:
        return False
    with files.open_input_stream(states[-1]) as stream:
        try:
            return bool(json.loads(stream.read())["trial_data"])
        except (ValueError, KeyError):
            return False

"""Runs a search with Ray Tune, or goes on with one that was cut off."""

import copy
import json
from typing import Any

from ray.tune import Stopper

from bermo_ray.search.plan import Plan
from bermo_ray.search.searcher import PlanSearcher
from bermo_ray.training.trainer import Resources, trainable

TRIALS, SEARCHER = "experiment_state-", "searcher-state-"  # Tune's files, by how names begin


def run(
    searcher: PlanSearcher,
    *,
    name: str,
    storage: str,
    resources: Resources,
    concurrent: int,
    callbacks: list[Any],
    resume: bool,
) -> Plan | None:
    """Runs all trials; the plan when they all ended, None when it was interrupted (Ctrl-C).

    With ``resume`` the state on disk decides: callbacks and searcher come back from it. A run that
    was killed before it could save any state starts anew.

    Raises:
        UserError: the state to resume is of another version.
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
        searcher = (
            tuner._local_tuner._tune_config.search_alg
        )  # as it was at the start; fit() uses it
        trials, told = (_newest(storage, name, prefix) or {} for prefix in (TRIALS, SEARCHER))
        searcher.in_tune = {json.loads(state)["trial_id"] for state, _ in trials["trial_data"]}
        # Tried on a copy: inside fit() Ray would log a traceback, and run what is left of the study
        # with a plan that knows half of it.
        copy.deepcopy(searcher).replay(told["log"])
    else:
        tuner = tune.Tuner(
            function,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=searcher.plan.most,
                max_concurrent_trials=concurrent,
                reuse_actors=resources.workers == 1,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=storage,
                callbacks=callbacks,
                verbose=0,
                stop=Hopeless(searcher),
                failure_config=tune.FailureConfig(max_failures=2),
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            ),
        )
    results = tuner.fit()
    ended = all(r.error is not None or (r.metrics or {}).get("final") for r in results)
    if not ended or not (_newest(storage, name, SEARCHER) or {}).get("finished"):
        return None
    return searcher.plan


class Hopeless(Stopper):
    """Ends a trial that the plan gives up, as a result of its own: ``status=stopped``."""

    def __init__(self, searcher: PlanSearcher) -> None:
        self.searcher = searcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends here; Tune passes the result on as it is left."""
        reason = self.searcher.hopeless(trial_id, result)
        if reason is None:
            return False
        result.update(final=True, status="stopped", reason=reason)
        return True

    def stop_all(self) -> bool:
        """The study itself goes on."""
        return False


def has_state(storage: str, name: str) -> bool:
    """Whether Tune saved a whole state of trials and searcher there; without one it would run a
    single trial and call that the study."""
    from ray import tune

    if not tune.Tuner.can_restore(f"{storage}/{name}"):
        return False
    trials, searcher = (_newest(storage, name, prefix) or {} for prefix in (TRIALS, SEARCHER))
    return bool(trials.get("trial_data")) and "log" in searcher


def _newest(storage: str, name: str, prefix: str) -> dict[str, Any] | None:
    """The newest of the study's state files of that name; None where there is no whole one."""
    from pyarrow import fs

    folder = f"{storage}/{name}"
    files, path = (
        fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
    )
    names = [i.path for i in files.get_file_info(fs.FileSelector(path))]
    states = sorted(n for n in names if n.rsplit("/", 1)[-1].startswith(prefix))
    if not states:
        return None
    with files.open_input_stream(states[-1]) as stream:
        try:
            content = json.loads(stream.read())
        except ValueError:
            return None
    return content if isinstance(content, dict) else None

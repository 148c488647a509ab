"""Runs a plan with Ray Tune, or goes on with one that was cut off."""

import copy
import json
from collections.abc import Sequence
from typing import Any

from ray import tune

from bermo_ray.ray_backend.callbacks import GiveUpStopper, ListenerCallback
from bermo_ray.ray_backend.searcher import PlanSearcher
from bermo_ray.ray_backend.trials import TrialConfig, decode_report, run_trial
from bermo_ray.record import Listener
from bermo_ray.search.plan import Plan
from bermo_ray.training.reporter import Resources

_TRIALS_STATE, _SEARCHER_STATE = "experiment_state-", "searcher-state-"  # Tune's files begin so


def run_plan(
    plan: Plan,
    config: TrialConfig,
    listeners: Sequence[Listener],
    *,
    name: str,
    concurrent: int,
    resume: bool,
) -> Plan | None:
    """Runs all trials; gives the plan, which knows what came out, or None when interrupted.

    With ``resume`` the state on disk decides: the plan is told again what it was told. A run that
    was killed before it could save any state starts anew.

    Raises:
        UserError: the state to resume is of another version.
    """
    function = tune.with_resources(run_trial, _per_trial(config.resources))
    if resume and has_state(config.storage, name):
        tuner, searcher = _restore(function, config.storage, name, listeners)
    else:
        searcher = PlanSearcher(plan, config)
        tuner = tune.Tuner(
            function,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=plan.most_trials,
                max_concurrent_trials=concurrent,
                reuse_actors=config.resources.workers == 1,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=config.storage,
                callbacks=[ListenerCallback(listeners)],
                verbose=0,
                stop=GiveUpStopper(searcher),
                failure_config=tune.FailureConfig(max_failures=2),
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            ),
        )
    all_ended = all(result.error is not None or _ended(result) for result in tuner.fit())
    state = _read_newest(config.storage, name, _SEARCHER_STATE) or {}
    return searcher.plan if all_ended and state.get("finished") else None


def _per_trial(resources: Resources) -> dict[str, float]:
    if resources.workers > 1:  # the inner TorchTrainer asks for its own; {"CPU": 0} alone raises
        return {"CPU": 0, "node:__internal_head__": 0.001}
    gpu = {"GPU": 1.0} if resources.gpus else {}
    return {"CPU": resources.cpus_per_worker, **gpu}


def _ended(result: Any) -> bool:
    report = decode_report(result.metrics)
    return report is not None and report.status.ended


def _restore(
    function: Any, storage: str, name: str, listeners: Sequence[Listener]
) -> tuple[tune.Tuner, PlanSearcher]:
    """Tune's experiment as it was saved, with the listeners of this process."""
    tuner = tune.Tuner.restore(
        f"{storage}/{name}", function, resume_unfinished=True, resume_errored=True
    )
    local = tuner._local_tuner
    (callback,) = local._run_config.callbacks
    callback.listeners = list(listeners)
    searcher: PlanSearcher = local._tune_config.search_alg  # as it was at the start; fit() uses it
    trials = _read_newest(storage, name, _TRIALS_STATE) or {}
    told = _read_newest(storage, name, _SEARCHER_STATE) or {}
    searcher.known_to_tune = {json.loads(state)["trial_id"] for state, _ in trials["trial_data"]}
    # Tried on a copy: inside fit() Ray would log a traceback, and run what is left of the study
    # with a plan that knows half of it.
    copy.deepcopy(searcher).replay(told["log"])
    return tuner, searcher


def has_state(storage: str, name: str) -> bool:
    """Whether Tune saved a complete state of trials and searcher there; without one it would run a
    single trial and call that the study."""
    if not tune.Tuner.can_restore(f"{storage}/{name}"):
        return False
    trials = _read_newest(storage, name, _TRIALS_STATE) or {}
    searcher = _read_newest(storage, name, _SEARCHER_STATE) or {}
    return bool(trials.get("trial_data")) and "log" in searcher


def _read_newest(storage: str, name: str, prefix: str) -> dict[str, Any] | None:
    """The newest of the study's state files of that name; None where there is no readable one."""
    from pyarrow import fs

    folder = f"{storage}/{name}"
    filesystem, path = (
        fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
    )
    paths = [info.path for info in filesystem.get_file_info(fs.FileSelector(path))]
    states = sorted(p for p in paths if p.rsplit("/", 1)[-1].startswith(prefix))
    if not states:
        return None
    with filesystem.open_input_stream(states[-1]) as stream:
        try:
            content = json.loads(stream.read())
        except ValueError:
            return None
    return content if isinstance(content, dict) else None

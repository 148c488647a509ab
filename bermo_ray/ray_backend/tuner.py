"""Runs a plan with Ray Tune."""

import tempfile
import threading
from collections.abc import Callable, Sequence

from ray import tune

from bermo_ray.ray_backend import cluster
from bermo_ray.ray_backend.callbacks import GiveUpStopper, ListenerCallback
from bermo_ray.ray_backend.searcher import PlanSearcher
from bermo_ray.ray_backend.trials import TrialConfig, run_trial
from bermo_ray.record import Listener
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.plan import Plan
from bermo_ray.space import OutOfSpaceError
from bermo_ray.training.reporter import Resources

_SECONDS_BETWEEN = 0.5  # looks at whether Ray is still there
INTERRUPTED = "interrupted"  # the reason why a study ends that was stopped by Ctrl-C


class PlanRun:
    """Runs, in a thread of its own, all trials of a dialogue's plan that have not ended.

    Tune's own state, which it saves to a folder, is not used: the dialogue's log says what was
    asked and told, and each trial finds its checkpoint by itself.

    Args:
        dialogue: With the plan.
        config: What the trials' processes are given besides the trials.
        listeners: Who hears of the trials.
        name: Of the study.
        concurrent: Trials at once.
    """

    def __init__(
        self,
        dialogue: Dialogue,
        config: TrialConfig,
        listeners: Sequence[Listener],
        *,
        name: str,
        concurrent: int,
    ) -> None:
        self._dialogue, self._config, self._listeners = dialogue, config, listeners
        self._name, self._concurrent = name, concurrent
        self._searcher = PlanSearcher(dialogue, config)
        self._error: Exception | None = None
        # Not the thread's own `join`, which takes it for ended once Ctrl-C interrupts it.
        self._ended = threading.Event()

    def wait(self, is_broken: Callable[[], bool]) -> bool:
        """Starts, and waits for the end of it; False if Ray broke, so that there is none. The first
        Ctrl-C ends the trials, the second this wait too."""
        threading.Thread(target=self._run, name="bermo-tune", daemon=True).start()
        while True:
            try:
                while not self._ended.wait(_SECONDS_BETWEEN):
                    if is_broken():
                        return False
                return not is_broken()
            except KeyboardInterrupt:
                if self._searcher.stop_reason is not None:
                    raise
                self._searcher.stop_reason = INTERRUPTED

    def join(self, seconds: float) -> bool:
        """Has the trials end, and waits so long for the end of it; whether it has ended."""
        self._searcher.stop_reason = self._searcher.stop_reason or INTERRUPTED
        return self._ended.wait(seconds)

    def result(self) -> Plan | None:
        """The plan, which knows what came out, or None when interrupted.

        Raises:
            OutOfSpaceError: a disk is full.
            Exception: of Tune, the plan or a listener.
        """
        if self._searcher.stop_reason not in (None, INTERRUPTED):
            raise OutOfSpaceError(str(self._searcher.stop_reason))
        if self._error is not None:
            raise self._error
        return self._dialogue.plan if self._dialogue.finished else None

    def _run(self) -> None:
        try:
            with (
                cluster.starting_no_other_ray(),
                tempfile.TemporaryDirectory(
                    prefix="bermo-tune-", ignore_cleanup_errors=True
                ) as folder,
            ):
                self._make_tuner(folder).fit()
        except Exception as error:
            if self._searcher.stop_reason is None:
                self._error = error
        finally:
            self._ended.set()

    def _make_tuner(self, folder: str) -> tune.Tuner:
        return tune.Tuner(
            tune.with_resources(run_trial, _per_trial(self._config.resources)),
            tune_config=tune.TuneConfig(
                search_alg=self._searcher,
                num_samples=self._dialogue.plan.most_trials,
                max_concurrent_trials=self._concurrent,
                reuse_actors=self._config.resources.workers == 1,
                trial_dirname_creator=lambda trial: str(trial.config["attempt"]),
            ),
            run_config=tune.RunConfig(
                name=self._name,
                storage_path=folder,
                callbacks=[ListenerCallback(self._listeners, self._searcher)],
                verbose=0,
                stop=GiveUpStopper(self._searcher),
                failure_config=tune.FailureConfig(max_failures=2),
            ),
        )


def _per_trial(resources: Resources) -> dict[str, float]:
    if resources.workers > 1:  # the inner TorchTrainer asks for its own; {"CPU": 0} alone raises
        return {"CPU": 0, "node:__internal_head__": 0.001}
    gpu = {"GPU": resources.gpus_per_worker} if resources.gpus else {}
    return {"CPU": resources.cpus_per_worker, **gpu}

"""How far trials are between their reports: workers tell an actor, which the driver asks.

Nothing waits for it and nothing depends on it: a study whose board is lost shows less, no more.
"""

import time
from typing import Any

import ray
from ray.exceptions import RayError

_NAME = "bermo-progress"
_SECONDS_BETWEEN = 1.0  # messages of one trial, and questions of the driver


class Board:
    """The actor: of each attempt the share of its steps that is done."""

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}

    def put(self, attempt: str, share: float) -> None:
        """An attempt is so far."""
        self._shares[attempt] = share

    def read(self) -> dict[str, float]:
        """All that is known."""
        return self._shares


class BoardReader:
    """The driver's side: starts the actor, and asks it without waiting."""

    def __init__(self) -> None:
        self._board: Any = (
            ray.remote(Board).options(name=_NAME, get_if_exists=True, num_cpus=0).remote()
        )
        self._answer: Any = None
        self._asked_at = 0.0

    def read(self) -> dict[str, float]:
        """What has come in since the last call; nothing where no answer is there yet."""
        shares: dict[str, float] = {}
        try:
            if self._answer is not None and ray.wait([self._answer], timeout=0)[0]:
                shares, self._answer = ray.get(self._answer), None
            now = time.monotonic()
            if self._answer is None and now - self._asked_at >= _SECONDS_BETWEEN:
                self._answer, self._asked_at = self._board.read.remote(), now
        except RayError:
            self._answer = None
        return shares


class BoardWriter:
    """A worker's side.

    Args:
        attempt: Tune's id of the trial.
    """

    def __init__(self, attempt: str) -> None:
        self.attempt, self._board, self._told_at = attempt, _find_board(), 0.0

    def tell(self, share: float) -> None:
        """Passes on how far the trial is, at most once per second."""
        now = time.monotonic()
        if self._board is not None and now - self._told_at >= _SECONDS_BETWEEN:
            self._told_at = now
            self._board.put.remote(self.attempt, share)


def _find_board() -> Any:
    try:
        return ray.get_actor(_NAME)
    except (ValueError, RayError):  # a driver that shows nothing started none
        return None

"""A plug-in for a study's workers: adds up, in a file, the seconds that they train and evaluate."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bermo_ray.training import loop

FILE_VARIABLE = "BERMO_TRAINING_CLOCK"  # one line per stretch between evaluations
_seconds = [0.0]


def _clocked(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            _seconds[0] += time.perf_counter() - started

    return call


def _writing(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        with Path(os.environ[FILE_VARIABLE]).open("a") as file:
            file.write(f"{_seconds[0]}\n")
        _seconds[0] = 0.0
        return result

    return call


_loop: Any = loop  # it imports `measure` from another module
_loop.take_step = _clocked(_loop.take_step)
_loop.measure = _writing(_clocked(_loop.measure))

"""How the benchmarks measure: interleaved, medians, a table, and one JSON line at the end."""

import json
import statistics
import time
from collections.abc import Callable, Mapping

import torch
from rich.console import Console
from rich.table import Table


def interleaved(
    calls: Mapping[str, Callable[[], object]], rounds: int = 5, warm: bool = True
) -> dict[str, float]:
    """Median seconds of each call; every round runs all of them, so that drift hits all alike."""
    return {name: statistics.median(v) for name, v in samples(calls, rounds, warm).items()}


def samples(
    calls: Mapping[str, Callable[[], object]], rounds: int, warm: bool = True
) -> dict[str, list[float]]:
    """Seconds of each call in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + warm):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn >= warm:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def peak_bytes(call: Callable[[], object]) -> int:
    """Most bytes of tensors alive at once that the call allocated."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        call()
    live = peak = 0
    results = profile.profiler.kineto_results
    memory = [e for e in results.events() if e.name() == "[memory]"]
    for event in sorted(memory, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def show(title: str, columns: list[str], rows: list[list[str]], ratios: dict[str, float]) -> None:
    """Prints the table and, last, the ratios as one line of JSON."""
    print_table(title, columns, rows)
    print_ratios(ratios)


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Prints a table, with its first column to the left."""
    table = Table(title=title, title_justify="left", box=None)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140  # nobody's window: nothing is broken to fit 80 columns
    console.print(table)


def print_ratios(ratios: Mapping[str, float | str]) -> None:
    """Prints one line of JSON; strings in it say what a ratio is to."""
    rounded = {k: v if isinstance(v, str) else round(v, 4) for k, v in ratios.items()}
    print(json.dumps(rounded))

"""``bermo-ray disk`` and ``bermo-ray clean``: what studies take on disk, and making room."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bermo_ray.command_line.existing_store import existing_store
from bermo_ray.command_line.output import show_table
from bermo_ray.tracking.store import RUNS, Store

if TYPE_CHECKING:
    from rich.table import Table

    from bermo_ray.results.cleaning import StoredCheckpoint


def disk(
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    storage: str | None = None,
    json: bool = False,
    parquet: Path | None = None,
) -> None:
    """Show what studies take on disk: checkpoints, MLflow's artifacts, tables; and the cache.

    Args:
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        storage: Folder or URI of the checkpoints, if not the one that a study was started with.
        json: Print JSON, in bytes.
        parquet: File to write instead, in bytes.
    """
    from bermo_ray.results.disk import measure_disk
    from bermo_ray.results.disk_text import disk_table

    existing_store(runs, tracking_uri)
    rows = measure_disk(Store(runs, tracking_uri, storage))
    show_table(rows, lambda: disk_table(rows), json, parquet)


def clean(
    study: Annotated[str, tyro.conf.Positional],
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    storage: str | None = None,
    all: bool = False,
    dry_run: bool = False,
) -> None:
    """Remove the checkpoints of a study's trials that are not on its frontier.

    Those on the frontier stay (where nothing is pruned, the best of each task, encoder and fusion),
    those that other trials have as a teacher or a start, and those of trials that have not ended.
    Records, predictions and tables all stay.

    Args:
        study: Name of the study.
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        storage: Folder or URI of the checkpoints, if not the one that the study was started with.
        all: Remove those on the frontier too.
        dry_run: Only tell what would be removed.
    """
    from rich.console import Console

    from bermo_ray.results.cleaning import judge_checkpoints, remove_checkpoints
    from bermo_ray.results.disk_text import format_bytes

    uri = existing_store(runs, tracking_uri)
    where = Store(runs, tracking_uri, storage).of_study(study)
    checkpoints = judge_checkpoints(study, where, keep_frontier=not all)
    removed = [c for c in checkpoints if not c.kept_because]
    if removed:
        Console(highlight=False).print(removed_table(removed))
    if not dry_run:
        remove_checkpoints(removed, uri)
    size = format_bytes(sum(c.size for c in removed))
    verb = "would remove" if dry_run else "removed"
    print(f"{study}: {verb} {len(removed)} of {len(checkpoints)} checkpoints, {size}")
    for reason, count in Counter(c.kept_because for c in checkpoints if c.kept_because).items():
        print(f"  kept {count}: {reason}")


def removed_table(checkpoints: "Sequence[StoredCheckpoint]") -> "Table":
    """Trials whose checkpoints go, as a rich table."""
    from rich.table import Table

    from bermo_ray.results.disk_text import format_bytes

    table = Table(box=None, pad_edge=False)
    table.add_column("trial", no_wrap=True)
    for name in ("remaining", "metric", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status")
    for c in checkpoints:
        remaining = "" if c.remaining is None else f"{c.remaining:.1%}"
        metric = "" if c.metric is None else f"{c.metric:.4f}"
        table.add_row(c.trial_id[:6], remaining, metric, format_bytes(c.size), str(c.status))
    return table

"""What studies take on disk, for people."""

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def format_bytes(count: int) -> str:
    """A number of bytes with two digits or more, in powers of 1000.

    >>> [format_bytes(n) for n in (0, 999, 1_234, 56_789_000, 2_000_000_000)]
    ['0 bytes', '999 bytes', '1.2 kB', '57 MB', '2.0 GB']
    """
    value, unit = float(count), 0
    while round(value) >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    shown = f"{value:.1f}" if unit and value < 9.95 else f"{value:.0f}"
    return f"{shown} {_UNITS[unit]}"


def disk_table(rows: pa.Table) -> Table:
    """What :func:`bermo_ray.results.disk.measure_disk` found, as a rich table: studies and their
    sum, then all else."""
    table = Table(box=None, pad_edge=False)
    parts = ("checkpoints", "artifacts", "tables", "total")
    table.add_column("")
    for name in ("models", *parts):
        table.add_column(name, justify="right", no_wrap=True)
    is_study = pc.equal(rows["kind"], "study")
    studies, others = rows.filter(is_study), rows.filter(pc.invert(is_study))
    for row in studies.to_pylist():
        sizes = (format_bytes(row[part]) if row[part] else "" for part in parts)
        table.add_row(row["name"], str(row["models"]), *sizes)
    sums = [pc.sum(studies[part]).as_py() or 0 for part in parts]
    models = pc.sum(studies["models"]).as_py() or 0
    table.add_row("all studies", str(models), *map(format_bytes, sums), end_section=True)
    for row in others.to_pylist():
        about = " (no study)" if row["kind"] == "no study" else ""
        about += "" if row["limit"] is None else f" (of {format_bytes(row['limit'])})"
        table.add_row(row["name"] + about, "", "", "", "", format_bytes(row["total"]))
    return table

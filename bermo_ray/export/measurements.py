"""The four measurements of a model: what is left, what it weighs, how fast it is."""

from dataclasses import dataclass

from bermo_ray.training.latency import SHAPE


@dataclass(frozen=True)
class ModelMeasurements:
    """What methods make smaller or faster, each for itself (docs/methods.md §2)."""

    nonzero_parameters: int
    dense_bytes: int  # the stock file
    compressed_bytes: int
    latency: float  # seconds for a batch of SHAPE


# (field, name in print, what it is divided by, its form)
_SHOWN = (
    ("nonzero_parameters", "non-zero parameters", 1, "{:,.0f}"),
    ("dense_bytes", "file, dense", 1e6, "{:.1f} MB"),
    ("compressed_bytes", "file, compressed", 1e6, "{:.1f} MB"),
    ("latency", f"latency of {SHAPE[0]} × {SHAPE[1]} pieces, CPU", 1e-3, "{:.1f} ms"),
)


def measurement_rows(before: ModelMeasurements, after: ModelMeasurements) -> list[list[str]]:
    """The four measurements for a table: name, before, after, ratio."""
    rows = []
    for field, name, unit, form in _SHOWN:
        old, new = getattr(before, field), getattr(after, field)
        rows.append([name, form.format(old / unit), form.format(new / unit), f"{new / old:.2f}"])
    return rows

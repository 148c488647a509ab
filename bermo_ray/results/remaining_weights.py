"""Remaining weights of arms whose sparsity a penalty decides, each at the λ that was set."""

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.results.means import select, values_by_seed
from bermo_ray.results.verdicts import Estimate, compare_by_seed, compare_ratio


def compare_remaining(table: pa.Table, first: str, second: str) -> Estimate:
    """The second fusion's remaining weights over the first's, whatever their metrics are; see
    :func:`bermo_ray.results.verdicts.compare_ratio`.

    Args:
        table: Trials of one task and method.
        first: The fusion that is compared with.
        second: The fusion that is compared.
    """
    shares = [values_by_seed(select(table, fusion=arm), "remaining") for arm in (first, second)]
    return compare_ratio(*shares)


def describe_point(table: pa.Table, first: str, second: str) -> str:
    """At which λ two fusions were pruned, and how far apart their metrics are: "the same λ (50),
    where bermo's metric is 0.40 points below last's"; arguments as of :func:`compare_remaining`."""
    used = [
        sorted(set(select(table, fusion=arm)["multiplier"].to_pylist())) for arm in (first, second)
    ]
    one, other = (", ".join(f"{number:g}" for number in numbers) for numbers in used)
    at = f"the same λ ({one})" if one == other else f"λ {one} ({first}) and {other} ({second})"
    try:
        apart = compare_by_seed(table, "fusion", first, second).value
    except UserError:  # the comparison of weights says it
        return at
    side = "above" if apart >= 0 else "below"
    return f"{at}, where {second}'s metric is {abs(apart):.2f} points {side} {first}'s"

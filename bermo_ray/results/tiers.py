"""Who leads in tiers of languages: depth-wise attention, Figure 9."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.means import REPORTED, select, values_by_seed
from bermo_ray.results.verdicts import Claim, Verdict, compare_means, judge

LOW = "low"  # the tier of which a lead is claimed
MARGIN = 1.0  # points within which fusions do not lead in other tiers
_FUSED = ("concat", "dwatt")


def with_tiers(table: pa.Table, tiers: Mapping[str, Sequence[str]]) -> pa.Table:
    """The trials with the tier of their task."""
    tier_of = {task: tier for tier, tasks in tiers.items() for task in tasks}
    values = [tier_of.get(task) for task in table["task"].to_pylist()]
    return table.append_column("tier", pa.array(values, pa.string()))


def judge_tier(table: pa.Table, tier: str, where: str, value: str = REPORTED) -> Verdict:
    """By how much Concat and DWAtt, on the mean, lead extra layers in a tier: of each seed the mean
    over its languages. Of the low tier the paper says that they do, of others that they do not.

    Args:
        table: Trials with :func:`with_tiers`.
        tier: Its name.
        where: As of :func:`bermo_ray.results.verdicts.judge`.
        value: What is compared.
    """
    is_low = tier == LOW
    lead = "lead extra layers slightly" if is_low else "do not lead extra layers"
    claim = Claim(
        f"Concat and DWAtt {lead} in the {tier} tier",
        source="DWAtt, Figure 9",
        quantity="Concat and DWAtt are better than extra layers by",
        expects="more" if is_low else "same",
        margin=0.0 if is_low else MARGIN,
    )
    rows = select(table, tier=tier)
    fused = rows.filter(pc.is_in(rows["fusion"], pa.array(_FUSED)))
    first, second = (
        values_by_seed(arm, value, over=("task", "fusion"))
        for arm in (select(rows, fusion="extra_layers"), fused)
    )
    return judge(claim, f"{where}, {tier} tier", compare_means, first, second, scale=100)

"""Arms compared at sizes, at levels and by area, by hand."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import ttest_ind

from bermo_ray.errors import UserError
from bermo_ray.results import (
    compare_areas,
    compare_arms,
    efficiency,
    metric_at_sizes,
    remaining_at_levels,
)
from bermo_ray.results.schemas import AREAS, LEVELS, RATIOS, SIZES
from tests.support.result_rows import seeded

T_OF_1 = 12.706205  # Student's t, one degree of freedom, two-sided 95 %
COLUMNS: dict[str, Any] = {"task": "t", "backbone": "b", "method": "l0"}


def arm(
    fusion: str,
    rows: Sequence[tuple[Any, ...]],
    dense: Sequence[tuple[Any, ...]] = (),
    **columns: Any,
) -> pa.Table:
    """(seed, remaining, metric_selection, metric_reported) of pruned trials, each with a recipe of
    its own, and (seed, metric_selection, metric_reported) of the dense baseline."""
    columns = COLUMNS | {"fusion": fusion} | columns
    pruned = seeded([(f"{fusion}{i}", *row) for i, row in enumerate(rows)], **columns)
    baseline = [(f"{fusion} dense", seed, 1.0, *metrics) for seed, *metrics in dense]
    return pa.concat_tables([seeded(baseline, **columns | {"method": "dense"}), pruned])


def test_each_seeds_own_choice_at_a_size() -> None:
    rows = arm(
        "last",
        [(0, 0.1, 0.7, 0.60), (0, 0.3, 0.9, 0.80), (0, 0.2, 0.6, 0.95), (1, 0.2, 0.8, 0.70)],
        dense=[(0, 0.85, 0.90), (1, 0.95, 0.92)],
    )
    sizes = metric_at_sizes(rows, (0.05, 0.1, 0.25, 1.0))
    assert sizes.schema == SIZES
    none, one, both, all_weights = sizes.to_pylist()
    assert (none["metric_reported"], none["interval"], none["unreached"]) == (None, None, 2)
    assert (one["metric_reported"], one["interval"], one["unreached"]) == (None, None, 1)
    # 0.60 and 0.70; the 20 % of the first seed lost where it counts.
    assert both["metric_reported"] == pytest.approx(0.65)
    assert both["interval"] == pytest.approx(T_OF_1 * 0.05)
    assert (both["seeds"], both["unreached"], both["size"]) == (2, 0, 0.25)
    # The first seed takes its 30 %, as its dense model is worse on the first half: 0.80 and 0.92.
    assert all_weights["metric_reported"] == pytest.approx(0.86)
    assert all_weights["interval"] == pytest.approx(T_OF_1 * 0.06)
    assert (all_weights["task"], all_weights["fusion"]) == ("t", "last")


def test_sizes_of_other_groups_and_of_one_seed() -> None:
    rows = pa.concat_tables([arm("last", [(0, 0.1, 0.7)]), arm("bermo", [(0, 0.2, 0.8)])])
    sizes = metric_at_sizes(rows, [0.1], by=["fusion"])
    assert sizes.column_names == ["fusion", *SIZES.names[3:]]
    last, bermo = sizes.to_pylist()
    assert (last["metric_reported"], last["interval"], last["seeds"]) == (0.7, None, 1)
    assert (bermo["metric_reported"], bermo["unreached"]) == (None, 1)
    assert metric_at_sizes(rows.slice(0, 0), [0.1]).num_rows == 0


# Two arms of two seeds. The dense baselines report 0.8 and, chosen by 0.95, 0.9: the reference.
DENSE = {"last": [(0, 0.9, 0.80), (1, 0.9, 0.80)], "bermo": [(0, 0.95, 0.90), (1, 0.95, 0.90)]}
LAST = arm(
    "last",
    [(0, 0.1, 0.6, 0.6), (0, 0.4, 0.8, 0.8), (1, 0.05, 0.6, 0.6), (1, 0.2, 0.8, 0.8)],
    DENSE["last"],
    constant_metric=0.5,
)
BERMO = arm("bermo", [(0, 0.05, 0.7, 0.7), (1, 0.1, 0.7, 0.7)], DENSE["bermo"], constant_metric=0.5)
BOTH = pa.concat_tables([LAST, BERMO])


def test_remaining_weights_at_shares_of_the_better_dense_baseline() -> None:
    levels = remaining_at_levels(BOTH, shares=(7 / 9, 8.5 / 9))
    assert levels.schema == LEVELS
    last, bermo, last_above, bermo_above = levels.to_pylist()
    assert (last["arm"], last["share"], last["seeds"]) == ("last", 7 / 9, 2)
    assert last["level"] == pytest.approx(0.7)
    # Half of the way in logs: 0.2 in seed 0, 0.1 in seed 1; logs are log 2 apart.
    assert last["remaining"] == pytest.approx(math.sqrt(0.02))
    half_width = T_OF_1 * math.log(2) / 2
    assert last["low"] == pytest.approx(math.sqrt(0.02) * math.exp(-half_width))
    assert last["high"] == pytest.approx(math.sqrt(0.02) * math.exp(half_width))
    assert bermo["remaining"] == pytest.approx(math.sqrt(0.005))
    assert last_above["level"] == pytest.approx(0.85)
    assert (last_above["remaining"], last_above["low"], last_above["unreached"]) == (None, None, 2)
    # Up to its dense baseline: 0.15 of 0.2 from 0.05 and 0.1 to 1, in logs.
    assert bermo_above["remaining"] == pytest.approx(math.sqrt(0.05**0.25 * 0.1**0.25))
    one_seed = remaining_at_levels(LAST.filter(pa.compute.equal(LAST["seed"], 0)), [0.875])
    (row,) = one_seed.to_pylist()
    assert row["remaining"] == pytest.approx(0.2)
    assert (row["low"], row["high"], row["seeds"]) == (None, None, 1)


def test_the_reference_is_chosen_on_one_half_and_measured_on_the_other() -> None:
    worse_on_the_other = arm("bermo", [], dense=[(0, 0.95, 0.7), (1, 0.95, 0.9)])
    rows = pa.concat_tables([LAST, worse_on_the_other])
    assert remaining_at_levels(rows, [0.5])["level"].to_pylist() == pytest.approx([0.4, 0.4])
    better_on_the_other = arm("bermo", [], dense=[(0, 0.85, 1.0), (1, 0.85, 1.0)])
    rows = pa.concat_tables([LAST, better_on_the_other])
    assert remaining_at_levels(rows, [0.5])["level"].to_pylist() == pytest.approx([0.4, 0.4])


def test_ratios_have_welchs_interval_on_logs_and_swap_to_the_reciprocal() -> None:
    ratios = compare_arms(BOTH, shares=(7 / 9,))
    assert ratios.schema == RATIOS
    (row,) = ratios.to_pylist()
    logs = np.log([[0.2, 0.1], [0.05, 0.1]])
    interval = ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    assert (row["first"], row["second"], row["seeds"]) == ("last", "bermo", 2)
    assert row["ratio"] == pytest.approx(2.0)
    assert (row["low"], row["high"]) == pytest.approx(tuple(np.exp(interval)))
    (swapped,) = compare_arms(BOTH, shares=(7 / 9,), arms=("bermo", "last")).to_pylist()
    assert (swapped["first"], swapped["second"]) == ("bermo", "last")
    assert swapped["ratio"] * row["ratio"] == pytest.approx(1, abs=1e-12)
    assert swapped["low"] * row["high"] == pytest.approx(1, abs=1e-12)
    assert swapped["high"] * row["low"] == pytest.approx(1, abs=1e-12)


def test_a_level_that_seeds_do_not_reach_has_no_ratio() -> None:
    shares = (8.5 / 9, 9.5 / 9)
    above, beyond = compare_arms(BOTH, shares).to_pylist()
    assert (above["ratio"], above["low"], above["high"]) == (None, None, None)
    assert (above["unreached_first"], above["unreached_second"]) == (2, 0)
    assert (beyond["unreached_first"], beyond["unreached_second"]) == (2, 2)
    (above, _) = compare_arms(BOTH, shares, arms=("bermo", "last")).to_pylist()
    assert (above["unreached_first"], above["unreached_second"]) == (0, 2)


def test_three_arms_are_two_pairs_and_one_arm_is_none() -> None:
    third = arm("all", [(0, 0.1, 0.9, 0.9), (1, 0.1, 0.9, 0.9)], DENSE["last"])
    rows = compare_arms(pa.concat_tables([BOTH, third]), (7 / 9,)).to_pylist()
    assert [(r["first"], r["second"]) for r in rows] == [("last", "bermo"), ("last", "all")]
    assert rows[1]["ratio"] == pytest.approx(math.sqrt(0.02) / 0.1)
    assert compare_arms(LAST).num_rows == 0
    assert compare_areas(LAST).num_rows == 0


def test_methods_share_the_dense_baseline() -> None:
    columns = {"task": "t", "backbone": "b", "fusion": "last"}
    rows = pa.concat_tables([
        seeded([("d", s, 1.0, 0.9) for s in (0, 1)], method="dense", **columns),
        seeded([(f"l{s}", s, 0.2, 0.9) for s in (0, 1)], method="l0", **columns),
        seeded([(f"m{s}", s, 0.1, 0.7) for s in (0, 1)], method="movement", **columns),
    ])  # fmt: skip
    (row,) = compare_arms(rows, (8 / 9,), arm="method").to_pylist()
    assert (row["first"], row["second"]) == ("l0", "movement")
    assert row["ratio"] == pytest.approx(0.2 / math.sqrt(0.1))  # half way from 10 % to dense


def test_the_difference_in_area_over_the_range_that_all_curves_share() -> None:
    both = pa.concat_tables([BOTH, arm("bermo", [(0, 0.5, 0.8, 0.8)], constant_metric=0.5)])
    areas = compare_areas(both)
    assert areas.schema == AREAS
    (row,) = areas.to_pylist()
    # Sparsest are 0.1, 0.05, 0.05 and 0.1: from 10 % on. 0.1, 0.3 and 0.2 of 0.4 on the way up.
    last = [
        (0.25 * math.log(4) + 0.75 * math.log(2.5)) / math.log(10),
        (0.25 * math.log(2) + 0.75 * math.log(5)) / math.log(10),
    ]
    bermo = [(0.5 * math.log(5) + 0.75 * math.log(2)) / math.log(10), 0.5]
    assert (row["sparsest"], row["reference"], row["seeds"]) == (0.1, pytest.approx(0.9), 2)
    assert row["area_first"] == pytest.approx(np.mean(last))
    assert row["area_second"] == pytest.approx(np.mean(bermo))
    assert row["difference"] == pytest.approx(np.mean(bermo) - np.mean(last))
    interval = ttest_ind(bermo, last, equal_var=False).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx(tuple(interval))
    (swapped,) = compare_areas(both, arms=("bermo", "last")).to_pylist()
    assert swapped["difference"] == pytest.approx(-row["difference"], abs=1e-12)
    assert (swapped["low"], swapped["high"]) == pytest.approx((-row["high"], -row["low"]))


def test_curves_that_share_no_range_have_no_difference() -> None:
    diverged = arm("bermo", [(0, 0.1, 0.5), (1, 0.1, 0.5)], status="diverged")
    (row,) = compare_areas(pa.concat_tables([LAST, diverged])).to_pylist()
    assert (row["difference"], row["low"], row["area_first"]) == (None, None, None)
    assert (row["unreached_first"], row["unreached_second"]) == (0, 2)
    only_dense = arm("bermo", [], DENSE["bermo"], constant_metric=0.5)
    (row,) = compare_areas(pa.concat_tables([LAST, only_dense])).to_pylist()
    assert (row["difference"], row["unreached_second"]) == (None, 0)


@pytest.mark.parametrize("compare", [compare_arms, compare_areas])
def test_what_cannot_be_compared_is_one_line(compare: Any) -> None:
    def first_seed(table: pa.Table) -> pa.Table:
        return table.filter(pa.compute.equal(table["seed"], 0))

    def line(table: pa.Table, **settings: Any) -> str:
        with pytest.raises(UserError) as caught:
            compare(table, **settings)
        (problem,) = caught.value.problems
        return problem

    assert line(first_seed(BOTH)) == "seeds: one seed gives no interval; give two or more"
    lacking = pa.concat_tables([LAST, first_seed(BERMO)])
    assert line(lacking) == "seeds: one has 0, 1, the other 0; compare what was run with the same"
    failed = pa.concat_tables([LAST, arm("bermo", [(0, 0.1, 0.9)], status="failed")])
    assert line(failed) == "seeds: one has 0, 1, the other none; compare what was run with the same"
    pruned = BOTH.filter(pa.compute.equal(BOTH["method"], "l0"))
    assert line(pruned) == "reference: no dense baseline completed, of which a level is a share"
    tasks = pa.concat_tables([LAST, arm("bermo", [(0, 0.1, 0.9)], task="u")])
    assert line(tasks) == "task: got t, u; compare arms of one"
    assert line(BOTH, arms=("last", "brmo")) == "unknown fusion 'brmo': did you mean bermo?"
    assert line(BOTH, arm="fusoin") == "unknown column 'fusoin': did you mean fusion?"


def test_efficiency_is_the_ratio_along_both_frontiers() -> None:
    first = seeded([("a", 0, 0.2, 0.7), ("b", 0, 0.8, 0.9)])
    second = seeded([("c", 0, 0.1, 0.7), ("d", 0, 0.4, 0.9), ("e", 0, 0.5, 0.6)])
    result = efficiency(first, second, 0.8)
    assert result.ratio == pytest.approx(0.4 / 0.2)
    assert (result.seeds, result.unreached_first, result.unreached_second) == (1, 0, 0)
    assert math.isnan(result.low)
    beyond = efficiency(first, second, 0.95)
    assert math.isnan(beyond.ratio)
    assert (beyond.unreached_first, beyond.unreached_second) == (1, 1)


def test_efficiency_is_chosen_on_one_half_and_measured_on_the_other() -> None:
    # 5 % is not on the frontier: it is no better than 2 % where it counts, whatever it reports.
    first = seeded([("a", 0, 0.02, 0.7, 0.6), ("b", 0, 0.05, 0.7, 0.9), ("c", 0, 0.4, 0.8, 0.85)])
    second = seeded([("d", 0, 0.2, 0.9, 0.85)])
    assert efficiency(first, second, 0.85).ratio == pytest.approx(2.0)


def test_the_interval_is_welchs_on_the_logs_of_each_seed() -> None:
    sizes = {0: (0.2, 0.1), 1: (0.4, 0.12), 2: (0.3, 0.11)}
    first = seeded([("a", seed, a, 0.8) for seed, (a, _) in sizes.items()])
    second = seeded([("b", seed, b, 0.8) for seed, (_, b) in sizes.items()])
    result = efficiency(first, second, 0.8)
    a, b = np.log(list(sizes.values())).T
    assert result.ratio == pytest.approx(math.exp(a.mean() - b.mean()))
    interval = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx(tuple(np.exp(interval)))
    assert result.seeds == 3
    swapped = efficiency(second, first, 0.8)
    assert (swapped.ratio, swapped.low, swapped.high) == pytest.approx(
        (1 / result.ratio, 1 / result.high, 1 / result.low), abs=1e-12
    )


def test_each_seed_has_a_frontier_and_recipes_of_its_own() -> None:
    """By hand: at 0.8 the first seed lies half way between 0.2 and 0.8, the other at 0.1."""
    rows = [("a", 0, 0.2, 0.7), ("b", 0, 0.8, 0.9), ("c", 1, 0.1, 0.8), ("d", 1, 0.5, 0.75)]
    other = seeded([("e", 0, 0.1, 0.8), ("f", 1, 0.1, 0.8)])
    result = efficiency(seeded(rows), other, 0.8)
    assert result.ratio == pytest.approx(math.sqrt(0.4 * 0.1) / 0.1)


def test_a_seed_that_does_not_get_there_is_the_answer() -> None:
    first = seeded([("a", 0, 0.2, 0.9), ("a", 1, 0.2, 0.7)])
    second = seeded([("b", 0, 0.1, 0.9), ("b", 1, 0.1, 0.9)])
    result = efficiency(first, second, 0.8)
    assert math.isnan(result.ratio)
    assert (result.seeds, result.unreached_first, result.unreached_second) == (2, 1, 0)


def test_sets_with_different_seeds_are_one_line() -> None:
    first = seeded([("a", 0, 0.2, 0.8), ("a", 1, 0.2, 0.8)])
    with pytest.raises(UserError, match="^seeds: one has 0, 1, the other 0; compare what was"):
        efficiency(first, seeded([("b", 0, 0.1, 0.8)]), 0.8)
    with pytest.raises(UserError, match="the other none"):
        efficiency(first, seeded([]), 0.8)


@pytest.mark.parametrize("count", [3, 5])
def test_a_95_percent_interval_covers_the_truth_as_often(count: int) -> None:
    """The true ratio is 1.5; noise of 20 % on every seed's size. A percentile bootstrap over so
    few seeds covered 70 and 87 %."""
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        sets = []
        for name, size in (("a", 0.3), ("b", 0.2)):
            noise = np.exp(0.2 * random.standard_normal(count))
            rows = [
                (f"{name}{r}", s, size * r * noise[s], 0.6 + 0.2 * r)
                for s in range(count)
                for r in (1, 2)
            ]
            sets.append(seeded(rows))
        result = efficiency(*sets, 0.8)
        covered += result.low <= 1.5 <= result.high
    assert 0.92 <= covered / 400 <= 0.98

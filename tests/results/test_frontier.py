import math
import random
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import (
    SCHEMA,
    average_seeds,
    frontier,
    hypervolume,
    non_dominated,
)
from bermo_ray.results.frontier import GROUP, dense_levels
from tests.support.result_rows import points, result_table, seeded


def table(*rows: tuple[str, str, float | None, float | None]) -> pa.Table:
    """(fusion, status, remaining, metric_selection); trial_id counts up. What is reported falls
    where that rises, and must not matter."""
    base = {"task": "t", "backbone": "b", "method": "l0"}
    return result_table(
        *(
            base
            | {"fusion": f, "status": s, "remaining": r, "trial_id": str(i)}
            | {"metric_selection": m, "metric_verification": None if m is None else 1 - m}
            for i, (f, s, r, m) in enumerate(rows)
        )
    )


def ids(rows: pa.Table) -> list[str]:
    return frontier(rows)["trial_id"].to_pylist()


def test_only_the_non_dominated_stay_from_sparse_to_dense() -> None:
    rows = table(
        ("last", "completed", 0.5, 0.90),
        ("last", "completed", 0.4, 0.92),  # smaller and better than the one before
        ("last", "completed", 0.2, 0.80),
        ("last", "completed", 0.3, 0.80),  # larger, no better
        ("last", "completed", 0.9, 0.95),
    )
    assert ids(rows) == ["2", "1", "4"]


def test_groups_do_not_dominate_each_other() -> None:
    rows = table(
        ("bermo", "completed", 0.5, 0.5),
        ("last", "completed", 0.1, 0.99),
        ("bermo", "completed", 0.6, 0.4),
    )
    assert ids(rows) == ["0", "1"]


def test_of_equals_one_stays() -> None:
    rows = table(("last", "completed", 0.5, 0.9), ("last", "completed", 0.5, 0.9))
    assert len(ids(rows)) == 1
    same_size = table(("last", "completed", 0.5, 0.9), ("last", "completed", 0.5, 0.95))
    assert ids(same_size) == ["1"]


def test_rows_that_did_not_complete_or_lack_a_number_are_left_out() -> None:
    rows = table(
        ("last", "diverged", 0.01, 0.99),
        ("last", "failed", None, None),
        ("last", "completed", float("nan"), 0.9),
        ("last", "completed", 0.3, None),
        ("last", "running", 0.3, 0.9),
        ("last", "completed", 0.3, 0.7),
    )
    assert ids(rows) == ["5"]
    assert frontier(rows).schema == SCHEMA
    assert frontier(rows.slice(0, 2)).num_rows == 0
    assert frontier(SCHEMA.empty_table()).num_rows == 0


def test_it_agrees_with_the_definition_on_random_rows() -> None:
    random.seed(0)
    rows = [
        (random.choice("ab"), "completed", random.randrange(20) / 20, random.randrange(20) / 20)
        for _ in range(300)
    ]
    kept = {
        (r["fusion"], r["remaining"], r["metric_selection"])
        for r in frontier(table(*rows)).to_pylist()
    }
    expected = {
        (f, r, m)
        for f, _, r, m in rows
        if not any(g == f and x <= r and y >= m and (x < r or y > m) for g, _, x, y in rows)
    }
    assert kept == expected


def test_each_seed_may_have_a_frontier_of_its_own() -> None:
    rows = seeded([("a", 0, 0.2, 0.8), ("b", 1, 0.1, 0.9), ("c", 1, 0.3, 0.85)], method="l0")
    assert frontier(rows)["recipe"].to_pylist() == ["b"]
    assert frontier(rows, by=(*GROUP, "seed"))["recipe"].to_pylist() == ["a", "b"]


def test_what_wins_on_one_half_is_reported_with_the_other() -> None:
    rows = points((0.5, 0.90, 0.80), (0.5, 0.85, 0.95))
    assert frontier(rows)["metric_reported"].to_pylist() == [0.80]


def with_dense(
    pruned: list[tuple[float, ...]],
    dense: float | tuple[float, float],
    constant: float,
    **columns: Any,
) -> pa.Table:
    """Points of one group and its dense baseline, all with the same constant answer; two numbers of
    the baseline are for selection and reported."""
    common = {"constant_metric": constant} | columns
    halves = dense if isinstance(dense, tuple) else (dense, dense)
    baseline = points((1.0, *halves), **common | {"method": "dense", "recipe": "dense"})
    return pa.concat_tables([points(*pruned, **common), baseline])


def areas(table: pa.Table, **settings: Any) -> dict[str, float | None]:
    """Fusion -> hypervolume of its pruned trials."""
    rows = hypervolume(table, **settings).to_pylist()
    return {row["fusion"]: row["hypervolume"] for row in rows if row["method"] != "dense"}


def test_hypervolume_by_hand() -> None:
    table = with_dense([(0.1, 0.7), (0.5, 0.9), (0.6, 0.8)], dense=0.9, constant=0.5)
    # 0.7 is half of the way from 0.5 to 0.9 and holds from 10 % to 50 %; behind it, 0.9 holds.
    expected = (0.5 * math.log(5) + 1.0 * math.log(2)) / math.log(100)
    assert areas(table) == pytest.approx({"last": expected})
    (row,) = (row for row in hypervolume(table).to_pylist() if row["method"] == "l0")
    assert row["trials"] == 2


def test_hypervolume_follows_the_steps_that_selection_chose_with_what_they_report() -> None:
    # At 10 % 0.7 is chosen and 0.6 reported, at 50 % 0.9 and 0.8; 20 % is worse where it counts,
    # although it would report more. The baseline reports 0.9.
    table = with_dense([(0.1, 0.7, 0.6), (0.2, 0.65, 0.9), (0.5, 0.9, 0.8)], (1.0, 0.9), 0.5)
    expected = (0.25 * math.log(5) + 0.75 * math.log(2)) / math.log(100)
    assert areas(table) == pytest.approx({"last": expected})


def test_each_seed_may_have_a_hypervolume_of_its_own() -> None:
    columns = {"task": "t", "backbone": "b", "fusion": "last", "constant_metric": 0.5}
    dense = seeded([("d", 0, 1.0, 0.8), ("d", 1, 1.0, 1.0)], method="dense", **columns)
    pruned = seeded([("a", 0, 0.1, 0.7), ("b", 1, 0.01, 0.9)], method="l0", **columns)
    lost = seeded([("c", 2, 0.1, 0.5)], method="l0", **columns | {"status": "diverged"})
    rows = hypervolume(pa.concat_tables([dense, pruned, lost]), by=(*GROUP, "seed")).to_pylist()
    # The baseline is the mean of both seeds, 0.9; nothing is left of the seed that diverged.
    found = {r["seed"]: (r["hypervolume"], r["trials"]) for r in rows if r["method"] == "l0"}
    assert found == {0: (pytest.approx(0.25), 1), 1: (pytest.approx(1.0), 1), 2: (0.0, 0)}


def test_hypervolume_has_fixed_ends() -> None:
    dense_at_one_per_cent = with_dense([(0.01, 0.9)], dense=0.9, constant=0.5)
    assert areas(dense_at_one_per_cent) == pytest.approx({"last": 1.0})
    sparser_still = with_dense([(0.002, 0.9), (0.001, 0.7)], dense=0.9, constant=0.5)
    assert areas(sparser_still) == pytest.approx({"last": 1.0})
    assert areas(with_dense([(1.0, 0.9)], dense=0.9, constant=0.5)) == pytest.approx({"last": 0.0})
    # A constant answer is worth nothing, however few weights it takes; better than dense is more.
    assert areas(with_dense([(0.01, 0.5)], dense=0.9, constant=0.5)) == {"last": 0.0}
    better = with_dense([(0.01, 0.94)], dense=0.9, constant=0.5)
    assert areas(better) == pytest.approx({"last": 1.1})
    assert hypervolume(SCHEMA.empty_table()).num_rows == 0


def test_hypervolume_needs_a_dense_baseline_and_a_constant_answer() -> None:
    alone = points((0.1, 0.9), constant_metric=0.5)
    assert areas(alone) == {"last": None}
    assert areas(alone, dense=0.9) == pytest.approx({"last": 0.5})
    assert areas(alone, dense=0.5) == {"last": None}  # no way from constant to dense
    assert areas(points((0.1, 0.9)), dense=0.9) == {"last": None}
    # Each fusion has its own baseline; another's is none.
    bermo = with_dense([(0.1, 0.7)], dense=0.7, constant=0.5, fusion="bermo")
    assert areas(pa.concat_tables([alone, bermo])) == pytest.approx({"last": None, "bermo": 0.5})


def test_the_dense_baseline_is_a_mean_over_seeds_of_a_model_with_all_weights() -> None:
    def dense(recipe: str, seed: int, metric: float, remaining: float = 1.0) -> pa.Table:
        columns = {"method": "dense", "recipe": recipe, "seed": seed, "constant_metric": 0.5}
        return points((remaining, metric), **columns)

    pruned = points((0.1, 0.9), constant_metric=0.5)
    seeds = [dense("a", 0, 0.8), dense("a", 1, 1.0), dense("a", 1, 1.0)]  # seed 1 was run twice
    assert areas(pa.concat_tables([pruned, *seeds])) == pytest.approx({"last": 0.5})
    lucky = dense("b", 0, 1.0)  # one seed is no match for a mean of two
    shortened = [dense("c", seed, 1.0, remaining=0.5) for seed in range(3)]
    table = pa.concat_tables([pruned, *seeds, lucky, *shortened])
    assert areas(table) == pytest.approx({"last": 0.5})
    averaged = average_seeds(pa.concat_tables([pruned, *seeds, lucky]))
    assert areas(averaged) == pytest.approx({"last": 0.5})
    tuned = [dense("d", 0, 0.6), dense("d", 1, 0.6)]  # a worse learning rate of the baseline
    assert areas(pa.concat_tables([pruned, *seeds, *tuned])) == pytest.approx({"last": 0.5})


def test_of_several_dense_baselines_selection_takes_one_and_reports_the_other_half() -> None:
    rows = seeded(
        [("a", 0, 1.0, 0.9, 0.7), ("a", 1, 1.0, 0.8, 0.6), ("b", 0, 1.0, 0.8, 0.9),
         ("b", 1, 1.0, 0.7, 0.9), ("c", 0, 1.0, 1.0, 1.0), ("shorter", 0, 0.5, 1.0, 1.0),
         ("shorter", 1, 0.5, 1.0, 1.0)],
        method="dense", task="t", backbone="b", fusion="last",
    )  # fmt: skip
    assert dense_levels(rows) == pytest.approx([0.85] * 7)
    assert dense_levels(rows, column="metric_reported") == pytest.approx([0.65] * 7)
    by_seed = dense_levels(rows, (*GROUP, "seed"), "metric_reported")
    assert by_seed == pytest.approx([0.65] * 7)  # one baseline for all seeds
    equal = seeded([("a", 0, 1.0, 0.9, 0.7), ("b", 0, 1.0, 0.9, 0.8)], method="dense")
    assert dense_levels(equal, (), "metric_reported") == pytest.approx([0.7, 0.7])  # the first


def test_what_is_hardly_better_than_a_constant_answer_is_no_point_of_a_frontier() -> None:
    """BERMo's 0.524 on a task of two classes, 250 rows each; its dense baseline has 0.93."""
    table = with_dense([(0.137, 0.524), (0.341, 0.93), (0.9, 0.96)], dense=0.93, constant=0.5)
    kept = frontier(table)
    assert kept["metric_selection"].to_pylist() == [0.93, 0.93, 0.96]
    assert kept.schema == SCHEMA
    # The margin is a tenth of the way from 0.5 to 0.93: 0.543.
    for metric, count in ((0.542, 0), (0.544, 1)):
        pruned = frontier(with_dense([(0.1, metric)], dense=0.93, constant=0.5))
        assert pruned["method"].to_pylist() == ["dense"] + ["l0"] * count
    # Without a baseline it is of the way to the best: 0.5 + 0.04.
    alone = points((0.1, 0.539), (0.2, 0.541), (0.3, 0.9), constant_metric=0.5)
    assert frontier(alone)["metric_selection"].to_pylist() == [0.541, 0.9]
    unjudged = frontier(points((0.1, 0.539), (0.3, 0.9)))
    assert unjudged["metric_selection"].to_pylist() == [0.539, 0.9]
    assert frontier(points((0.1, 0.5), constant_metric=0.5)).num_rows == 0
    # A baseline that is no better than a constant answer leaves what is better than that.
    hopeless = with_dense([(0.1, 0.5), (0.2, 0.51)], dense=0.4, constant=0.5)
    assert frontier(hopeless)["metric_selection"].to_pylist() == [0.51]
    # The half that chooses decides, not the one that is reported.
    lucky = with_dense([(0.1, 0.542, 0.9), (0.2, 0.544, 0.5)], dense=0.93, constant=0.5)
    assert frontier(lucky)["remaining"].to_pylist() == [1.0, 0.2]


def test_a_frontier_needs_no_more_columns_than_it_reads() -> None:
    metrics = {"metric_selection": [0.5, 0.4], "metric_reported": [0.4, 0.5]}
    rows = pa.table({"status": ["completed"] * 2, "remaining": [0.1, 0.2]} | metrics)
    assert frontier(rows, by=())["metric_reported"].to_pylist() == [0.4]


def test_any_number_of_objectives_by_the_definition() -> None:
    random.seed(1)
    cells = [[random.randrange(6) for _ in range(3)] for _ in range(200)]
    rows = pa.table({
        "status": ["completed"] * 200,
        "remaining": [float(c[0]) for c in cells],
        "metric": [float(c[1]) for c in cells],
        "latency": [float(c[2]) for c in cells],
    })  # fmt: skip
    kept = non_dominated(rows, {"remaining": "min", "metric": "max", "latency": "min"})
    efficient = {tuple(r[k] for k in ("remaining", "metric", "latency")) for r in kept.to_pylist()}

    def beats(a: list[int], b: list[int]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a[2] <= b[2] and a != b

    assert efficient == {tuple(map(float, c)) for c in cells if not any(beats(o, c) for o in cells)}
    assert kept.num_rows == len(efficient), "equal rows stay once"
    with pytest.raises(UserError, match="unknown column 'metrc'"):
        non_dominated(rows, {"metrc": "max"})


def test_ties_keep_nothing_that_is_beaten() -> None:
    random.seed(3)
    for _ in range(300):
        cells = [[random.randrange(4) for _ in range(3)] for _ in range(10)]
        rows = pa.table({
            "status": ["completed"] * 10, "index": range(10),
            "remaining": [float(c[0]) for c in cells], "metric": [float(c[1]) for c in cells],
            "latency": [float(c[2]) for c in cells],
        })  # fmt: skip
        kept = non_dominated(rows, {"remaining": "min", "metric": "max", "latency": "min"})
        for i in kept["index"].to_pylist():
            a = cells[i]
            assert not any(b[0] <= a[0] and b[1] >= a[1] and b[2] <= a[2] and b != a for b in cells)
    assert non_dominated(rows.slice(0, 0), {"metric": "max"}).num_rows == 0


def test_means_over_seeds() -> None:
    three = [("a", 0, 0.2, 0.8), ("b", 0, 0.5, 0.9), ("a", 1, 0.4, 0.6), ("a", 2, 0.3, 0.7)]
    rows = seeded(three, method="l0")
    broken = seeded([("a", 3, 0.1, 0.9)], status="diverged", method="l0")
    merged = average_seeds(pa.concat_tables([rows, broken])).to_pylist()
    by_recipe = {r["recipe"]: r for r in merged}
    assert (by_recipe["a"]["seeds"], by_recipe["b"]["seeds"]) == (3, 1)
    assert by_recipe["a"]["metric"] == pytest.approx(0.7)
    assert by_recipe["a"]["remaining"] == pytest.approx(0.3)
    assert by_recipe["a"]["reported_sd"] == pytest.approx(0.1)
    assert by_recipe["b"]["reported_sd"] is None
    assert by_recipe["a"]["reported_interval"] == pytest.approx(4.302653 * 0.1 / 3**0.5)  # t of 2
    assert by_recipe["b"]["reported_interval"] is None


def test_means_and_intervals_over_seeds_are_of_what_is_reported() -> None:
    rows = [("a", 0, 0.2, 0.8, 0.6), ("a", 1, 0.2, 0.9, 0.4)]
    (merged,) = average_seeds(seeded(rows)).to_pylist()
    means = [merged[name] for name in ("metric", "metric_selection", "metric_reported")]
    assert means == pytest.approx([0.675, 0.85, 0.5])
    assert merged["reported_sd"] == pytest.approx(0.2 / 2**0.5)


def test_the_same_seed_run_twice_counts_once() -> None:
    twice = [("a", 0, 0.2, 0.8), ("a", 1, 0.4, 0.6), ("a", 0, 0.2, 0.8), ("a", 0, 0.2, 0.8)]
    (merged,) = average_seeds(seeded(twice, method="l0", constant_metric=0.5)).to_pylist()
    assert merged["seeds"] == 2
    assert merged["metric"] == pytest.approx(0.7)
    assert merged["remaining"] == pytest.approx(0.3)
    assert merged["reported_sd"] == pytest.approx(0.1 * 2**0.5)
    assert merged["reported_interval"] == pytest.approx(12.706205 * 0.1)  # t of 1 degree of freedom
    first_run = seeded([("a", 0, 0.2, 0.8)], run_id="first")
    second_run = seeded([("a", 0, 0.2, 0.7)], run_id="second")
    (merged,) = average_seeds(pa.concat_tables([first_run, second_run])).to_pylist()
    assert (merged["run_id"], merged["metric"], merged["seeds"]) == ("first", 0.8, 1)
    assert merged["reported_interval"] is None


def test_constant_answers_are_averaged_with_the_metric() -> None:
    halves = [seeded([("a", s, 0.2, 0.8)], constant_metric=c) for s, c in ((0, 0.5), (1, 0.6))]
    (merged,) = average_seeds(pa.concat_tables(halves)).to_pylist()
    assert merged["constant_metric"] == pytest.approx(0.55)

import math
import random
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import (
    SCHEMA,
    efficiency,
    frontier,
    hypervolume,
    non_dominated,
    over_seeds,
    remaining_at,
    with_most_seeds,
)


def table(*rows: tuple[str, str, float | None, float | None]) -> pa.Table:
    """(fusion, status, remaining, metric); trial_id counts up."""
    base = {"task": "t", "backbone": "b", "method": "l0"}
    return pa.Table.from_pylist(
        [
            base | {"fusion": f, "status": s, "remaining": r, "metric": m, "trial_id": str(i)}
            for i, (f, s, r, m) in enumerate(rows)
        ],
        schema=SCHEMA,
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
    found = {(r["fusion"], r["remaining"], r["metric"]) for r in frontier(table(*rows)).to_pylist()}
    expected = {
        (f, r, m)
        for f, _, r, m in rows
        if not any(g == f and x <= r and y >= m and (x < r or y > m) for g, _, x, y in rows)
    }
    assert found == expected


def points(*rows: tuple[float, float], **more: Any) -> pa.Table:
    """(remaining, metric) of one group; a recipe each."""
    base = {"task": "t", "backbone": "b", "method": "l0", "fusion": "last", "status": "completed"}
    return pa.Table.from_pylist(
        [
            base | {"remaining": r, "metric": m, "recipe": str(i), "seed": 0} | more
            for i, (r, m) in enumerate(rows)
        ],
        schema=SCHEMA,
    )  # fmt: skip


def test_hypervolume_by_hand() -> None:
    rows = points((0.2, 0.5), (0.6, 0.8), (0.7, 0.7), (1.2, 0.99), (0.1, -0.5))
    (found,) = hypervolume(rows).to_pylist()
    # 0.5 holds from 0.2 to 0.6, 0.8 from 0.6 to 1; what is beyond the reference adds nothing.
    assert found["hypervolume"] == pytest.approx(0.4 * 0.5 + 0.4 * 0.8)
    assert found["trials"] == 2
    (above,) = hypervolume(rows, remaining=0.5, metric=0.3).to_pylist()
    assert above["hypervolume"] == pytest.approx(0.3 * 0.2)
    assert hypervolume(rows.slice(0, 0)).num_rows == 0
    two = pa.concat_tables([rows, points((0.5, 0.5), fusion="bermo")])
    values = {r["fusion"]: r["hypervolume"] for r in hypervolume(two).to_pylist()}
    assert values == pytest.approx({"last": 0.52, "bermo": 0.25})


def test_remaining_weights_between_two_points() -> None:
    front = frontier(points((0.2, 0.5), (0.6, 0.9), (0.7, 0.8)))
    assert remaining_at(front, 0.7) == pytest.approx(0.4)
    assert remaining_at(front, 0.9) == pytest.approx(0.6)
    assert remaining_at(front, 0.1) == pytest.approx(0.2)  # the sparsest is good enough
    assert math.isnan(remaining_at(front, 0.91))
    assert remaining_at(front, math.nextafter(0.9, 1)) == pytest.approx(0.6)  # a mean's last bit
    assert math.isnan(remaining_at(front.slice(0, 0), 0.5))


def test_any_number_of_objectives_by_the_definition() -> None:
    random.seed(1)
    cells = [[random.randrange(6) for _ in range(3)] for _ in range(200)]
    rows = pa.table({
        "status": ["completed"] * 200,
        "remaining": [float(c[0]) for c in cells],
        "metric": [float(c[1]) for c in cells],
        "latency": [float(c[2]) for c in cells],
    })  # fmt: skip
    found = non_dominated(rows, {"remaining": "min", "metric": "max", "latency": "min"})
    mine = {tuple(r[k] for k in ("remaining", "metric", "latency")) for r in found.to_pylist()}

    def beats(a: list[int], b: list[int]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a[2] <= b[2] and a != b

    assert mine == {tuple(map(float, c)) for c in cells if not any(beats(o, c) for o in cells)}
    assert found.num_rows == len(mine), "equal rows stay once"
    with pytest.raises(UserError, match="unknown column 'metrc'"):
        non_dominated(rows, {"metrc": "max"})


def test_ties_keep_nothing_that_is_beaten() -> None:
    random.seed(3)
    for _ in range(300):
        cells = [[random.randrange(4) for _ in range(3)] for _ in range(10)]
        rows = pa.table({
            "status": ["completed"] * 10, "place": range(10),
            "remaining": [float(c[0]) for c in cells], "metric": [float(c[1]) for c in cells],
            "latency": [float(c[2]) for c in cells],
        })  # fmt: skip
        found = non_dominated(rows, {"remaining": "min", "metric": "max", "latency": "min"})
        for i in found["place"].to_pylist():
            a = cells[i]
            assert not any(b[0] <= a[0] and b[1] >= a[1] and b[2] <= a[2] and b != a for b in cells)
    assert non_dominated(rows.slice(0, 0), {"metric": "max"}).num_rows == 0


def seeded(rows: list[tuple[str, int, float, float]], **more: Any) -> pa.Table:
    """(recipe, seed, remaining, metric)."""
    base = {"status": "completed"} | more
    return pa.Table.from_pylist(
        [base | {"recipe": n, "seed": s, "remaining": r, "metric": m} for n, s, r, m in rows],
        schema=SCHEMA,
    )


def test_means_over_seeds() -> None:
    three = [("a", 0, 0.2, 0.8), ("b", 0, 0.5, 0.9), ("a", 1, 0.4, 0.6), ("a", 2, 0.3, 0.7)]
    rows = seeded(three, method="l0")
    broken = seeded([("a", 3, 0.1, 0.9)], status="diverged", method="l0")
    merged = over_seeds(pa.concat_tables([rows, broken])).to_pylist()
    found = {r["recipe"]: r for r in merged}
    assert (found["a"]["seeds"], found["b"]["seeds"]) == (3, 1)
    assert found["a"]["metric"] == pytest.approx(0.7)
    assert found["a"]["remaining"] == pytest.approx(0.3)
    assert found["a"]["metric_sd"] == pytest.approx(0.1)
    assert found["b"]["metric_sd"] is None
    assert found["a"]["metric_interval"] == pytest.approx(4.302653 * 0.1 / 3**0.5)  # t of 2
    assert found["b"]["metric_interval"] is None
    table = over_seeds(pa.concat_tables([rows, broken]))
    assert with_most_seeds(table)["recipe"].to_pylist() == ["a"]
    other = over_seeds(seeded([("c", 0, 0.5, 0.9), ("d", 0, 0.5, 0.9)], method="magnitude"))
    both = with_most_seeds(pa.concat_tables([table, other]))
    assert sorted(both["recipe"].to_pylist()) == [
        "a",
        "c",
        "d",
    ]  # of another group, where none has more


def test_efficiency_is_the_ratio_along_both_frontiers() -> None:
    first = seeded([("a", 0, 0.2, 0.7), ("b", 0, 0.6, 0.9)])
    second = seeded([("c", 0, 0.1, 0.7), ("d", 0, 0.4, 0.9), ("e", 0, 0.5, 0.6)])
    found = efficiency(first, second, 0.8)
    assert found.ratio == pytest.approx(0.4 / 0.25)
    assert (found.seeds, found.undecided) == (1, 0.0)
    assert math.isnan(found.low)
    assert math.isnan(efficiency(first, second, 0.95).ratio)


def test_the_interval_is_over_seeds() -> None:
    """Two seeds: a resample has the one, the other, or both, with ¼, ¼ and ½ of the chances."""
    first = seeded([("a", 0, 0.2, 0.8), ("a", 1, 0.4, 0.8)])
    second = seeded(
        [("c", 0, 0.1, 0.8), ("c", 1, 0.1, 0.8), ("x", 0, 0.9, 0.5), ("x", 1, 0.9, 0.5)]
    )
    found = efficiency(first, second, 0.8)
    assert found.ratio == pytest.approx(3.0)
    assert (found.low, found.high) == pytest.approx((2.0, 4.0))
    assert found.undecided == 0.0
    # A recipe that only one seed has does not count where that seed was not drawn.
    lucky = pa.concat_tables([second, seeded([("lucky", 0, 0.01, 0.9)])])
    wide = efficiency(first, lucky, 0.8)
    assert wide.ratio == pytest.approx(30.0)
    assert wide.low == pytest.approx(4.0)
    harder = seeded([("a", 0, 0.2, 0.9), ("a", 1, 0.2, 0.7)])
    assert efficiency(harder, second, 0.8).undecided == pytest.approx(0.25, abs=0.05)


def test_recipes_that_never_count_are_left_out_exactly() -> None:
    """The interval is the same whether beaten recipes are there or not."""
    random.seed(2)
    rows = [
        (f"{i}", s, random.random(), min(1.0, random.random() * 0.3 + 0.7)) for i in range(60)
        for s in range(3)
    ]  # fmt: skip
    from bermo_ray.results.frontier import _Side

    side = _Side(seeded(rows))
    assert len(set(side.codes)) < 60
    import numpy as np

    for weights in ([1, 1, 1], [3, 0, 0], [0, 2, 1], [1, 0, 2]):
        means = {}
        for name in {r[0] for r in rows}:
            own = [(r[2], r[3], weights[r[1]]) for r in rows if r[0] == name and weights[r[1]]]
            total = sum(w for *_, w in own)
            means[name] = (sum(x * w for x, _, w in own) / total, sum(y * w for _, y, w in own) / total)  # fmt: skip # noqa: E501
        front = frontier(points(*means.values()))
        for level in (0.75, 0.8, 0.85):
            mine = side.at(level, [0, 1, 2], np.array(weights, dtype=float))
            assert mine == pytest.approx(remaining_at(front, level), nan_ok=True)

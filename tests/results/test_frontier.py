import math
import random

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import (
    SCHEMA,
    average_seeds,
    frontier,
    hypervolume,
    keep_most_seeds,
    non_dominated,
    remaining_at,
)
from tests.support.result_rows import points, seeded


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
    kept = {(r["fusion"], r["remaining"], r["metric"]) for r in frontier(table(*rows)).to_pylist()}
    expected = {
        (f, r, m)
        for f, _, r, m in rows
        if not any(g == f and x <= r and y >= m and (x < r or y > m) for g, _, x, y in rows)
    }
    assert kept == expected


def test_hypervolume_by_hand() -> None:
    rows = points((0.2, 0.5), (0.6, 0.8), (0.7, 0.7), (1.2, 0.99), (0.1, -0.5))
    (area,) = hypervolume(rows).to_pylist()
    # 0.5 holds from 0.2 to 0.6, 0.8 from 0.6 to 1; what is beyond the reference adds nothing.
    assert area["hypervolume"] == pytest.approx(0.4 * 0.5 + 0.4 * 0.8)
    assert area["trials"] == 2
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
    assert by_recipe["a"]["metric_sd"] == pytest.approx(0.1)
    assert by_recipe["b"]["metric_sd"] is None
    assert by_recipe["a"]["metric_interval"] == pytest.approx(4.302653 * 0.1 / 3**0.5)  # t of 2
    assert by_recipe["b"]["metric_interval"] is None
    table = average_seeds(pa.concat_tables([rows, broken]))
    assert keep_most_seeds(table)["recipe"].to_pylist() == ["a"]
    other = average_seeds(seeded([("c", 0, 0.5, 0.9), ("d", 0, 0.5, 0.9)], method="magnitude"))
    both = keep_most_seeds(pa.concat_tables([table, other]))
    # c and d are of another group, where none has more.
    assert sorted(both["recipe"].to_pylist()) == ["a", "c", "d"]

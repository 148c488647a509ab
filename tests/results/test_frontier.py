import pyarrow as pa

from bermo_ray.results import SCHEMA, frontier


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
    import random

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

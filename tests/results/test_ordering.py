"""The order of rows."""

import pyarrow as pa

from bermo_ray.results.ordering import order_rows


def test_rows_are_in_the_order_given_and_then_rising() -> None:
    table = pa.table({
        "fusion": ["bermo", "x", "last", "bermo", None, "last"],
        "epochs": [4, 1, 10, 2, 3, 9],
    })  # fmt: skip
    rows = order_rows(table, fusion=("last", "bermo"), epochs=())
    assert rows["fusion"].to_pylist() == ["last", "last", "bermo", "bermo", "x", None]
    assert rows["epochs"].to_pylist() == [9, 10, 2, 4, 1, 3]
    by_epochs = order_rows(table, epochs=(), fusion=())
    assert by_epochs["epochs"].to_pylist() == [1, 2, 3, 4, 9, 10]
    assert order_rows(table.slice(0, 0), epochs=()).num_rows == 0

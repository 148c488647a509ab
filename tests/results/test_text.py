"""What a person reads: at 80 columns, with the numbers where they belong."""

import io
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from bermo_ray.results import figures, layer_counts, layer_losses, text
from bermo_ray.results.schemas import MIXES
from bermo_ray.training.layer_scores import SCORES
from tests.support.result_rows import dropped_row as row
from tests.support.result_rows import result_table as table


def shown(what: Any) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(what)
    lines = out.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    return [" ".join(line.split()) for line in lines]


def test_losses_and_counts(tmp_path: Path) -> None:
    rows = table(
        row(0, 0.90, (0.90, 0.91)), row(3, 0.89, (0.895, 0.90)), row(6, 0.8, (0.80, 0.81)),
        row(0, 0.5, (0.5, 0.5), task="entities", status="diverged"),
    )  # fmt: skip
    losses = layer_losses(rows)
    lines = shown(text.losses_table(losses))
    assert "tense b undropped 0 0.9000 0.00 M 1.00× 1.00×" in lines
    assert "top 6 0.8000 +10.00 0.00 M 2.00× 2.00×" in lines
    counts = layer_counts(rows, (1.0, 2.0))
    lines = shown(text.counts_table(counts))
    assert lines[-1] == "tense b 3 (1.00) 3 (1.00) 3 of 12"
    remarks = text.remarks(counts, rows)
    assert remarks == [
        "one seed can't tell whether a count is off; two or more would",
        "entities on b: the undropped model did not complete, so there is no count",
    ]
    for draw, rows in ((figures.strategies_figure, losses), (figures.counts_figure, counts)):
        file = draw(rows, tmp_path / "figure.png")
        assert file.read_bytes().startswith(b"\x89PNG")


def test_remarks_say_which_counts_could_be_off() -> None:
    # On the verification half 3 layers lose 0.2 and 1.0 points, 4 lose 4.9 and 5.1.
    lost = {0: (0.0, 0.0), 3: (0.2, 1.0), 4: (4.9, 5.1)}
    rows = table(*(
        row(k, 0.9, (0.9 - points[s] / 100, 0.9 - points[s] / 100), seed=s)
        for k, points in lost.items() for s in (0, 1)
    ))  # fmt: skip
    # t of one degree of freedom is 12.706: 0.6 ± 12.706·0.4 and 5.0 ± 12.706·0.1.
    (at_one, at_six) = text.remarks(layer_counts(rows, (1.0, 6.0)), rows)
    assert at_one == (
        "tense on b: 3 layers at 1 point could be off: it loses -4.48 to 5.68 (95 % over seeds)"
    )
    assert at_six == (
        "tense on b: 4 layers at 6 points could be off: "
        "it loses 3.73 to 6.27 (95 % over seeds)"
    )  # fmt: skip
    (alone,) = text.remarks(layer_counts(rows, (7.0,)), rows)  # more than 4 were not tried
    assert alone == (
        "tense on b: 4 layers at 7 points could be off: a larger count may be within it too"
    )


def test_a_dev_set_without_halves_is_a_remark() -> None:
    rows = table(row(0, 0.9, metric_selection=None, metric_verification=None))
    counts = layer_counts(rows, (1.0,))
    assert text.remarks(counts, rows) == [
        "tense on b: there are too few dev rows for two halves, so there is no count"
    ]


def test_hypervolumes_in_one_line() -> None:
    base = {"method": "l0", "trials": 1}
    rows = [
        base | {"fusion": "bermo", "hypervolume": 0.41234},
        base | {"fusion": "last", "hypervolume": None},
        base | {"fusion": "last", "hypervolume": 0.0, "method": "dense"},
    ]
    assert text.describe_hypervolumes(pa.Table.from_pylist(rows)) == (
        "hypervolume (1: as good as dense down to 1 % of the weights): bermo 0.412, "
        "last unknown without a dense baseline"
    )


def test_scores() -> None:
    scores = {"variance": 0.5, "aggregate": 2.0, "contribution": 0.95}
    rows = [{"task": "t", "backbone": "a/b", "layer": i} | scores for i in (1, 2)]
    lines = shown(text.scores_table(pa.Table.from_pylist(rows, schema=SCORES)))
    assert lines[-2:] == ["t b 1 5.000e-01 2.0 0.9500", "2 5.000e-01 2.0 0.9500"]


def test_mixes(tmp_path: Path) -> None:
    base = {"remaining": 0.5, "metric": 0.9, "latency": 0.02, "seeds": 1, "best": False}
    rows = [
        base | {"size": 1.0, "layers_dropped": 0, "best": True, "on_frontier": True},
        base
        | {
            "size": 0.5,
            "layers_dropped": 2,
            "target_density": 0.75,
            "p_value": 0.04,
            "on_frontier": False,
        },
    ]
    mixes = pa.Table.from_pylist(rows, schema=MIXES)
    lines = shown(text.mixes_table(mixes, "accuracy"))
    assert lines[-2] == "100.0% 0 50.0% 0.9000 20.0 ms *f"
    assert lines[-1] == "50.0% 2 75.0% 50.0% 0.9000 20.0 ms 0.04"
    file = figures.mixes_figure(mixes, "accuracy", tmp_path / "mixes.png")
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_query_may_give_two_columns_one_name() -> None:
    rows = pa.table([[1], [2.5], ["x"]], names=["a", "a", "b"])
    assert shown(text.any_table(rows)) == ["a a b", "1 2.5 x"]


def test_a_frontier_over_seeds_fits_80_columns() -> None:
    base = {
        "method": "soft_movement", "remaining": 0.1, "metric": 0.91, "multiplier": 123.4,
        "learning_rate": 1e-3, "score_learning_rate": 1e-2, "trial_id": "abcdef0123",
    }  # fmt: skip
    rows = [base | {"fusion": "extra_layers", "metric_interval": w} for w in (0.0123, None)]
    lines = shown(text.frontier_table(pa.Table.from_pylist(rows), "accuracy"))
    assert "extra_layers soft 10.0% 0.9100 ±0.012 123 1.0e-03 1.0e-02 abcdef" in lines
    assert "10.0% 0.9100 123 1.0e-03 1.0e-02 abcdef" in lines


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({}, ["met with 20.0% of the weights", "2 of them there; 80% sure"]),
        ({"met": False, "metric": 0.88}, ["not met; the closest is 0.0200 short, with 20.0%"]),
        ({"met": False}, ["not met; met by some seeds only"]),
        (
            {"seeds": 1, "sureness": math.nan},
            ["over 1 seed, 2 of them there; how sure: more seeds"],
        ),
        ({"recipe": None}, ["no pruned trial completed"]),
        ({"earlier": True}, ["trial abcdef of an earlier study"]),
    ],
)
def test_answers(change: dict[str, Any], lines: list[str]) -> None:
    answer = {
        "fusion": "last", "target_metric": 0.9, "dense_metric": 0.95, "met": True, "recipe": "r",
        "seeds": 2,
        "trial_id": "abcdef", "multiplier": 10.0, "learning_rate": 1e-3, "score_learning_rate": 0.1,
        "remaining": 0.2, "metric": 0.91, "seeds_met": 2, "sureness": 0.8, "earlier": False,
    }  # fmt: skip
    printed = text.describe_answers(pa.Table.from_pylist([answer | change]), "accuracy")
    assert printed[0].startswith("last: accuracy >= 0.9000 (dense 0.9500): ")
    for line in lines:
        assert line in " ".join(printed)


def test_a_method_without_a_multiplier_leaves_its_cell_empty() -> None:
    row = {
        "method": "movement", "remaining": 0.1, "metric": 0.91, "multiplier": None,
        "learning_rate": 1e-3, "score_learning_rate": 1e-2, "trial_id": "abcdef0123",
        "fusion": "last",
    }  # fmt: skip
    lines = shown(text.frontier_table(pa.Table.from_pylist([row]), "accuracy"))
    assert lines[-1] == "last movement 10.0% 0.9100 1.0e-03 1.0e-02 abcdef"

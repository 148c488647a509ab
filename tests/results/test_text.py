"""What a person reads: at 80 columns, with the numbers where they belong."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from bermo_ray.results import figures, frontier, layer_counts, layer_losses, layer_text, text
from bermo_ray.results.choice import describe_choice
from bermo_ray.results.schemas import AREAS, LEVELS, MIXES, RATIOS, SIZES
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
    (losses_view,) = layer_text.losses_tables(losses)
    assert shown(losses_view)[1:] == [
        "task and strategy 3 dropped 6 dropped",
        "entities, undropped 50.00",
        "tense, undropped 91.00",
        "top 1.00 10.00",
    ]
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
        "hypervolume (1: dense down to 1 %): bermo 0.412, last unknown without a dense baseline"
    )
    seeds = [
        base | {"fusion": "last", "hypervolume": h, "seed": s} for s, h in ((0, 0.4), (1, 0.5))
    ]
    line = text.describe_hypervolumes(pa.Table.from_pylist(seeds))
    assert line.endswith(": last 0.450 ±0.635")  # t of one degree of freedom is 12.706


def test_accuracy_at_a_size() -> None:
    base = {"task": "t", "backbone": "b", "seeds": 3, "unreached": 0}
    rows = [
        base | {"fusion": "last", "size": 0.1, "metric_reported": 0.9, "interval": 0.0123},
        base | {"fusion": "last", "size": 0.5, "metric_reported": 0.95, "interval": 0.01},
        base | {"fusion": "bermo", "size": 0.1, "unreached": 1},
        base | {"fusion": "bermo", "size": 0.5, "metric_reported": 0.94, "interval": 0.02},
    ]
    assert shown(text.sizes_table(pa.Table.from_pylist(rows, schema=SIZES), "accuracy")) == [
        "Accuracy at a size: mean of 3 seeds, ± 95 %",
        "at most last bermo",
        "10.0% 0.9000 ±0.012 none in 1 of 3 seeds",
        "50.0% 0.9500 ±0.010 0.9400 ±0.020",
    ]
    alone = [row | {"seeds": 1, "interval": None} for row in rows]
    assert shown(text.sizes_table(pa.Table.from_pylist(alone, schema=SIZES), "accuracy")) == [
        "Accuracy at a size: one seed, so no interval",
        "at most last bermo",
        "10.0% 0.9000 none",
        "50.0% 0.9500 0.9400",
    ]


LEVEL_ROWS = [
    {"arm": "extra_layers", "share": 0.95, "level": 0.855, "remaining": 0.2, "low": 0.0001,
     "high": 1.5, "seeds": 3, "unreached": 0},
    {"arm": "bermo", "share": 0.95, "level": 0.855, "remaining": 0.1, "low": 0.05, "high": 0.2,
     "seeds": 3, "unreached": 0},
    {"arm": "extra_layers", "share": 0.99, "level": 0.891, "remaining": 0.5, "low": 0.4,
     "high": 0.6, "seeds": 3, "unreached": 0},
    {"arm": "bermo", "share": 0.99, "level": 0.891, "seeds": 3, "unreached": 1},
]  # fmt: skip


def test_weights_at_a_level() -> None:
    pair = {"first": "extra_layers", "second": "bermo", "seeds": 3}
    ratios = [
        pair | {"share": 0.95, "level": 0.855, "ratio": 2.0, "low": 0.5, "high": 8.0},
        pair | {"share": 0.99, "level": 0.891, "unreached_first": 0, "unreached_second": 1},
    ]
    levels = pa.Table.from_pylist(LEVEL_ROWS, schema=LEVELS)
    lines = shown(
        text.levels_table(levels, pa.Table.from_pylist(ratios, schema=RATIOS), "accuracy")
    )
    title = "Weights that reach a share of the better dense baseline's accuracy, 0.9000"
    assert lines[:2] == [title, "times fewer"]
    assert lines[-4:] == [
        "0.95 0.8550 extra_layers 20.0% (<0.1% to >100%)",
        "bermo 10.0% (5.0% to 20.0%) 2.00 (0.5 to 8)",
        "0.99 0.8910 extra_layers 50.0% (40.0% to 60.0%)",
        "bermo not reached in 1 of 3 seeds none",
    ]


def test_weights_at_a_level_of_one_seed() -> None:
    one_seed = [row | {"low": None, "high": None, "seeds": 1} for row in LEVEL_ROWS]
    printed = text.levels_table(pa.Table.from_pylist(one_seed, schema=LEVELS), None, "F1")
    assert len(printed.columns) == 4
    lines = shown(printed)
    assert lines[1:] == [
        "share F1 arm remaining",
        "0.95 0.8550 extra_layers 20.0%",
        "bermo 10.0%",
        "0.99 0.8910 extra_layers 50.0%",
        "bermo not reached in 1 of 1 seed",
    ]
    assert (
        shown(text.levels_table(LEVELS.empty_table(), None, "F1"))[-1] == "share F1 arm remaining"
    )


def test_areas() -> None:
    rows = [
        {"first": "last", "second": "bermo", "sparsest": 0.05, "reference": 0.9, "seeds": 3,
         "area_first": 0.9, "area_second": 0.95, "difference": 0.05, "low": -0.01, "high": 0.11},
        {"first": "last", "second": "all", "seeds": 3},
    ]  # fmt: skip
    assert text.describe_areas(pa.Table.from_pylist(rows, schema=AREAS)) == [
        "area below the curves from 5.0% of the weights on (1: dense):",
        "  last 0.900, bermo 0.950: +0.050 (95 % over 3 seeds: -0.010 to +0.110)",
        "area below the curves: last and all share no range of sizes",
    ]


def test_scores() -> None:
    scores = {"variance": 0.5, "aggregate": 2.0, "contribution": 0.95}
    rows = [{"task": "t", "backbone": "a/b", "layer": i} | scores for i in (1, 2)]
    lines = shown(text.scores_table(pa.Table.from_pylist(rows, schema=SCORES)))
    assert lines[-2:] == ["t b 1 5.000e-01 2.0 0.9500", "2 5.000e-01 2.0 0.9500"]


def test_mixes(tmp_path: Path) -> None:
    base = {
        "remaining": 0.5, "metric_reported": 0.9, "latency": 0.02, "seeds": 1, "best": False,
        "fusion": "last", "distilled": False,
    }  # fmt: skip
    pruned = {"target_density": 0.75, "p_value": 0.04, "on_frontier": False}
    taught = {"fusion": "bermo", "distilled": True, "reported_interval": 0.01}
    rows = [
        base | {"size": 1.0, "layers_dropped": 0, "best": True, "on_frontier": True},
        base | {"size": 0.5, "layers_dropped": 2} | pruned | taught,
    ]
    mixes = pa.Table.from_pylist(rows, schema=MIXES)
    lines = shown(text.mixes_table(mixes, "accuracy"))
    assert lines[-2] == "100% last no 0 50.0% 0.9000 20.0 ms *f"
    assert lines[-1] == "50% bermo yes 2 75.0% 50.0% 0.9000 ±0.010 20.0 ms 0.04"
    file = figures.mixes_figure(mixes, "accuracy", tmp_path / "mixes.png")
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_query_may_give_two_columns_one_name() -> None:
    rows = pa.table([[1], [2.5], ["x"]], names=["a", "a", "b"])
    assert shown(text.any_table(rows)) == ["a a b", "1 2.5 x"]


MODEL: dict[str, Any] = {
    "method": "soft_movement", "fusion": "extra_layers", "remaining": 0.1, "multiplier": 123.4,
    "metric": 0.93, "metric_selection": 0.95, "metric_verification": 0.91, "learning_rate": 1e-3,
    "score_learning_rate": 1e-2, "trial_id": "abcdef0123", "seed": 2,
}  # fmt: skip


def test_models_on_the_frontier_fit_80_columns_and_are_reported_with_the_other_half() -> None:
    without_multiplier = MODEL | {"method": "movement", "multiplier": None}
    dense = MODEL | {"method": "dense", "remaining": 1.0, "multiplier": None}
    lines = shown(text.frontier_table(table(MODEL, MODEL, without_multiplier, dense), "accuracy"))
    assert lines[:2] == [
        "Models on the frontier: chosen on one half of dev, measured on the other",
        "No trial of its fusion and method is smaller and better on the rows that chose",
    ]
    assert lines[-4:] == [
        "extra_layers soft 10.0% 0.9100 123 1.0e-03 1.0e-02 2 abcdef",
        "10.0% 0.9100 123 1.0e-03 1.0e-02 2 abcdef",
        "extra_layers movement 10.0% 0.9100 1.0e-03 1.0e-02 2 abcdef",
        "extra_layers dense 100.0% 0.9100 1.0e-03 2 abcdef",
    ]


def test_what_the_frontier_table_says_of_its_models_is_true() -> None:
    random = np.random.default_rng(0)
    sizes, metrics = random.random(200), 0.5 + random.random((200, 2)) / 2
    rows = [
        MODEL | {
            "status": "completed", "fusion": "ab"[i % 2], "method": ("l0", "movement")[i // 2 % 2],
            "seed": i % 3, "remaining": float(sizes[i]), "metric_selection": float(metrics[i, 0]),
            "metric_verification": float(metrics[i, 1]), "trial_id": f"{i:06}",
        }
        for i in range(200)
    ]  # fmt: skip
    front = frontier(table(*rows))
    printed = " ".join(shown(text.frontier_table(front, "accuracy"))).split()
    models = [row for row in rows if row["trial_id"] in printed]
    assert len(models) == front.num_rows > 8
    for model in models:
        assert not any(
            other["remaining"] < model["remaining"]
            and other["metric_selection"] > model["metric_selection"]
            for other in rows
            if (other["fusion"], other["method"]) == (model["fusion"], model["method"])
        )


def test_which_rows_chose_and_which_measured() -> None:
    def trial(whole_dev: bool, test: float | None = None) -> dict[str, Any]:
        chosen = {"data": {"task": "t", "whole_dev": whole_dev}}
        return MODEL | {"trial_json": json.dumps(chosen), "metric_test": test}

    halves = "chosen on one half of dev, measured on the other"
    assert describe_choice(table(trial(False), trial(False))) == halves
    assert describe_choice(table(MODEL)) == describe_choice(table()) == halves
    on_test = "chosen on one half of dev, measured on the test split"
    assert describe_choice(table(trial(False, test=0.8))) == on_test
    same = "chosen and measured on the same rows"
    assert describe_choice(table(trial(False), trial(True))) == same
    assert describe_choice(table(trial(True, 0.8))) == "chosen on dev, measured on the test split"
    title = shown(text.frontier_table(table(trial(True)), "accuracy"))[0]
    assert title == f"Models on the frontier: {same}"


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            {},
            [
                "met with 20.0% of the weights",
                "over 3 seeds that did not choose it, 2 of them there",
            ],
        ),
        ({}, ["accuracy 0.9100 ±0.021", "80% sure that the mean over more seeds is there"]),
        ({"met": False, "metric": 0.88}, ["not met; 0.0200 short, with 20.0% of the weights"]),
        ({"seeds_failed": 2, "metric_interval": None}, ["accuracy 0.9100 over 1 seed that"]),
        ({"recipe": None, "metric": None}, ["no pruned trial completed"]),
        ({"metric": None}, ["no seed has a result"]),
    ],
)
def test_answers(change: dict[str, Any], lines: list[str]) -> None:
    answer = {
        "fusion": "last", "target_metric": 0.9, "dense_metric": 0.95, "met": True, "recipe": "r",
        "seeds": 3, "seeds_failed": 0, "trial_id": "abcdef", "multiplier": 10.0,
        "learning_rate": 1e-3, "score_learning_rate": 0.1, "remaining": 0.2, "metric": 0.91,
        "metric_interval": 0.0211, "seeds_met": 2, "sureness": 0.8,
    }  # fmt: skip
    printed = text.describe_answers(pa.Table.from_pylist([answer | change]), "accuracy")
    assert printed[0].startswith("last: accuracy >= 0.9000 (dense 0.9500): ")
    for line in lines:
        assert line in " ".join(printed)

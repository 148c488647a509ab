"""What varies among trials, for tables."""

import pyarrow as pa

from bermo_ray.data_section import UserData
from bermo_ray.results.varying import short_names, summarize_trials, varying_settings
from bermo_ray.trial import L0, Data, Trial

READ = UserData(
    kind="classification", text=("review",), label="stars", train="/a.csv", metric="accuracy",
    digest="0",
)  # fmt: skip


def table(*trials: Trial) -> pa.Table:
    columns = ("remaining", "metric", "metric_reported", "seconds", "status", "reason")
    rows = [{"trial_id": t.id, "trial_json": t.to_json()} | dict.fromkeys(columns) for t in trials]
    return pa.Table.from_pylist(rows)


def test_what_differs_is_told_and_a_section_that_some_lack_by_its_kind() -> None:
    dense, pruned = Trial(), Trial(pruning=L0(multiplier=3.0), seed=1)
    assert varying_settings(table(dense, pruned)) == {
        "pruning.method": [None, "l0"],
        "seed": [0, 1],
    }
    both = table(pruned, pruned.replace(pruning={"multiplier": 5.0}))
    assert varying_settings(both) == {"pruning.multiplier": [3.0, 5.0]}


def test_trials_of_a_users_own_rows_have_sections_in_sections() -> None:
    mine = Trial(data=Data(task="mine", user=READ))
    rows = summarize_trials(table(mine, mine.replace(epochs=5)))
    assert rows["epochs"].to_pylist() == [3, 5]
    assert rows.column_names[:2] == ["trial_id", "epochs"]
    assert varying_settings(table(mine)) == {}


def test_names_that_would_be_alike_are_told_in_full() -> None:
    assert short_names(["a.rate", "b.rate", "seed"]) == {
        "a.rate": "a.rate",
        "b.rate": "b.rate",
        "seed": "seed",
    }

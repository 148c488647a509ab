"""A study's description in Markdown: short enough for a tag, and of any kind of study."""

import pyarrow as pa

from bermo_ray.record import SCHEMA
from bermo_ray.results.study_note import StudyNote, describe_statuses, measure_study


def table_of(*rows: dict[str, object]) -> pa.Table:
    common = {
        "status": "completed", "task": "tense", "backbone": "/models/tiny", "fusion": "last",
        "method": "dense", "seed": 0, "remaining": 1.0, "metric_name": "accuracy",
        "constant_metric": 0.5, "recipe": "r", "layers_dropped": 0,
    }  # fmt: skip
    return pa.Table.from_pylist([common | row for row in rows], schema=SCHEMA)


def trial(number: int, **values: object) -> dict[str, object]:
    metric = 0.9 - number / 1000
    return {
        "trial_id": f"{number:012d}", "run_id": f"run{number}", "metric_selection": metric,
        "metric_reported": metric, **values,
    }  # fmt: skip


def test_without_pruning_the_best_of_each_group_are_listed() -> None:
    table = table_of(
        trial(0, task="a"), trial(1, task="a"), trial(2, task="b"), trial(3, status="failed")
    )
    note = StudyNote("Which?", table, link=lambda run: f"#/{run}").to_markdown(8000)
    text = note.replace("\u00a0", "")
    assert text == (
        "**Which?**\n\n4 trials: 3 completed, 1 failed\n\n### Best trials\n\n"
        "| task | accuracy | trial |\n|---|---|---|\n"
        "| a | 0.9000 | [000000](#/run0) |\n| b | 0.8980 | [000000](#/run2) |\n"
    )
    assert measure_study(table) == {
        "trials": 4.0, "trials_completed": 3.0, "trials_failed": 1.0,
        "best_metric/a": 0.9, "best_metric/b": 0.898,
    }  # fmt: skip


def test_a_long_frontier_is_cut_to_what_fits() -> None:
    rows = [trial(n, method="l0", remaining=1.0 - n / 100, multiplier=n + 1.0) for n in range(90)]
    note = StudyNote("", table_of(*rows), link=lambda run: f"#/{run:>100}")
    text = note.to_markdown(8000)
    assert len(text) <= 8000
    shown = text.count("](#/")
    assert 40 < shown < 90
    assert f"… and {90 - shown} more" in text
    assert "… and" not in note.to_markdown(100_000)


def test_nothing_came_out() -> None:
    table = table_of()
    assert StudyNote("", table).to_markdown(8000) == "0 trials: none\n"
    assert measure_study(table) == {"trials": 0.0}
    assert describe_statuses(table_of(trial(0))) == "1 trial: 1 completed"

"""What MLflow shows of a study as a whole: its view, description and numbers, models, registry."""

import json
from pathlib import Path
from typing import Any

import pytest

from bermo_ray import results
from bermo_ray.errors import UserError
from bermo_ray.results.best_trial import pick_best_trial
from bermo_ray.study import Study
from bermo_ray.tracking import store, study_page
from bermo_ray.tracking.models import check_model_name, describe_data, register_model
from bermo_ray.trial import Trial
from tests.support.frontier_session import QUESTION, run_frontier_study

pytestmark = pytest.mark.slow  # a store, and a study with its figure


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """16 trials of a formula, of which two diverged."""
    return run_frontier_study(tmp_path_factory.mktemp("runs"), "s")


@pytest.fixture(scope="module")
def client(study: Study) -> Any:
    return store.connect(study.uri)


@pytest.fixture(scope="module")
def parent(study: Study) -> Any:
    """The study's own run."""
    return store.find_study(study.uri, "s")


def test_the_view_has_the_studys_runs_and_the_columns_that_matter(client: Any, parent: Any) -> None:
    tags = client.get_experiment(parent.info.experiment_id).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    view = json.loads(tags["mlflow.sharedViewState.s"])
    assert view["name"] == "s"
    state = json.loads(view["state"])
    assert state["searchFilter"] == "tags.`bermo.study` = 's'"
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`metric`", False)
    assert state["selectedColumns"] == [
        "tags.`bermo.status`", "metrics.`metric`", "metrics.`remaining`", "params.`fusion.name`",
        "params.`pruning.method`", "params.`pruning.multiplier`",
        "params.`optimizer.learning_rate`", "params.`optimizer.score_learning_rate`",
        "params.`seed`",
    ]  # fmt: skip
    address = study_page.link_to_study(parent.info.experiment_id, "s")
    assert address == "#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=s"


def test_the_description_has_question_verdict_figure_frontier_and_links(
    study: Study, client: Any, parent: Any
) -> None:
    note, run_id = parent.data.tags["mlflow.note.content"], parent.info.run_id
    assert note.startswith(f"**{QUESTION}**\n\n- tense on embedded: at 0.97 of the dense metric")
    assert "\n\n16 trials: 14 completed, 2 diverged\n\n" in note
    image = f"get-artifact?path=description%2Ffrontier.png&run_uuid={run_id}"
    assert f"![frontier]({image})" in note
    assert client.list_artifacts(run_id, "description")[0].path == "description/frontier.png"
    assert f"[trials.parquet](get-artifact?path=trials.parquet&run_uuid={run_id})" in note
    front = results.frontier(results.load("s", study.uri)).to_pylist()
    lines = note.split("### Trials on the frontier")[1].splitlines()
    shown = [line.replace("\u00a0", "") for line in lines if "](#/experiments/1/runs/" in line]
    assert len(shown) == len(front)
    for line, row in zip(shown, front, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        multiplier = "" if row["multiplier"] is None else f"{row['multiplier']:.3g}"
        assert cells[:3] == [row["fusion"], row["method"], multiplier]
        assert cells[-3:-1] == [f"{row['remaining']:.1%}", f"{row['metric_reported']:.4f}"]
        assert row["run_id"] in cells[-1]


def test_the_studys_run_has_numbers_of_its_own_and_what_was_asked_for(
    study: Study, parent: Any
) -> None:
    table, numbers = results.load("s", study.uri), parent.data.metrics
    assert (numbers["trials"], numbers["trials_diverged"]) == (16, 2)
    volumes = results.hypervolume(table).to_pylist()
    pruned = {row["fusion"]: row["hypervolume"] for row in volumes if row["method"] == "l0"}
    assert numbers["hypervolume/last"] == pytest.approx(pruned["last"])
    assert numbers["hypervolume/bermo"] == pytest.approx(pruned["bermo"])
    for row in results.remaining_at_levels(table).to_pylist():
        if row["remaining"] is not None:
            key = f"remaining_at_{row['share']:g}/{row['arm']}"
            assert numbers[key] == pytest.approx(row["remaining"])
    assert numbers["best_metric/bermo/dense"] == pytest.approx(0.952)  # of seed 1
    assert parent.data.params == {"task": "tense"}
    headline = parent.data.tags["bermo.headline"]
    assert headline.startswith("tense on embedded: at 0.97")


def test_the_experiment_lists_its_studies(client: Any, parent: Any) -> None:
    note = client.get_experiment(parent.info.experiment_id).tags["mlflow.note.content"]
    question, _, studies = note.partition("\n\n")
    assert question == QUESTION
    assert studies.startswith(
        "- **s** ([trials](#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=s)"
    )
    assert studies.endswith(parent.data.tags["bermo.headline"])


def test_a_trial_that_completed_has_a_model_with_its_metrics_and_data(
    study: Study, client: Any, parent: Any
) -> None:
    rows = {row["run_id"]: row for row in results.load("s", study.uri).to_pylist()}
    models = client.search_logged_models([parent.info.experiment_id])
    completed = {run_id for run_id, row in rows.items() if row["status"] == "completed"}
    assert {model.source_run_id for model in models} == completed
    for model in models:
        row = rows[model.source_run_id]
        assert model.name == f"{row['fusion']}-{row['method']}-{row['trial_id'][:6]}"
        assert str(model.status) == "READY"
        assert model.tags["bermo.checkpoint"] == row["checkpoint"]
        measured = {metric.key: metric for metric in model.metrics}
        assert measured["metric"].value == row["metric"]
        assert measured["remaining"].value == row["remaining"]
        data = describe_data(Trial.from_json(row["trial_json"]))
        assert (measured["metric"].dataset_name, measured["metric"].dataset_digest) == (
            "tense",
            data.digest,
        )
        run = client.get_run(model.source_run_id)
        assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
        (used,) = run.inputs.dataset_inputs
        assert (used.dataset.name, used.dataset.digest) == ("tense", data.digest)
        # The model's metrics are the run's: no second point at the end of the curve.
        steps = [m.step for m in client.get_metric_history(model.source_run_id, "metric")]
        assert steps == [5, 20]


def test_other_data_is_another_dataset() -> None:
    digests = {
        describe_data(trial).digest
        for trial in (Trial(), Trial(seed=1), Trial().replace(data={"train_rows": 10}))
    }
    assert len(digests) == 2


def test_the_best_trial_is_the_smallest_that_keeps_a_share_of_dense(study: Study) -> None:
    table = results.load("s", study.uri)
    rows = [row for row in table.to_pylist() if row["status"] == "completed"]
    # Dense is 0.950 and 0.952 of two seeds of either fusion.
    for share in (0.97, 0.99):
        enough = [row for row in rows if row["metric"] >= share * 0.951]
        smallest = min(row["remaining"] for row in enough)
        best, rule = pick_best_trial(table, share)
        assert best["remaining"] == smallest
        kept = f"keep {share:.0%} of the dense baseline's metric on the rows that choose"
        assert rule == f"the fewest weights that {kept}"
    best, rule = pick_best_trial(table, 1.5)
    assert best["metric"] == pytest.approx(0.952)
    assert rule.startswith("the best metric")
    several = table.set_column(
        table.schema.get_field_index("task"), "task", [["a"] * 8 + ["b"] * 8]
    )
    with pytest.raises(UserError, match="task: trials of several"):
        pick_best_trial(several)
    with pytest.raises(UserError, match="no trial completed"):
        pick_best_trial(table.slice(0, 0))


def test_a_registered_model_is_a_version_with_files_of_its_own(
    study: Study, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.artifacts import download_artifacts

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    best, rule = pick_best_trial(results.load("s", study.uri))
    numbers = [
        register_model(study.uri, best["run_id"], "small", tmp_path / "model", rule) for _ in "ab"
    ]
    assert numbers == ["1", "2"]
    version = client.get_model_version("small", "2")
    assert (version.run_id, version.description) == (best["run_id"], rule)
    (output,) = client.get_run(best["run_id"]).outputs.model_outputs
    assert version.tags == {"bermo.study": "s", "bermo.model_id": output.model_id}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", study.uri)
    folder = download_artifacts("models:/small/2", dst_path=str(tmp_path / "copy"))
    assert (Path(folder) / "config.json").read_text() == "{}"
    diverged = results.select(results.load("s", study.uri), status="diverged")["run_id"][0].as_py()
    with pytest.raises(UserError, match="register: trial .* has no logged model"):
        register_model(study.uri, diverged, "small", tmp_path / "model", rule)


@pytest.mark.parametrize("name", ["", "a/b", "a:b"])
def test_a_name_that_no_model_can_have_is_one_line(name: str) -> None:
    with pytest.raises(UserError, match="register: got .* expected a name without / and :"):
        check_model_name(name)

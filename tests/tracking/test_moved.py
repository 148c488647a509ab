"""A folder of studies that was moved, whatever its path is written with."""

from pathlib import Path

import pytest

from bermo_ray import results
from bermo_ray.record import Report, Status
from bermo_ray.tracking import store
from bermo_ray.tracking.moved import follow_move
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import Trial
from tests.support.records import open_recorder


@pytest.mark.parametrize("names", [("before", "after"), ("our runs", "für später"), ("ü", "a b")])
def test_everything_is_where_it_lies_now(names: tuple[str, str], tmp_path: Path) -> None:
    before, after = (tmp_path / name for name in names)
    recorder = open_recorder(store_uri(before), "s")
    recorder.on_start("0", Trial())
    checkpoint = before / "checkpoints" / "s" / "0"
    checkpoint.mkdir(parents=True)
    done = Report(step=1, status=Status.COMPLETED, metric=0.5)
    recorder.on_report("0", [done], str(checkpoint))
    recorder.close(Status.COMPLETED)
    before.rename(after)
    assert follow_move(after)
    uri = store_uri(after)
    (row,) = results.load("s", uri).to_pylist()
    assert row["checkpoint"] == str(after / "checkpoints" / "s" / "0")
    client = store.connect(uri)
    run = client.get_run(row["run_id"])
    assert run.info.artifact_uri.startswith(after.as_uri())
    assert client.download_artifacts(row["run_id"], "trial.json", str(tmp_path))
    model = client.get_logged_model(run.outputs.model_outputs[0].model_id)
    assert model.tags["bermo.checkpoint"] == row["checkpoint"]
    assert model.artifact_location.startswith(after.as_uri())
    assert not follow_move(after)

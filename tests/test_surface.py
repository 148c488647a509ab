"""The recorded trials that benchmarks search on are those that their tool would run."""

import importlib.util

import pyarrow.parquet as pq

from bermo_ray.trial import Trial
from tests.support.studies import ROOT


def test_recorded_trials_are_the_tools() -> None:
    spec = importlib.util.spec_from_file_location("surface", ROOT / "tools" / "record_surface.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    rows = pq.read_table(ROOT / "benchmarks" / "surface.parquet", columns=["trial"])
    recorded = [Trial.from_json(text) for text in rows["trial"].to_pylist()]
    assert len(recorded) == 514
    assert {trial.id for trial in recorded} == {trial.id for trial in tool.make_trials(256)}
    assert sum(trial.embeddings_frozen for trial in recorded) == 512  # all but the dense ones
    for trial in recorded:
        if trial.fusion.name == "bermo":
            rates = trial.optimizer
            assert rates.fusion_learning_rate == rates.score_learning_rate

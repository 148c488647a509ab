"""The studies' own runs."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.tracking import store
from bermo_ray.tracking.store import store_uri
from bermo_ray.tracking.study_run import open_study


def test_two_first_studies_of_a_kind_share_its_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one makes it after this one has looked."""
    from mlflow import MlflowClient

    uri = store_uri(tmp_path)
    look = MlflowClient.get_experiment_by_name
    first: list[str] = []

    def look_too_early(self: Any, kind: str) -> Any:
        experiment = look(self, kind)
        if not first:
            first.append("")  # the other one's look is not disturbed
            first[0] = open_study(uri, "k", "first", {}, "{}")
        return experiment

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", look_too_early)
    second = open_study(uri, "k", "second", {}, "{}")
    client = store.connect(uri)
    ids = [client.get_run(run_id).info.experiment_id for run_id in (first[0], second)]
    assert ids[0] == ids[1]
    assert [e.name for e in client.search_experiments()].count("k") == 1

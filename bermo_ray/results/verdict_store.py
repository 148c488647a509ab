"""The verdicts of all studies of a store."""

import tempfile
from pathlib import Path

from bermo_ray.results.verdicts import VERDICT_FILE, Verdict, parse_verdicts
from bermo_ray.tracking import store


def load_verdicts(uri: str) -> list[Verdict]:
    """What studies concluded, oldest study first; of studies that kept none, nothing.

    Args:
        uri: An MLflow store.
    """
    client = store.connect(uri)
    verdicts: list[Verdict] = []
    for run in store.all_study_runs(client):
        files = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
        if VERDICT_FILE not in files:
            continue
        with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
            file = client.download_artifacts(run.info.run_id, VERDICT_FILE, folder)
            verdicts += parse_verdicts(Path(file).read_text())
    return verdicts

"""All that a store has of a study, read for its report."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.record import KEPT_WEIGHTS_FILE, Status
from bermo_ray.results.report.study_text import STUDY_TEXT_FILE, StudyText
from bermo_ray.results.table import load
from bermo_ray.results.verdicts import VERDICT_FILE, Verdict, parse_verdicts
from bermo_ray.tracking import reader, store


class NothingToReportError(UserError):
    """A study of which no trial has finished."""


CURVES = ("epoch", "metric", "remaining")  # what is drawn over a training
KeptWeights = list[tuple[str, int, int]]  # (name, weights kept, size) of each masked matrix


@dataclass(frozen=True)
class StudyRecord:
    """A study as its store has it.

    Attributes:
        name: Of the study.
        kind: Of the script, such as ``l0_frontier``.
        uri: Of the store.
        settings: What it was started with, by name.
        tags: Of its run: versions, commit, status.
        table: Its trials, with :data:`bermo_ray.record.SCHEMA`.
        text: What its script said; empty where that was not kept.
        verdicts: What it concluded.
        figures: The text of its SVG files by name, without their endings.
        curves: Of each run the values by step: ``curves[run_id][key][step]``.
    """

    name: str
    kind: str
    uri: str
    settings: Mapping[str, str]
    tags: Mapping[str, str]
    table: pa.Table
    text: StudyText = field(default_factory=StudyText)
    verdicts: Sequence[Verdict] = ()
    figures: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Mapping[str, Mapping[int, float]]] = field(default_factory=dict)

    def read_kept_weights(self, run_id: str) -> KeptWeights:
        """How much a trial kept of each masked matrix; empty where it was not recorded."""
        text = _read_artifacts(store.connect(self.uri), run_id, KEPT_WEIGHTS_FILE)
        entries = json.loads(text[KEPT_WEIGHTS_FILE]) if text else []
        return [(name, kept, size) for name, kept, size in entries]


def read_record(study: str, uri: str) -> StudyRecord:
    """Reads a study.

    Args:
        study: Its name; of several that were given it, the newest is read.
        uri: Of its store.

    Raises:
        UserError: no such study.
        NothingToReportError: none of its trials has finished.
    """
    table = load(study, uri)
    statuses = [Status(status) for status in table["status"].to_pylist()]
    if not any(status.measured for status in statuses):
        counts = {str(status): statuses.count(status) for status in dict.fromkeys(statuses)}
        listed = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none at all"
        raise NothingToReportError(
            f"study {study!r} has no finished trial to report on (trials: {listed}); wait for one, "
            "or resume the study"
        )
    run, client = store.find_study(uri, study), store.connect(uri)
    assert run is not None  # its trials were just read
    files = _read_artifacts(client, run.info.run_id)
    return StudyRecord(
        name=study,
        kind=client.get_experiment(run.info.experiment_id).name,
        uri=uri,
        settings=run.data.params,
        tags=run.data.tags,
        table=table,
        text=StudyText.from_json(files.get(STUDY_TEXT_FILE) or StudyText().to_json()),
        verdicts=parse_verdicts(files.get(VERDICT_FILE) or "[]"),
        figures={
            Path(name).stem: text for name, text in files.items() if name.endswith(_FIGURE_ENDING)
        },
        curves=reader.read_curves(uri, table["run_id"].to_pylist(), CURVES),
    )


_FIGURE_ENDING = ".svg"
_TEXT_ENDINGS = (_FIGURE_ENDING, STUDY_TEXT_FILE, VERDICT_FILE)


def _read_artifacts(client: Any, run_id: str, only: str | None = None) -> dict[str, str]:
    """The text of a run's files by name: of those that a report shows, or of the only one that is
    asked for."""
    names = [artifact.path for artifact in client.list_artifacts(run_id)]
    wanted = [n for n in names if (n == only if only else n.endswith(_TEXT_ENDINGS))]
    with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
        return {
            name: Path(client.download_artifacts(run_id, name, folder)).read_text()
            for name in wanted
        }

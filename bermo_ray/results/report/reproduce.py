"""How to get the same numbers again: command, commit, data, seeds, versions."""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bermo_ray.results.report.blocks import Block, Commands, DataTable, Section
from bermo_ray.results.report.record import StudyRecord

_VERSION = "version."
_MOST_NAMES = 12


def reproduce_section(record: StudyRecord) -> Section:
    """What was run, on what, with which versions, and the settings of the study."""
    blocks: list[Block] = []
    if record.text.command:
        blocks.append(Commands([record.text.command]))
    blocks.append(DataTable(("", ""), _facts(record), title="What was run"))
    versions = sorted(
        (key.removeprefix(_VERSION), value)
        for key, value in record.tags.items()
        if key.startswith(_VERSION)
    )
    if versions:
        blocks.append(DataTable(("package", "version"), versions, summary="Versions"))
    settings = [item for item in sorted(record.settings.items()) if item[1] not in ("None", "()")]
    if settings:
        blocks.append(DataTable(("setting", "value"), settings, summary="All settings"))
    return Section("How to reproduce", blocks)


def _facts(record: StudyRecord) -> list[tuple[str, str]]:
    table = record.table
    data = [json.loads(text or "{}").get("data", {}) for text in table["trial_json"].to_pylist()]
    seconds = sum(value or 0.0 for value in table["seconds"].to_pylist())
    facts = {
        "study": f"{record.name} (studies/{record.kind}.py)",
        "commit": _list_names(table["commit"].to_pylist()),
        "tasks": _list_names(table["task"].to_pylist()),
        "encoders": _list_names(Path(b).name for b in table["backbone"].to_pylist()),
        "seeds": _list_names(sorted(set(table["seed"].to_pylist()))),
        "training rows": _list_names(_rows(entry, "train_rows") for entry in data),
        "dev rows": _list_names(_rows(entry, "dev_rows") for entry in data),
        "data files": _list_names((entry.get("user") or {}).get("train") for entry in data),
        "data folder": _list_names(entry.get("data_dir") for entry in data),
        "hardware": _list_names(table["hardware"].to_pylist()),
        "time of all trials": f"{seconds / 3600:.2f} h" if seconds >= 360 else f"{seconds:.0f} s",
        "table of trials": shlex.join(["bermo-ray", "table", record.name]),
        "this report": shlex.join(["bermo-ray", "report", record.name]),
    }
    return [(name, text) for name, text in facts.items() if text]


def _rows(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    return "all" if value is None else f"{value:g}"


def _list_names(values: Iterable[Any]) -> str:
    names = list(dict.fromkeys(str(value) for value in values if value not in (None, "")))
    more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more

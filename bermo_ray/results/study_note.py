"""A study in a page of Markdown and a few numbers, as MLflow shows it: what came out, the trials on
the frontier, the figure, the files."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError
from bermo_ray.record import Status
from bermo_ray.results.comparison import SHARES, remaining_at_levels
from bermo_ray.results.frontier import GROUP, frontier, hypervolume
from bermo_ray.results.verdicts import Verdict

_COLUMNS = {
    "task": "{}", "backbone": "{}", "fusion": "{}", "method": "{}", "strategy": "{}",
    "layers_dropped": "{}", "multiplier": "{:.3g}", "target_density": "{:.3g}",
    "learning_rate": "{:.1e}", "score_learning_rate": "{:.1e}", "seed": "{}",
}  # fmt: skip
_GAP = "\N{NO-BREAK SPACE}" * 3
_TITLES = {
    "multiplier": "λ", "learning_rate": "rate", "score_learning_rate": "score rate",
    "layers_dropped": "dropped", "target_density": "density asked for",
}  # fmt: skip


@dataclass(frozen=True)
class StudyNote:
    """What a study's description is made of.

    Args:
        question: What the study asks, in a sentence.
        table: Its trials.
        verdicts: What they say of claims.
        images: Addresses of figures to show, by their name.
        files: Addresses of files to link to, by their name.
        link: Gives the address of a trial's page from its ``run_id``.
    """

    question: str
    table: pa.Table
    verdicts: Sequence[Verdict] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    link: Callable[[str], str] = str

    @property
    def headline(self) -> str:
        """What came out, in a sentence."""
        if self.verdicts:
            return " ".join(verdict.sentence for verdict in self.verdicts)
        return describe_statuses(self.table)

    def to_markdown(self, most_characters: int) -> str:
        """The description. Where it would be too long, rows of its table are left out."""
        rows = frontier(self.table).to_pylist()
        for shown in range(len(rows), -1, -1):
            text = self._write(rows, shown)
            if len(text) <= most_characters:
                break
        return text[:most_characters]

    def _write(self, rows: Sequence[Mapping[str, Any]], shown: int) -> str:
        parts = [f"**{self.question}**" if self.question else "", _list_verdicts(self.verdicts)]
        parts.append(describe_statuses(self.table))
        parts += [f"![{name}]({address})" for name, address in self.images.items()]
        if rows:
            is_smaller = any(row["remaining"] < 1 for row in rows)
            parts.append("### Trials on the frontier" if is_smaller else "### Best trials")
            parts.append(_write_table(rows, shown, is_smaller, self.link))
        links = [f"[{name}]({address})" for name, address in self.files.items()]
        parts.append(f"Files: {', '.join(links)}" if links else "")
        return "\n\n".join(filter(None, parts)) + "\n"


def describe_statuses(table: pa.Table) -> str:
    """How the trials ended: ``12 trials: 10 completed, 2 diverged``."""
    statuses = table["status"].to_pylist()
    counts = {status: statuses.count(status) for status in Status if status in statuses}
    ends = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{len(statuses)} trial{'' if len(statuses) == 1 else 's'}: {ends or 'none'}"


def _list_verdicts(verdicts: Sequence[Verdict]) -> str:
    return "\n".join(
        f"- {verdict.sentence} ({verdict.source}: {verdict.claim})" for verdict in verdicts
    )


def _write_table(
    rows: Sequence[Mapping[str, Any]], shown: int, is_smaller: bool, link: Callable[[str], str]
) -> str:
    """The frontier as a table, with only those settings in which its trials differ."""
    varied = [name for name in _COLUMNS if len({row[name] for row in rows}) > 1]
    size = ["remaining"] if is_smaller else []
    heads = [*(_TITLES.get(name, name) for name in varied), *size, _name_metric(rows), "trial"]
    lines = [heads]
    for row in rows[:shown]:
        cells = [_show_setting(name, row[name]) for name in varied]
        cells += [f"{row['remaining']:.1%}"] if is_smaller else []
        cells += [
            f"{row['metric_reported']:.4f}",
            f"[{row['trial_id'][:6]}]({link(row['run_id'])})",
        ]
        lines.append(cells)
    # MLflow leaves no room between the columns of a table.
    written = [f"| {f'{_GAP} | '.join(cells)} |" for cells in lines]
    text = "\n".join([written[0], f"|{'---|' * len(heads)}", *written[1:]])
    left_out = len(rows) - shown
    return f"{text}\n\n… and {left_out} more" if left_out else text


def _name_metric(rows: Sequence[Mapping[str, Any]]) -> str:
    names = {row["metric_name"] for row in rows}
    return str(names.pop() or "metric") if len(names) == 1 else "metric"


def _show_setting(name: str, value: Any) -> str:
    if value is None:
        return ""
    return _COLUMNS[name].format(Path(value).name if name == "backbone" else value)


def measure_study(table: pa.Table, shares: Collection[float] = SHARES) -> dict[str, float]:
    """A study's own numbers, by the names that MLflow shows.

    ``trials`` and how many of them ended in which way; of each group of trials its
    ``best_metric`` (the reported metric of the trial with the best selection metric); where
    encoders get smaller its ``hypervolume`` and, of each fusion, the weights ``remaining_at`` a
    share of the dense baseline's metric. A name ends in what tells the groups apart.
    """
    numbers = {"trials": float(table.num_rows)}
    for status in Status:
        count = pc.sum(pc.equal(table["status"], str(status))).as_py() or 0
        numbers |= {f"trials_{status}": float(count)} if count else {}
    front = frontier(table)
    best = front.sort_by([("metric_selection", "ascending")]).to_pylist()  # the last one stays
    numbers |= {f"best_metric{name}": row["metric_reported"] for name, row in _name_groups(best)}
    if not any(share < 1 for share in front["remaining"].to_pylist()):
        return numbers
    volumes = [row for row in hypervolume(table).to_pylist() if row["method"] != "dense"]
    numbers |= {f"hypervolume{name}": row["hypervolume"] for name, row in _name_groups(volumes)}
    numbers |= _measure_levels(table, shares)
    return {name: value for name, value in numbers.items() if _is_number(value)}


def _measure_levels(table: pa.Table, shares: Collection[float]) -> dict[str, float]:
    try:
        levels = remaining_at_levels(table, list(shares)).to_pylist()
    except UserError:  # there is no dense baseline, or several tasks, so there are no levels
        return {}
    return {f"remaining_at_{row['share']:g}/{row['arm']}": row["remaining"] for row in levels}


def _name_groups(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Each row with what tells its group from the others: ``/bermo``, or nothing for a single one.

    MLflow takes letters, digits, spaces and ``_ - . /`` in a name.
    """
    varied = [key for key in GROUP if len({row[key] for row in rows}) > 1]
    return [("".join(f"/{Path(row[key]).name}" for key in varied), row) for row in rows]


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)

"""How many layers a task can spare, with few trainings (layer dropping, §6.1)."""

import json
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.search.plan import Plan, PreviewRow, preview_row
from bermo_ray.trial import Trial

_LEAST_DEV_ROWS = 4  # two in either half


def is_within(loss: float, threshold: float) -> bool:
    """Whether points lost are within a threshold; 0.976 − 0.966 is one point, not a bit more."""
    return round(loss, 9) <= threshold


def loss_interval(
    undropped: Mapping[int, float], dropped: Mapping[int, float]
) -> tuple[float, float] | None:
    """95 % interval of the mean loss in points, from metrics by seed: Student's t of the paired
    differences. None where fewer than two seeds have both metrics."""
    from scipy.stats import t

    seeds = sorted(undropped.keys() & dropped.keys())
    if len(seeds) < 2:
        return None
    losses = [100 * (undropped[seed] - dropped[seed]) for seed in seeds]
    half_width = t.ppf(0.975, len(losses) - 1) * statistics.stdev(losses) / math.sqrt(len(losses))
    mean = statistics.fmean(losses)
    return float(mean - half_width), float(mean + half_width)


@dataclass
class Line:
    """One task on one encoder: what is known of the metric by the number of layers dropped."""

    base: Trial
    most_dropped: int  # that the strategy can drop
    # count -> seed -> metric; None for a training that failed
    metrics: dict[int, dict[int, float | None]] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)  # counts


class LayerCountSearch(Plan):
    """For each threshold the largest count whose loss against none is within it, on one dev half.

    The loss rises with the count, nearly: a count that is within the threshold and one that is not
    bracket the answer, and halving the bracket finds it with log₂ L trainings instead of L. The
    thresholds share their trainings. A count costs one training for each seed, and its loss is the
    mean over them; a training that failed counts as a loss beyond every threshold.

    Means over few seeds may lie on the wrong side of a threshold. Once a bracket is closed, the
    neighbours of each of its ends whose interval over seeds holds the threshold are trained too.

    Args:
        bases: A trial for each task and encoder, and the most layers that can be dropped from it.
        strategy: Which layers are dropped.
        thresholds: Points of the metric that may be lost.
        seeds: Of the trainings.

    Raises:
        UserError: A threshold below 0, or too few dev rows for two halves.
    """

    chooses = True

    def __init__(
        self,
        bases: Sequence[tuple[Trial, int]],
        strategy: str,
        thresholds: Sequence[float],
        seeds: tuple[int, ...],
    ) -> None:
        if not thresholds or min(thresholds) < 0:
            raise UserError(f"thresholds: got {list(thresholds)}, expected points of 0 or more")
        for base, _ in bases:
            _check_dev_rows(base)
        self.strategy, self.seeds = strategy, tuple(dict.fromkeys(seeds))  # named twice, run once
        self.thresholds = sorted(set(thresholds))
        by_id = {base.id: Line(base, most) for base, most in bases}  # named twice, run once
        self.lines = list(by_id.values())
        self.most_trials = sum(line.most_dropped + 1 for line in self.lines) * len(self.seeds)
        self._waiting: list[Trial] = []
        self._asked: dict[str, tuple[Line, int]] = {}  # trial id -> line, layers dropped

    def trial(self, line: Line, count: int, seed: int) -> Trial:
        """The training with so many layers dropped."""
        drop = {"strategy": self.strategy, "count": count} if count else None
        return line.base.replace(layer_drop=drop, seed=seed)

    def ask(self) -> Trial | None:
        if not self._waiting:
            for line in self.lines:
                for count in self._next_counts(line):
                    self._enqueue(line, count)
        return self._waiting.pop(0) if self._waiting else None

    def _enqueue(self, line: Line, count: int) -> None:
        line.asked.add(count)
        for seed in self.seeds:
            trial = self.trial(line, count, seed)
            self._asked[trial.id] = (line, count)
            self._waiting.append(trial)

    def _next_counts(self, line: Line) -> list[int]:
        """Counts to train next, none twice: without a loss to compare with, no layer dropped."""
        if 0 not in line.asked:
            return [0]
        if self.losses(line).get(0) is None:
            return []
        counts: set[int] = set()
        for threshold in self.thresholds:
            low, high = self.bracket(line, threshold)
            is_closed = high - low <= 1
            counts |= self._doubtful(line, threshold) if is_closed else {(low + high) // 2}
        return sorted(counts - line.asked)

    def _doubtful(self, line: Line, threshold: float) -> set[int]:
        """Neighbours of the ends of a bracket that noise may have put on the wrong side."""
        ends = [k for k in self.bracket(line, threshold) if self._straddles(line, k, threshold)]
        neighbours = {k + step for k in ends for step in (-1, 1)}
        return {k for k in neighbours if 0 < k <= line.most_dropped}

    def _straddles(self, line: Line, count: int, threshold: float) -> bool:
        """Whether the interval of a count's loss holds the threshold; never with one seed."""
        undropped, dropped = (_measured(line.metrics.get(k, {})) for k in (0, count))
        if len(dropped) < len(self.seeds):
            return False
        interval = loss_interval(undropped, dropped)
        if interval is None:
            return False
        return is_within(interval[0], threshold) and not is_within(interval[1], threshold)

    def bracket(self, line: Line, threshold: float) -> tuple[int, int]:
        """The largest count known to be within the threshold, and the next above it that is not."""
        losses = self.losses(line)
        low = max((k for k, loss in losses.items() if is_within(loss, threshold)), default=0)
        return low, min((k for k in losses if k > low), default=line.most_dropped + 1)

    def losses(self, line: Line) -> dict[int, float]:
        """Points lost against no layer dropped, by count, where all seeds have ended."""
        ended = {k: m for k, m in line.metrics.items() if len(m) == len(self.seeds)}
        means = {k: _mean_of_all(metrics.values()) for k, metrics in ended.items()}
        undropped = means.get(0)
        if undropped is None:
            return {}
        return {k: math.inf if m is None else 100 * (undropped - m) for k, m in means.items()}

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        line, count = self._asked[trial.id]
        last = reports[-1] if reports else Report(status=Status.FAILED)
        # A model without dropped layers that is no better than a constant answer can't lose.
        counts = last.status.measured if count else last.status is Status.COMPLETED
        is_usable = counts and last.finite("metric_selection")
        metric = last.metric_selection if is_usable else None
        line.metrics.setdefault(count, {})[trial.seed] = metric

    @property
    def finished(self) -> bool:
        """Nothing waits, nothing runs, and no line wants another count."""
        if self._waiting:
            return False
        for line in self.lines:
            runs = any(len(line.metrics.get(k, {})) < len(self.seeds) for k in line.asked)
            if runs or self._next_counts(line):
                return False
        return True

    def representatives(self) -> list[Trial]:
        return [
            self.trial(line, count, self.seeds[0])
            for line in self.lines
            for count in sorted({0, line.most_dropped})
        ]

    def varied_fields(self) -> frozenset[str]:
        seeds = {"seed"} if len(self.seeds) > 1 else set()
        return super().varied_fields() | {"layer_drop.count"} | seeds

    def preview(self) -> list[PreviewRow]:
        rows = []
        for line in self.lines:
            row = preview_row(line.base) | {"seed": ", ".join(map(str, self.seeds))}
            rows.append(row | {"layers": "all"})
            span = f"{self.strategy} −1 to −{line.most_dropped}, halving"
            rows.append(row | {"layers": span})
        return rows

    def to_json(self) -> str:
        return json.dumps({
            "bases": [json.loads(line.base.to_json()) for line in self.lines],
            "strategy": self.strategy,
            "thresholds": self.thresholds,
            "seeds": self.seeds,
        })  # fmt: skip


def _check_dev_rows(base: Trial) -> None:
    rows = base.data.dev_rows
    if isinstance(rows, int) and rows < _LEAST_DEV_ROWS:
        raise UserError(
            f"data.dev_rows: got {rows}, expected >= {_LEAST_DEV_ROWS}: two rows to choose a count "
            "on and two to verify it on"
        )


def _measured(metrics: Mapping[int, float | None]) -> dict[int, float]:
    return {seed: metric for seed, metric in metrics.items() if metric is not None}


def _mean_of_all(metrics: Collection[float | None]) -> float | None:
    """The mean, or None where one is missing."""
    known = [metric for metric in metrics if metric is not None]
    return statistics.fmean(known) if len(known) == len(metrics) else None

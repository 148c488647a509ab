"""What a study's data say of a claim: an estimate with its interval, and a verdict in a sentence.

A verdict is never stronger than its interval (docs/methods.md §4): a claim of more or less is
settled where the 95 % interval lies on one side of no effect, a claim of no difference where it
lies within a margin that is named beforehand.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, ParamSpec

import numpy as np
import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.intervals import CONFIDENCE, welch_half_width
from bermo_ray.results.means import REPORTED, select, values_by_seed
from bermo_ray.results.schemas import INTEGER, NUMBER, TEXT, make_schema

VERDICT_FILE = "verdict.json"
P = ParamSpec("P")


class Outcome(StrEnum):
    """What the data say of a claim."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    NOT_SETTLED = "not settled"  # the interval holds both
    NO_ANSWER = "no answer"  # nothing could be estimated


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, of 95 % if nothing else is said; the interval's ends are None
    where there is none, as of one seed. ``count`` says how many ``unit``s it stands on."""

    value: float
    low: float | None
    high: float | None
    count: int
    unit: str = "seeds"
    confidence: float = CONFIDENCE


def compare_means(
    first: Mapping[int, float],
    second: Mapping[int, float],
    scale: float = 1.0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """How much higher the second arm's mean is, from values by seed; Welch's interval.

    Args:
        first: The arm that is compared with.
        second: The arm that is compared.
        scale: What the difference is multiplied by: 100 for points.
        confidence: Of the interval.

    Raises:
        UserError: the arms have no seed in common.
    """
    one, other = _common_values(first, second)
    value = float(other.mean() - one.mean())
    half_width = welch_half_width(one, other, confidence)
    estimate = _make_estimate(value, half_width, len(one), scale)
    return dataclasses.replace(estimate, confidence=confidence)


def compare_by_seed(
    table: pa.Table,
    arm: str,
    first: Any,
    second: Any,
    value: str = REPORTED,
    scale: float = 100.0,
    over: Sequence[str] = ("task", "backbone"),
    confidence: float = CONFIDENCE,
) -> Estimate:
    """How much higher a value is for the second arm, in points: of each seed the mean over tasks
    and encoders, then :func:`compare_means`.

    Args:
        table: Trials of both arms.
        arm: The column that tells them apart.
        first: Its value for the arm that is compared with.
        second: Its value for the arm that is compared.
        value: What is compared.
        scale: What the difference is multiplied by.
        over: The columns whose groups count alike in a seed's mean.
        confidence: Of the interval.

    Raises:
        UserError: an arm has no trial, or the arms have no seed in common.
    """
    sides = {}
    for name in (first, second):
        rows = select(table, **{arm: name})
        if rows.num_rows == 0:
            raise UserError(f"{arm}: no trial with {name}, so there is nothing to compare")
        sides[name] = values_by_seed(rows, value, over)
    return compare_means(sides[first], sides[second], scale, confidence)


def compare_ratio(first: Mapping[int, float], second: Mapping[int, float]) -> Estimate:
    """The second arm over the first, of positive values by seed: geometric means, and Welch's
    interval of the difference of logs. Swapping the arms gives the reciprocal.

    Raises:
        UserError: the arms have no seed in common, or a value is not positive.
    """
    one, other = _common_values(first, second)
    if min(one.min(), other.min()) <= 0:
        raise UserError("ratio: got a value that is not positive, which has no ratio")
    logs = compare_means(dict(enumerate(np.log(one))), dict(enumerate(np.log(other))))
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Estimate(math.exp(logs.value), low, high, logs.count)


def estimate_share(count: int, total: int) -> Estimate:
    """A share of so many cases, with Clopper and Pearson's exact interval.

    >>> share = estimate_share(8, 10)
    >>> share.value, round(share.low, 3), round(share.high, 3)
    (0.8, 0.444, 0.975)
    """
    from scipy.stats import binomtest

    if total < 1:
        raise UserError("share: there are no cases")
    ends = binomtest(count, total).proportion_ci(method="exact")
    return Estimate(count / total, float(ends.low), float(ends.high), total)


def compare_shares(first: tuple[int, int], second: tuple[int, int], scale: float = 1.0) -> Estimate:
    """How much larger the second share is, each given as (count, total); Newcombe's interval, which
    is made of both shares' Wilson intervals.

    >>> far = compare_shares((8, 10), (0, 10))
    >>> round(far.value, 3), round(far.low, 3), round(far.high, 3)
    (-0.8, -0.943, -0.384)
    """
    from scipy.stats import binomtest

    if min(first[1], second[1]) < 1:
        raise UserError("share: there are no cases")
    (p, p_ends), (q, q_ends) = (
        (count / total, binomtest(count, total).proportion_ci(method="wilson"))
        for count, total in (first, second)
    )
    low = q - p - math.hypot(q - q_ends.low, p_ends.high - p)
    high = q - p + math.hypot(q_ends.high - q, p - p_ends.low)
    return Estimate(scale * (q - p), scale * low, scale * high, min(first[1], second[1]))


def _common_values(
    first: Mapping[int, float], second: Mapping[int, float]
) -> tuple[np.ndarray, np.ndarray]:
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        one, other = (", ".join(map(str, arm)) or "none" for arm in (first, second))
        raise UserError(
            f"seeds: of the first arm completed {one}, of the second {other}: none in common to "
            "compare by"
        )
    return np.array([first[s] for s in seeds]), np.array([second[s] for s in seeds])


def _make_estimate(value: float, half_width: float, count: int, scale: float) -> Estimate:
    if not math.isfinite(half_width):
        return Estimate(scale * value, None, None, count)
    return Estimate(
        scale * value, scale * (value - half_width), scale * (value + half_width), count
    )


@dataclass(frozen=True)
class Claim:
    """What a paper says, as a number that can be estimated.

    Attributes:
        text: The claim, in a few words.
        source: Paper and table: "BERMo, Table 3".
        quantity: What is estimated, as the beginning of a sentence that ends in the number: "BERMo
            is better than BERT by".
        unit: Behind the number: " points", "×".
        published: The paper's number; None where it gives none.
        expects: Whether the paper says that there is more than no effect, less, or the same.
        no_effect: The number that says that the arms do not differ.
        margin: Of ``same``: how far from no effect still counts as none.
    """

    text: str
    source: str
    quantity: str
    unit: str = " points"
    published: float | None = None
    expects: Literal["more", "less", "same"] = "more"
    no_effect: float = 0.0
    margin: float = 0.0

    def __post_init__(self) -> None:
        if (self.expects == "same") != (self.margin > 0):
            raise ValueError("a claim that arms are the same names a margin, and no other does")


@dataclass(frozen=True)
class Verdict:
    """A claim and what came of it; ``where`` says on what, such as task and encoder."""

    claim: str
    source: str
    published: float | None
    quantity: str
    unit: str
    where: str
    value: float | None
    low: float | None
    high: float | None
    count: int
    outcome: Outcome
    sentence: str
    study: str = ""
    command: str = ""
    confidence: float = CONFIDENCE  # of the interval
    no_effect: float = 0.0  # the number that says that the arms do not differ

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and Arrow."""
        return dataclasses.asdict(self) | {"outcome": str(self.outcome)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Verdict":
        """The inverse of :meth:`to_dict`."""
        return cls(**{**values, "outcome": Outcome(values["outcome"])})


def judge(
    claim: Claim,
    where: str,
    estimate: Callable[P, Estimate],
    *args: P.args,
    **keywords: P.kwargs,
) -> Verdict:
    """The verdict on a claim; what keeps it from being estimated is one too, "no answer".

    Args:
        claim: What the paper says.
        where: On what it is looked at here.
        estimate: Makes the estimate; a :class:`UserError` of it is the reason of no answer.
        args: What it takes.
        keywords: What it takes by name.
    """
    about = (claim.text, claim.source, claim.published, claim.quantity, claim.unit, where)
    try:
        number = estimate(*args, **keywords)
        if not math.isfinite(number.value):
            raise UserError("the estimate is not finite")
    except UserError as error:
        sentence = f"{where}: no answer: {error.problems[0]}"
        return Verdict(
            *about, None, None, None, 0, Outcome.NO_ANSWER, sentence, no_effect=claim.no_effect
        )
    outcome = _weigh(claim, number)
    sentence = f"{where}: {claim.quantity} {_describe(number, claim.unit)}: {outcome}"
    return Verdict(
        *about, number.value, number.low, number.high, number.count, outcome, sentence,
        confidence=number.confidence, no_effect=claim.no_effect,
    )  # fmt: skip


def _weigh(claim: Claim, number: Estimate) -> Outcome:
    low, high = number.low, number.high
    if low is None or high is None:
        return Outcome.NOT_SETTLED
    if claim.expects == "same":
        least, most = claim.no_effect - claim.margin, claim.no_effect + claim.margin
        if least <= low and high <= most:
            return Outcome.AGREES
        return Outcome.CONTRADICTS if high < least or most < low else Outcome.NOT_SETTLED
    if low <= claim.no_effect <= high:
        return Outcome.NOT_SETTLED
    is_more = low > claim.no_effect
    return Outcome.AGREES if is_more == (claim.expects == "more") else Outcome.CONTRADICTS


def _describe(number: Estimate, unit: str) -> str:
    """``0.80× (95 % interval 0.60 to 1.10, 5 seeds)``."""
    cases = number.unit if number.count != 1 else number.unit.removesuffix("s")
    count = f"{number.count} {cases}"
    value = format_number(number.value, unit)
    if number.low is None or number.high is None:
        return f"{value} ({count}, so no interval)"
    ends = " to ".join(format_number(end, "") for end in (number.low, number.high))
    return f"{value} ({100 * number.confidence:.3g} % interval {ends}, {count})"


def format_number(value: float, unit: str) -> str:
    """Three digits that count, and the unit.

    >>> format_number(0.8, "×"), format_number(-12.345, " points")
    ('0.80×', '-12.3 points')
    """
    digits = 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}{unit}"


VERDICTS = make_schema(
    ("study", TEXT, "name of the study"),
    ("claim", TEXT, "what the paper says"),
    ("source", TEXT, "paper and table"),
    ("published", NUMBER, "the paper's number; null where it gives none"),
    ("quantity", TEXT, "what is estimated"),
    ("unit", TEXT, "of the numbers"),
    ("where", TEXT, "on what it was looked at here"),
    ("value", NUMBER, "the estimate; null where there is no answer"),
    ("low", NUMBER, "lower end of its interval; null where there is none"),
    ("high", NUMBER, "upper end of that"),
    ("confidence", NUMBER, "of the interval: 0.95, or more where several are made at once"),
    ("no_effect", NUMBER, "what the estimate is where the arms do not differ"),
    ("count", INTEGER, "seeds, or other cases, that it stands on"),
    ("outcome", TEXT, ", ".join(Outcome)),
    ("sentence", TEXT, "the verdict in words"),
    ("command", TEXT, "what was run"),
)


def verdicts_table(verdicts: Sequence[Verdict]) -> pa.Table:
    """Verdicts as an Arrow table with :data:`VERDICTS`."""
    return pa.Table.from_pylist([verdict.to_dict() for verdict in verdicts], schema=VERDICTS)


def dump_verdicts(verdicts: Sequence[Verdict]) -> str:
    """The text of ``verdict.json``."""
    return json.dumps([verdict.to_dict() for verdict in verdicts], indent=1, ensure_ascii=False)


def parse_verdicts(text: str) -> list[Verdict]:
    """The inverse of :func:`dump_verdicts`."""
    return [Verdict.from_dict(values) for values in json.loads(text)]

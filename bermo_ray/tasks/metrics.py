"""Metrics as the field computes them; each takes whole-split predictions and targets."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bermo_ray.tasks.encoding import IGNORED

Metric = Callable[[Sequence[Any], Sequence[Any], tuple[str, ...]], float]


def accuracy(predicted: Sequence[int], target: Sequence[int], _: tuple[str, ...] = ()) -> float:
    """Share of rows that are right."""
    return float(accuracy_score(target, predicted))


def f1(predicted: Sequence[int], target: Sequence[int], _: tuple[str, ...] = ()) -> float:
    """F1 of class 1; 0 when nothing is predicted as 1."""
    return float(f1_score(target, predicted, zero_division=0))


def matthews(predicted: Sequence[int], target: Sequence[int], _: tuple[str, ...] = ()) -> float:
    """Matthews correlation; 0 when the prediction is constant."""
    return float(matthews_corrcoef(target, predicted))


def spearman(predicted: Sequence[float], target: Sequence[float], _: tuple[str, ...] = ()) -> float:
    """Rank correlation; 0 when the prediction is constant (scipy gives NaN)."""
    from scipy.stats import spearmanr

    if np.ptp(np.asarray(predicted)) == 0 or np.ptp(np.asarray(target)) == 0:
        return 0.0
    return float(spearmanr(predicted, target).statistic)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Spans (type, first, last) of a BIO sequence by seqeval's default rules: an I- that does not
    continue the span before it opens a new one."""
    spans, start, kind = set(), 0, None
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, now = tag.partition("-")
        if kind is not None and (prefix != "I" or now != kind):
            spans.add((kind, start, i - 1))
            kind = None
        if kind is None and prefix in ("B", "I"):
            start, kind = i, now
    return spans


def entity_f1(
    predicted: Sequence[Sequence[int]], target: Sequence[Sequence[int]], labels: tuple[str, ...]
) -> float:
    """Micro F1 over exact entities; tokens whose target is ignored are left out."""
    found = right = wanted = 0
    for p_row, t_row in zip(predicted, target, strict=True):
        kept = [(labels[p], labels[t]) for p, t in zip(p_row, t_row, strict=True) if t != IGNORED]
        p_set, t_set = entities([p for p, _ in kept]), entities([t for _, t in kept])
        found, wanted, right = found + len(p_set), wanted + len(t_set), right + len(p_set & t_set)
    return 2 * right / (found + wanted) if found + wanted else 0.0


def _normal(text: str) -> list[str]:
    """SQuAD's normalisation: lower case, no punctuation, no articles, single spaces."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def span_f1(predicted: Sequence[str], target: Sequence[str], _: tuple[str, ...] = ()) -> float:
    """Mean word-overlap F1 of answer texts, by SQuAD's official rules."""
    scores = []
    for p_text, t_text in zip(predicted, target, strict=True):
        p, t = _normal(p_text), _normal(t_text)
        same = sum((Counter(p) & Counter(t)).values())
        if not p or not t:
            scores.append(float(p == t))
        else:
            scores.append(2 * same / (len(p) + len(t)))
    return float(np.mean(scores))


def masked_accuracy(
    predicted: Sequence[Sequence[int]], target: Sequence[Sequence[int]], _: tuple[str, ...] = ()
) -> float:
    """Share of hidden pieces named right."""
    pairs = [(p, t) for ps, ts in zip(predicted, target, strict=True) for p, t in zip(ps, ts, strict=True)]  # fmt: skip # noqa: E501
    kept = [p == t for p, t in pairs if t != IGNORED]
    return float(np.mean(kept))


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "spearman": spearman,
    "entity_f1": entity_f1,
    "span_f1": span_f1,
    "masked_accuracy": masked_accuracy,
}


def trivial(metric: str, target: Sequence[Any]) -> float:
    """What a constant answer reaches: a run that ends no better has diverged (methods §4)."""
    if metric == "accuracy":
        return max(Counter(target).values()) / len(target)
    if metric == "f1":  # always saying 1
        positive = sum(target) / len(target)
        return 2 * positive / (1 + positive)
    return 0.0

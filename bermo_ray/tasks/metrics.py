"""Metrics as the field computes them; each takes whole-split predictions and targets."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bermo_ray.tasks.encoded import IGNORED

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


def pearson(predicted: Sequence[float], target: Sequence[float], _: tuple[str, ...] = ()) -> float:
    """Linear correlation; 0 when the prediction is constant (scipy gives NaN)."""
    from scipy.stats import pearsonr

    if np.ptp(np.asarray(predicted)) == 0 or np.ptp(np.asarray(target)) == 0:
        return 0.0
    return float(pearsonr(predicted, target).statistic)


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


def _overlap(predicted: str, target: str) -> float:
    p, t = _normal(predicted), _normal(target)
    same = sum((Counter(p) & Counter(t)).values())
    return 2 * same / (len(p) + len(t)) if same else 0.0  # v1.1: no word shared, nothing right


def span_f1(
    predicted: Sequence[str], target: Sequence[Sequence[str]], _: tuple[str, ...] = ()
) -> float:
    """Mean word-overlap F1 with the nearest of each question's answers, by SQuAD's own rules."""
    pairs = zip(predicted, target, strict=True)
    return float(np.mean([max(_overlap(p, text) for text in texts) for p, texts in pairs]))


def exact_match(
    predicted: Sequence[str], target: Sequence[Sequence[str]], _: tuple[str, ...] = ()
) -> float:
    """Share of questions answered as one of their answers says it, by SQuAD's normalisation."""
    pairs = zip(predicted, target, strict=True)
    return float(np.mean([any(_normal(p) == _normal(t) for t in texts) for p, texts in pairs]))


def masked_accuracy(
    predicted: Sequence[Sequence[int]], target: Sequence[Sequence[int]], _: tuple[str, ...] = ()
) -> float:
    """Share of hidden pieces named right."""
    p, t = np.concatenate(list(predicted)), np.concatenate(list(target))
    return float(np.mean((p == t)[t != IGNORED]))


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "spearman": spearman,
    "pearson": pearson,
    "entity_f1": entity_f1,
    "span_f1": span_f1,
    "exact_match": exact_match,
    "masked_accuracy": masked_accuracy,
}


def measured(
    names: Sequence[str],
    predicted: Sequence[Any],
    target: Sequence[Any],
    labels: tuple[str, ...],
    loss: float,
) -> dict[str, float]:
    """The metrics of those names; perplexity is e to the mean loss a hidden piece."""
    return {
        name: _perplexity(loss)
        if name == "perplexity"
        else METRICS[name](predicted, target, labels)
        for name in names
    }


def _perplexity(loss: float) -> float:
    return float(np.exp(loss)) if loss < 700 else float("inf")


def trivial(metric: str, target: Sequence[Any]) -> float:
    """What a constant answer reaches: a run that ends no better has diverged (methods §4)."""
    if metric == "accuracy":
        return max(Counter(target).values()) / len(target)
    if metric == "f1":  # always saying 1
        positive = sum(target) / len(target)
        return 2 * positive / (1 + positive)
    return 0.0

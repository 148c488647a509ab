"""Metrics as the field computes them; each takes the predictions and gold answers of a split.

sklearn and scipy are imported where they are used: they load slowly, and whoever only names a
task needs neither.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bermo_ray.tasks.encoded import IGNORED

Metric = Callable[[Sequence[Any], Sequence[Any], tuple[str, ...]], float]


def accuracy(predicted: Sequence[int], gold: Sequence[int], _: tuple[str, ...] = ()) -> float:
    """Share of rows that are right."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(gold, predicted))


def f1(predicted: Sequence[int], gold: Sequence[int], _: tuple[str, ...] = ()) -> float:
    """F1 of class 1; 0 when nothing is predicted as 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(gold, predicted, zero_division=0))


def matthews(predicted: Sequence[int], gold: Sequence[int], _: tuple[str, ...] = ()) -> float:
    """Matthews correlation; 0 when the prediction is constant."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(gold, predicted))


def spearman(predicted: Sequence[float], gold: Sequence[float], _: tuple[str, ...] = ()) -> float:
    """Rank correlation; 0 when the prediction is constant (scipy gives NaN)."""
    from scipy.stats import spearmanr

    if np.ptp(np.asarray(predicted)) == 0 or np.ptp(np.asarray(gold)) == 0:
        return 0.0
    return float(spearmanr(predicted, gold).statistic)


def pearson(predicted: Sequence[float], gold: Sequence[float], _: tuple[str, ...] = ()) -> float:
    """Linear correlation; 0 when the prediction is constant (scipy gives NaN)."""
    from scipy.stats import pearsonr

    if np.ptp(np.asarray(predicted)) == 0 or np.ptp(np.asarray(gold)) == 0:
        return 0.0
    return float(pearsonr(predicted, gold).statistic)


def find_entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Spans (type, first, last) of a BIO sequence by seqeval's default rules: an I- that does not
    continue the span before it opens a new one."""
    spans, start, kind = set(), 0, None
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, tag_kind = tag.partition("-")
        if kind is not None and (prefix != "I" or tag_kind != kind):
            spans.add((kind, start, i - 1))
            kind = None
        if kind is None and prefix in ("B", "I"):
            start, kind = i, tag_kind
    return spans


def entity_f1(
    predicted: Sequence[Sequence[int]], gold: Sequence[Sequence[int]], labels: tuple[str, ...]
) -> float:
    """Micro F1 over exact entities; tokens whose gold tag is ignored are left out."""
    predicted_count = gold_count = right_count = 0
    for p_row, g_row in zip(predicted, gold, strict=True):
        kept = [(labels[p], labels[g]) for p, g in zip(p_row, g_row, strict=True) if g != IGNORED]
        p_set, g_set = find_entities([p for p, _ in kept]), find_entities([g for _, g in kept])
        predicted_count += len(p_set)
        gold_count += len(g_set)
        right_count += len(p_set & g_set)
    total = predicted_count + gold_count
    return 2 * right_count / total if total else 0.0


def _normalize(text: str) -> list[str]:
    """SQuAD's normalisation: lower case, no punctuation, no articles, single spaces."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def _overlap_f1(predicted: str, gold: str) -> float:
    p, g = _normalize(predicted), _normalize(gold)
    same = sum((Counter(p) & Counter(g)).values())
    return 2 * same / (len(p) + len(g)) if same else 0.0  # v1.1: no word shared, nothing right


def span_f1(
    predicted: Sequence[str], gold: Sequence[Sequence[str]], _: tuple[str, ...] = ()
) -> float:
    """Mean word-overlap F1 with the nearest of each question's answers, by SQuAD's rules."""
    pairs = zip(predicted, gold, strict=True)
    return float(np.mean([max(_overlap_f1(p, text) for text in texts) for p, texts in pairs]))


def exact_match(
    predicted: Sequence[str], gold: Sequence[Sequence[str]], _: tuple[str, ...] = ()
) -> float:
    """Share of questions answered as one of their answers says it, by SQuAD's normalisation."""
    pairs = zip(predicted, gold, strict=True)
    matches = [any(_normalize(p) == _normalize(text) for text in texts) for p, texts in pairs]
    return float(np.mean(matches))


def masked_accuracy(
    predicted: Sequence[Sequence[int]], gold: Sequence[Sequence[int]], _: tuple[str, ...] = ()
) -> float:
    """Share of hidden pieces named right."""
    p, g = np.concatenate(list(predicted)), np.concatenate(list(gold))
    return float(np.mean((p == g)[g != IGNORED]))


def tag_accuracy(
    predicted: Sequence[Sequence[int]], gold: Sequence[Sequence[int]], _: tuple[str, ...] = ()
) -> float:
    """Share of words tagged right."""
    return masked_accuracy(predicted, gold)


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
    "tag_accuracy": tag_accuracy,
}


def measure_metrics(
    names: Sequence[str],
    predicted: Sequence[Any],
    gold: Sequence[Any],
    labels: tuple[str, ...],
    loss: float,
) -> dict[str, float]:
    """The metrics of those names; perplexity is e to the mean loss per hidden piece."""
    return {
        name: _perplexity(loss) if name == "perplexity" else METRICS[name](predicted, gold, labels)
        for name in names
    }


def _perplexity(loss: float) -> float:
    return float(np.exp(loss)) if loss < 700 else float("inf")  # e^700 is near the largest float


def constant_metric(metric: str, gold: Sequence[Any]) -> float:
    """What a constant answer reaches: a run that ends no better has diverged (docs/methods.md
    §4)."""
    if metric == "accuracy":
        return max(Counter(gold).values()) / len(gold)
    if metric == "tag_accuracy":
        return constant_metric("accuracy", np.concatenate(list(gold)).tolist())
    if metric == "f1":  # always saying 1
        positive = sum(gold) / len(gold)
        return 2 * positive / (1 + positive)
    return 0.0

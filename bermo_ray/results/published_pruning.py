"""What BERMo prints of pruned models (Tables 4 and 5), by the names of our tasks and metrics."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from bermo_ray.results.published import published_values
from bermo_ray.results.verdicts import Claim

# Our tasks, and the paper's that stand beside them: those of the same kind, and for other
# classifications QQP, of which the paper claims most.
ASKED = {"tense": "qqp", "paraphrase": "qqp", "entailment": "mnli", "answer_span": "squad"}
# Of the paper's tasks the metric that is compared, by our name.
METRICS = {"mnli": "accuracy", "qqp": "accuracy", "squad": "span_f1"}
# Among a trial's other_metrics what the tables have too, by its name there.
OTHER_METRICS = {"validation_mismatched": "accuracy_mismatched", "f1": "f1"}
MARGIN = 1.0  # points within which two models are comparable

Numbers = dict[tuple[Any, ...], float]


def published_metrics(table: str) -> Numbers:
    """The metrics of T4 or T5 by (task, method, metric_name, fusion), in points of 100; QQP's
    columns of T5, which are swapped, put right."""
    keys = ("task", "method", "quantity", "fusion")
    printed = published_values("bermo", table, keys)
    swapped = {"accuracy": "f1", "f1": "accuracy"} if table == "T5" else {}
    metrics: Numbers = {}
    for (task, method, quantity, fusion), value in printed.items():
        if task is None or quantity == "remaining":
            continue
        name = swapped.get(quantity, quantity) if task == "qqp" else quantity
        metrics[task, method, "span_f1" if task == "squad" else name, fusion] = value
    return metrics | _under_our_names(metrics)


def published_remaining() -> Numbers:
    """The remaining weights of T4 by (task, method, fusion), in per cent."""
    keys = ("task", "method", "fusion")
    printed = published_values("bermo", "T4", keys, quantity="remaining")
    shares = {key: 100 * value for key, value in printed.items()}
    return shares | _under_our_names(shares)


def _under_our_names(values: Numbers) -> Numbers:
    return {
        (ours, *rest): value
        for ours, asked in ASKED.items()
        for (task, *rest), value in values.items()
        if task == asked
    }


def name_asked(tasks: Sequence[str]) -> str:
    """For a title: which of the paper's tasks stand beside ours; nothing where they are the same.

    >>> name_asked(["tense"]), name_asked(["qqp"])
    ('; the paper: qqp', '')
    """
    asked = dict.fromkeys(ASKED[task] for task in tasks if task in ASKED)
    return f"; the paper: {', '.join(asked)}" if asked else ""


def claim_comparable(tasks: Sequence[str], method: str, table: str, how: str) -> Claim:
    """That BERMo and BERT are no more than :data:`MARGIN` apart, with the tasks' mean difference in
    the paper.

    Args:
        tasks: Ours or the paper's.
        method: Of pruning.
        table: T4, or T5 for models that had a teacher.
        how: Which models they are: "with a teacher".
    """
    told = published_metrics(table)
    return Claim(
        f"{how} BERMo and BERT are comparable",
        source=f"BERMo, Table {table[1:]}",
        quantity=f"{how} BERMo is better than BERT by",
        published=mean_difference(tasks, method, (told, "last"), (told, "bermo")),
        expects="same",
        margin=MARGIN,
    )


def mean_difference(
    tasks: Sequence[str],
    method: str,
    first: tuple[Numbers, str],
    second: tuple[Numbers, str],
) -> float | None:
    """How much better the second arm is in the paper, mean over tasks; None where it lacks one.

    Args:
        tasks: Ours or the paper's.
        method: Of pruning.
        first: The metrics (:func:`published_metrics`) and the fusion of the arm that is compared
            with.
        second: The same of the arm that is compared.
    """
    differences = []
    for task in tasks:
        key = (task, method, METRICS.get(ASKED.get(task, task)))
        before, after = (told.get((*key, fusion)) for told, fusion in (first, second))
        if before is None or after is None:
            return None
        differences.append(after - before)
    return fmean(differences)

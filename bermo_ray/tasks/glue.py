"""GLUE (Wang et al., 2018): ``glue/<task>/<part>.parquet``, or the hub."""

from dataclasses import dataclass

from bermo_ray.tasks.heads import CLASSIFICATION, REGRESSION
from bermo_ray.tasks.sources import Hub, Source, read_parquet
from bermo_ray.tasks.task import Task


@dataclass(frozen=True)
class _Glue:
    columns: tuple[str, ...]
    labels: tuple[str, ...]  # none: a number is learned
    metric: str = "accuracy"
    extra_metrics: tuple[str, ...] = ()
    dev: str = "validation"
    extra_dev_sets: tuple[str, ...] = ()


_YES_NO = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")
_TASKS = {
    "sst2": _Glue(("sentence",), ("negative", "positive")),
    "mrpc": _Glue(_SENTENCES, ("not_equivalent", "equivalent"), "accuracy", ("f1",)),
    "mnli": _Glue(
        ("premise", "hypothesis"),
        ("entailment", "neutral", "contradiction"),
        dev="validation_matched",
        extra_dev_sets=("validation_mismatched",),
    ),
    "qnli": _Glue(("question", "sentence"), _YES_NO),
    "qqp": _Glue(
        ("question1", "question2"), ("not_duplicate", "duplicate"), "accuracy", ("f1",)
    ),
    "rte": _Glue(_SENTENCES, _YES_NO),
    "stsb": _Glue(_SENTENCES, (), "spearman", ("pearson",)),
    "cola": _Glue(("sentence",), ("unacceptable", "acceptable"), "matthews", ("accuracy",)),
}  # fmt: skip


def _task(name: str, glue: _Glue) -> Task:
    source = Source(
        lambda part: {f"glue/{name}/{part}.parquet": read_parquet}, Hub("nyu-mll/glue", name)
    )
    return Task(
        name=name,
        head=CLASSIFICATION if glue.labels else REGRESSION,
        labels=glue.labels,
        metric=glue.metric,
        pair=len(glue.columns) == 2,
        open_source=source.open,
        columns=dict(zip(("text", "text_pair"), glue.columns, strict=False)),
        extra_metrics=glue.extra_metrics,
        dev=glue.dev,
        extra_dev_sets=glue.extra_dev_sets,
    )


def tasks() -> dict[str, Task]:
    """All GLUE tasks by name."""
    return {name: _task(name, glue) for name, glue in _TASKS.items()}

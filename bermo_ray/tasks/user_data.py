"""A task of the user's own: files, or a dataset of `datasets`, with their columns named.

1. :func:`describe_user_data` looks at the rows, guesses what is clear, checks every row and gives
   the :class:`UserData` that a trial's ``data.user`` holds.
2. :func:`make_user_task` gives the task that it describes, wherever the trial is trained.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.data_section import USER_METRICS, Data, Kind, UserData
from bermo_ray.errors import UserError, listed
from bermo_ray.tasks.file_rows import FileRows, from_table, read_file
from bermo_ray.tasks.heads import CLASSIFICATION, MASKED, REGRESSION, SPAN, TAGGING, HeadKind
from bermo_ray.tasks.sources import ENCODED_BYTES, MissingPartError, Rows
from bermo_ray.tasks.splits import split_off, split_off_groups
from bermo_ray.tasks.task import Task, sort_labels
from bermo_ray.tasks.user_columns import (
    clean_rows,
    guess_kind,
    guess_label,
    guess_text,
    source_columns,
)

HEAD_OF_KIND: dict[str, HeadKind] = {
    "classification": CLASSIFICATION,
    "regression": REGRESSION,
    "tags": TAGGING,
    "span": SPAN,
    "masked": MASKED,
}
_EXTRA_METRICS = {
    "accuracy": ("matthews",),
    "f1": ("accuracy",),
    "matthews": ("accuracy",),
    "spearman": ("pearson",),
    "pearson": ("spearman",),
    "entity_f1": ("tag_accuracy",),
    "span_f1": ("exact_match",),
    "exact_match": ("span_f1",),
    "masked_accuracy": ("perplexity",),
}
_DEV_SPLITS = ("validation", "dev", "valid", "eval")  # what datasets call theirs
_PLAIN_NAMES = ("train", "training", "data", "all")  # say nothing of what is learned


@dataclass(frozen=True)
class RowSource:
    """Where the rows of one part lie: a file, or a split of a dataset."""

    name: str  # the file's absolute path, or the split's name
    dataset: str | None = None
    config: str | None = None

    def __str__(self) -> str:
        if self.dataset is None:
            return self.name
        return f"{self.dataset}{f':{self.config}' if self.config else ''}, {self.name}"

    def read(self, kind: str | None) -> FileRows:
        """Its rows, not yet checked.

        Raises:
            UserError: it can't be had, or can't be read.
        """
        if self.dataset is None:
            return read_file(Path(self.name), kind)
        return from_table(str(self), _load_split(self))

    def state(self) -> tuple[int, int]:
        """What changes when a file is written again; a dataset is loaded once per process."""
        if self.dataset is not None:
            return (0, 0)
        file = Path(self.name)
        if not file.is_file():
            raise UserError(f"no file {file}")
        return (file.stat().st_size, file.stat().st_mtime_ns)

    def digest(self) -> str:
        """Of its contents."""
        return _digest_source(self, self.state())


def describe_user_data(
    train: str | Path | None = None,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    *,
    text: Sequence[str] = (),
    label: str | None = None,
    kind: Kind | None = None,
    metric: str | None = None,
    dataset: str | None = None,
    dev_share: float = 0.2,
    split_seed: int = 0,
) -> UserData:
    """What a trial needs to know of a user's own data; all rows are read and checked.

    Args:
        train: File to train on (.csv, .tsv, .jsonl, .json, .parquet, .conll, .txt); with
            ``dataset``, the name of its split.
        dev: As ``train``; where there is none, some rows of train are split off.
        test: As ``train``, measured once at the end.
        text: The column of the text, or the two of a pair; guessed by the usual names.
        label: The column of the answers; guessed by the usual names.
        kind: What is learned; guessed by the columns' types.
        metric: What judges: one of ``USER_METRICS[kind]``.
        dataset: ``NAME`` or ``NAME:CONFIG``, a name on the hub or a folder.
        dev_share: Share of the training rows that is split off.
        split_seed: Which rows are split off.

    Raises:
        UserError: with a line for each problem: files, columns, rows, labels.
    """
    sources = _find_places(train, dev, test, dataset)
    first = sources["train"].read(kind)
    if not text:
        text = ("text",) if kind == "masked" and "text" in first.columns else guess_text(first)
    if kind != "masked" and not (kind is None and label is None and [*text] == [*first.columns]):
        label = label or guess_label(first, text)
        kind = kind or _guess_kind(first, text, label)
    elif kind is None:
        raise UserError(f"label: {first.where} has no other column than {listed(text)}")
    user = _validated(
        **{part: source.name for part, source in sources.items()},
        dataset=sources["train"].dataset,
        config=sources["train"].config,
        kind=kind,
        text=list(text),
        label=label,
        metric=metric or USER_METRICS[kind][0],
        dev_share=dev_share,
        split_seed=split_seed,
        digest="",
    )
    train_rows = _check_parts(sources, kind, user.text, label)["train"]
    metric = metric or _usual_metric(kind, train_rows, label)
    _check_labels(kind, train_rows, label, metric)
    return user.model_copy(update={"metric": metric, "digest": _digest(sources)})


def _validated(**values: Any) -> UserData:
    """The section, or what is wrong with it in our words."""
    from pydantic import ValidationError

    try:
        return UserData.model_validate_json(json.dumps(values))
    except ValidationError as error:
        problems = [item["msg"].removeprefix("Value error, ") for item in error.errors()]
        fields = [".".join(map(str, item["loc"])) for item in error.errors()]
        pairs = zip(fields, problems, strict=True)
        raise UserError(*(f"{field}: {p}" if field else p for field, p in pairs)) from None


def name_user_task(train: str | Path | None, dataset: str | None) -> str:
    """A name for the task: the dataset's, the file's or, where that says nothing, its folder's.

    >>> name_user_task("reviews/train.csv", None), name_user_task("stars.csv", None)
    ('reviews', 'stars')
    """
    if dataset is not None:
        return Path(dataset.partition(":")[0]).name
    file = Path(train or "").expanduser().resolve()
    return file.parent.name if file.stem in _PLAIN_NAMES and file.parent.name else file.stem


def make_user_task(data: Data) -> Task:
    """The task that ``data.user`` describes; its classes are those of its training rows."""
    user = data.user
    assert user is not None
    head = HEAD_OF_KIND[user.kind]
    return Task(
        name=data.task,
        head=head,
        labels=(),
        metric=user.metric,
        pair=len(user.text) == 2,
        open_source=_open_part,
        columns=source_columns(user.kind, user.text, user.label),
        extra_metrics=_EXTRA_METRICS.get(user.metric, ()),
        dev="dev",
        test="test" if user.test else None,
        labels_from_data=head in (CLASSIFICATION, TAGGING),
    )


def _find_places(
    train: str | Path | None, dev: str | Path | None, test: str | Path | None, dataset: str | None
) -> dict[str, RowSource]:
    """Where the parts lie that were named."""
    named = {"train": train, "dev": dev, "test": test}
    if dataset is None:
        if train is None:
            raise UserError("train: give the file to train on")
        files = {part: Path(file).expanduser() for part, file in named.items() if file is not None}
        if problems := [f"{part}: no file {f}" for part, f in files.items() if not f.is_file()]:
            raise UserError(*problems)
        return {part: RowSource(str(file.resolve())) for part, file in files.items()}
    path, config = _parse_dataset(dataset)
    splits = _list_splits(path, config)
    named["train"] = train or "train"
    named["dev"] = dev or next((name for name in _DEV_SPLITS if name in splits), None)
    chosen = {part: str(name) for part, name in named.items() if name is not None}
    odd = {part: name for part, name in chosen.items() if name not in splits}
    if odd:
        has = listed(splits)
        raise UserError(
            *(f"{p}: {dataset} has no split {n!r}; it has {has}" for p, n in odd.items())
        )
    return {part: RowSource(name, path, config) for part, name in chosen.items()}


def _parse_dataset(dataset: str) -> tuple[str, str | None]:
    """Path and configuration of ``NAME[:CONFIG]``; a folder's path is made absolute."""
    name, _, config = dataset.partition(":")
    folder = Path(name).expanduser()
    return (str(folder.resolve()) if folder.is_dir() else name), config or None


def _list_splits(path: str, config: str | None) -> list[str]:
    import datasets

    if _is_saved(path):
        return list(datasets.load_from_disk(path))
    return list(_call_datasets(path, partial(datasets.get_dataset_split_names, path, config)))


def _is_saved(path: str) -> bool:
    """Whether a folder was written by ``DatasetDict.save_to_disk``."""
    return (Path(path) / "dataset_dict.json").is_file()


def _call_datasets(path: str, call: Callable[[], Any]) -> Any:
    """What a call of `datasets` gives; its many errors as one line."""
    try:
        return call()
    except Exception as error:  # the hub client raises many kinds
        why = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"dataset: `datasets` does not give {path!r} ({type(error).__name__}: {why})"
        ) from error


@lru_cache(maxsize=3)
def _load_split(source: RowSource) -> pa.Table:
    import datasets

    assert source.dataset is not None
    if _is_saved(source.dataset):
        rows = datasets.load_from_disk(source.dataset)[source.name]
    else:
        load = partial(datasets.load_dataset, source.dataset, source.config, split=source.name)
        rows = _call_datasets(source.dataset, load)
    if not len(rows):
        raise UserError(f"{source}: no rows")
    return rows.flatten_indices().data.table if rows._indices is not None else rows.data.table


@lru_cache(maxsize=16)
def _digest_source(source: RowSource, _: tuple[int, int]) -> str:
    if source.dataset is None:
        with Path(source.name).open("rb") as stream:
            return hashlib.file_digest(stream, "blake2b").hexdigest()
    table = _load_split(source).combine_chunks()  # chunks depend on how it was loaded
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.remove_metadata()) as stream:
        stream.write_table(table.replace_schema_metadata(None))
    return hashlib.blake2b(sink.getvalue()).hexdigest()


def _digest(sources: dict[str, RowSource]) -> str:
    """Of the contents of all parts: 32 hex digits."""
    parts = {part: source.digest() for part, source in sources.items()}
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _guess_kind(rows: FileRows, text: Sequence[str], label: str) -> Kind:
    """Columns that are not there are told by the check of the rows, so that they need no guess."""
    problems: list[str] = []
    for name in (*text, label):
        try:
            rows.column(name)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(*problems)
    return guess_kind(rows, text, label)


@dataclass(frozen=True)
class _CheckedRows:
    """Rows that can be learned from, and what names them in messages."""

    table: pa.Table
    source: FileRows  # without its columns


@lru_cache(maxsize=3)
def _read_checked(
    source: RowSource, _: tuple[int, int], kind: Kind, text: tuple[str, ...], label: str | None
) -> _CheckedRows:
    rows = source.read(kind)
    return _CheckedRows(clean_rows(rows, kind, text, label), replace(rows, columns={}))


def _check_parts(
    sources: dict[str, RowSource], kind: Kind, text: Sequence[str], label: str | None
) -> dict[str, pa.Table]:
    """All parts' rows.

    Raises:
        UserError: with the first problem of each part.
    """
    parts: dict[str, _CheckedRows] = {}
    problems: list[str] = []
    for part, source in sources.items():
        try:
            parts[part] = _read_checked(source, source.state(), kind, tuple(text), label)
            if part != "train" and "train" in parts and label is not None:
                _refuse_new_labels(parts[part], parts["train"].table, kind, label)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(*problems)
    return {part: rows.table for part, rows in parts.items()}


def _refuse_new_labels(rows: _CheckedRows, train: pa.Table, kind: Kind, label: str) -> None:
    """Raises for the first row with a label that no training row has."""
    if kind not in ("classification", "tags") or train[label].type != rows.table[label].type:
        return
    values, parents = rows.table[label], None
    if kind == "tags":
        parents, values = pc.list_parent_indices(values), pc.list_flatten(values)
    if not pa.types.is_string(values.type):
        return  # numbers of classes whose names the file has
    known = sort_labels(train[label])
    index = pc.index(pc.is_in(values, pa.array(known)), False).as_py()
    if index >= 0:
        row = parents[index].as_py() if parents is not None else index
        problem = f"label {values[index].as_py()!r} is in no training row; they have {_few(known)}"
        raise rows.source.error(label, row, problem)


def _few(names: Sequence[str], most: int = 10) -> str:
    return listed(names) if len(names) <= most else f"{listed(names[:most])}, …"


def _usual_metric(kind: Kind, train: pa.Table, label: str | None) -> str:
    """The kind's; of tags that mark no entities, the share that is right."""
    if kind != "tags" or not pa.types.is_string(train[str(label)].type.value_type):
        return USER_METRICS[kind][0]
    tags = sort_labels(train[str(label)])
    return "entity_f1" if any(tag.startswith(("B-", "I-")) for tag in tags) else "tag_accuracy"


def _check_labels(kind: Kind, train: pa.Table, label: str | None, metric: str) -> None:
    """Whether there is a choice to learn, and one that the metric is for."""
    if kind != "classification":
        return
    labels = sort_labels(train[str(label)])
    if len(labels) < 2:
        raise UserError(f"label: all training rows have {labels[0]!r}; there is nothing to learn")
    if metric == "f1" and len(labels) != 2:
        raise UserError(f"metric: f1 is of two classes, {label!r} has {len(labels)}")


def _open_part(data: Data, part: str) -> Rows:
    """Where a part's rows lie, unread.

    Raises:
        MissingPartError: there is no such part.
        UserError: its file is not there.
    """
    user = data.user
    assert user is not None
    sources = {
        name: RowSource(value, user.dataset, user.config)
        for name in ("train", "dev", "test")
        if (value := getattr(user, name)) is not None
    }
    source = sources.get(part) or sources["train"]
    if part == "test" and part not in sources:
        raise MissingPartError(f"task {data.task}: no test part")
    size = ENCODED_BYTES * source.state()[0]

    def stamp() -> bytes:
        if _digest(sources) != user.digest:
            where = listed([str(source) for source in sources.values()])
            raise UserError(f"{where}: changed since the trial was described; start a new study")
        split = (user.dev, user.dev_share, user.split_seed) if part != "test" else ()
        about = (user.digest, part, user.kind, user.text, user.label, split)
        return repr(about).encode()

    def read() -> pa.Table:
        stamp()  # rows of other contents are another trial's
        parts = {part: source} | ({"train": sources["train"]} if part != "train" else {})
        checked = _check_parts(dict(reversed(parts.items())), user.kind, user.text, user.label)
        table = checked[part]
        return table if part == "test" or user.dev else table.take(_split(user, table, part))

    share = {"train": 1 - user.dev_share, "dev": user.dev_share}.get(part, 1.0)
    shown = "" if user.dev or part == "test" else f" ({share:.0%} of its rows)"
    return Rows(f"{source}{shown}", stamp, read, size)


def _split(user: UserData, table: pa.Table, part: str) -> np.ndarray:
    """Indices of the training rows that stay in train, or are split off as dev; those in any order,
    so that the first of them are as good a dev set as all, however a file is sorted."""
    share, seed = user.dev_share, user.split_seed
    if user.kind == "span":  # questions of one context stay together
        stay, gone = split_off_groups(_numbers(table[user.text[1]]), share, seed)
    else:
        classes = _numbers(table[user.label]) if user.kind == "classification" else None
        stay, gone = split_off(table.num_rows, share, seed, classes)
    if not len(gone) or not len(stay):
        raise UserError(
            f"dev_share: {share:g} of {table.num_rows} rows leaves none to measure on; give `dev`"
        )
    return stay if part == "train" else np.random.default_rng(seed).permutation(gone)


def _numbers(values: pa.ChunkedArray) -> np.ndarray:
    """A number for each different value."""
    return values.combine_chunks().dictionary_encode().indices.to_numpy()

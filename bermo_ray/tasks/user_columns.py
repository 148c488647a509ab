"""The columns of a user's own rows: what they are, and that every value is one to learn from."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.data_section import Kind
from bermo_ray.errors import UserError, listed
from bermo_ray.tasks.file_rows import FileRows
from bermo_ray.tasks.sources import class_names
from bermo_ray.tasks.squad import flatten_answers

MOST_GUESSED_CLASSES = 20  # more different whole numbers may be classes or amounts

# Names of columns that are taken where none are given, the most usual first.
_TEXT_NAMES: tuple[tuple[str, ...], ...] = (
    ("question", "context"),
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("text",),
    ("sentence",),
    ("tokens",),
    ("words",),
)
_LABEL_NAMES = ("label", "labels", "score", "tags", "ner_tags", "answers")


def guess_text(rows: FileRows) -> tuple[str, ...]:
    """The column or columns of text, by their usual names.

    Raises:
        UserError: none has such a name.
    """
    for names in _TEXT_NAMES:
        if set(names) <= set(rows.columns):
            return names
    raise UserError(f"text: which column is it? {rows.where} has {listed([*rows.columns])}")


def guess_label(rows: FileRows, text: Sequence[str]) -> str:
    """The column of answers: by its usual name, or the only one that is left.

    Raises:
        UserError: neither is there.
    """
    others = [name for name in rows.columns if name not in text]
    usual = [name for name in _LABEL_NAMES if name in others]
    if usual or len(others) == 1:
        return (usual or others)[0]
    raise UserError(f"label: which column is it? {rows.where} has {listed(others) or 'no other'}")


def guess_kind(rows: FileRows, text: Sequence[str], label: str) -> Kind:
    """What is learned, by the types of the columns.

    Raises:
        UserError: whole numbers that may be classes or amounts.
    """
    values = rows.column(label)
    if pa.types.is_list(rows.column(text[0]).type):
        return "tags"
    if pa.types.is_struct(values.type):
        return "span"
    if _class_names(rows, label) or pa.types.is_boolean(values.type):
        return "classification"
    numbers = _to_numbers(values)
    if numbers is None:
        return "classification"
    if not pc.all(pc.equal(pc.floor(numbers), numbers)).as_py():
        return "regression"
    count = pc.count_distinct(numbers).as_py()
    if count <= MOST_GUESSED_CLASSES:
        return "classification"
    raise UserError(
        f"kind: column {label!r} of {rows.where} has {count} different whole numbers; give "
        "classification or regression"
    )


def _to_numbers(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The values as numbers, without those that are missing; None where some are no numbers."""
    if pa.types.is_string(values.type):
        values = pc.if_else(pc.equal(pc.utf8_trim_whitespace(values), ""), None, values)
    try:
        return pc.drop_null(values).cast(pa.float64())
    except pa.ArrowException:
        return None


def _class_names(rows: FileRows, column: str) -> tuple[str, ...]:
    """Names of a column's classes where a file gives them."""
    empty = pa.table({}).replace_schema_metadata(rows.metadata)
    return class_names(empty, column)


def source_columns(kind: Kind, text: Sequence[str], label: str | None) -> dict[str, str]:
    """What the columns of a head kind are called at the source."""
    if kind == "tags":
        return {"words": text[0], "tags": str(label)}
    names = dict(zip(("text", "text_pair"), text, strict=False))
    return names | ({"label": label} if label and kind != "span" else {})


def clean_rows(rows: FileRows, kind: Kind, text: Sequence[str], label: str | None) -> pa.Table:
    """The rows' columns of that kind, under the names of their source: text that is there, classes
    by name, numbers as numbers, answers as lists.

    Raises:
        UserError: a column that is not there, or the first row without text or answer.
    """
    columns: Mapping[str, pa.ChunkedArray]
    if kind == "tags":
        columns = {text[0]: _clean_words(rows, text[0]), str(label): _clean_tags(rows, str(label))}
    else:
        columns = {name: _clean_text(rows, name) for name in text}
        if kind == "classification":
            columns |= {str(label): _clean_classes(rows, str(label))}
        elif kind == "regression":
            columns |= {str(label): _clean_numbers(rows, str(label))}
        elif kind == "span":
            columns |= _clean_answers(rows, str(label))
    return pa.table(dict(columns)).replace_schema_metadata(rows.metadata)


def _refuse(rows: FileRows, column: str, wrong: pa.ChunkedArray, problem: str) -> None:
    """Raises for the first row that is true in ``wrong``."""
    if (row := pc.index(wrong, True).as_py()) >= 0:
        raise rows.error(column, row, problem)


def _clean_text(rows: FileRows, name: str) -> pa.ChunkedArray:
    values = rows.column(name)
    if pa.types.is_null(values.type):
        raise rows.error(name, 0, "no text")
    if not pa.types.is_string(values.type):
        raise rows.error(name, 0, f"expected text, found {values.type}")
    _refuse(rows, name, _is_blank(values), "no text")
    return values


def _is_blank(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), True)


def _clean_classes(rows: FileRows, name: str) -> pa.ChunkedArray:
    """Classes by name; by number where the file has names for the numbers."""
    values = rows.column(name)
    _refuse(rows, name, pc.is_null(values, nan_is_null=True), "no label")
    if pa.types.is_string(values.type):
        _refuse(rows, name, _is_blank(values), "no label")
        return values
    if pa.types.is_integer(values.type) and _class_names(rows, name):
        return values
    if pa.types.is_floating(values.type):
        fraction = pc.not_equal(pc.floor(values), values)
        _refuse(rows, name, fraction, "a fraction is no class; give `kind` regression")
        values = values.cast(pa.int64())
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return values.cast(pa.string())
    raise rows.error(name, 0, f"expected classes, found {values.type}")


def _clean_numbers(rows: FileRows, name: str) -> pa.ChunkedArray:
    values = rows.column(name)
    is_text = pa.types.is_string(values.type)
    missing = _is_blank(values) if is_text else pc.is_null(values, nan_is_null=True)
    _refuse(rows, name, missing, "no label")
    try:
        numbers = pc.utf8_trim_whitespace(values).cast(pa.float64()) if is_text else values
        numbers = numbers.cast(pa.float64())
    except pa.ArrowException:
        row = next(i for i, value in enumerate(values.to_pylist()) if not _is_number(value))
        problem = f"{values[row].as_py()!r} is no number; give `kind` classification"
        raise rows.error(name, row, problem) from None
    _refuse(rows, name, pc.invert(pc.is_finite(numbers)), "no number to learn")
    return numbers


def _is_number(value: object) -> bool:
    try:
        pa.scalar(str(value).strip()).cast(pa.float64())
    except pa.ArrowException:
        return False
    return True


def _clean_words(rows: FileRows, name: str) -> pa.ChunkedArray:
    values = rows.column(name)
    if not pa.types.is_list(values.type):
        problem = f"expected a list of words, found {values.type}; tags have words as lists"
        raise rows.error(name, 0, problem)
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    _refuse(rows, name, pc.equal(lengths, 0), "no words")
    return values


def _clean_tags(rows: FileRows, name: str) -> pa.ChunkedArray:
    """Tags by name; by number where the file has names for the numbers."""
    values = _clean_words(rows, name)
    inner = values.type.value_type
    if pa.types.is_integer(inner) and not _class_names(rows, name):
        return values.cast(pa.list_(pa.string()))
    return values


def _clean_answers(rows: FileRows, name: str) -> dict[str, pa.ChunkedArray]:
    """``answers`` and ``answer_starts``, lists, from SQuAD's column of both."""
    values = rows.column(name)
    if not pa.types.is_struct(values.type):
        raise rows.error(name, 0, f"expected text and answer_start, found {values.type}")
    table = flatten_answers(rows.where, pa.table({"answers": values}))
    count = pc.fill_null(pc.list_value_length(table["answers"]), 0)
    problem = "no answer; questions without one (SQuAD 2.0) are not learned: take them out"
    _refuse(rows, name, pc.equal(count, 0), problem)
    return {"answers": table["answers"], "answer_starts": table["answer_starts"]}

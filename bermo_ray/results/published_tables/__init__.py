"""How a table that is written down as its paper prints it becomes rows of one number each.

A block has a header and lines of cells, with ``|`` between labels and numbers, and headings that
hold for the lines below them::

    fusion     | SST-2:accuracy MNLI:accuracy/accuracy_mismatched
    seed = 63
    BERT_BASE  | 91.74          80.58/81.2
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

Row = dict[str, Any]

# The papers' words -> ours, in labels, headers and settings alike.
OUR_WORDS = {
    "SST-2": "sst2",
    "MNLI": "mnli",
    "QNLI": "qnli",
    "QQP": "qqp",
    "STS-B": "stsb",
    "RTE": "rte",
    "MRPC": "mrpc",
    "SQuAD": "squad",
    "Sentlen": "senteval/sentence_length",
    "WC": "senteval/word_content",
    "TreeDepth": "senteval/tree_depth",
    "TopConst": "senteval/top_constituents",
    "Bshift": "senteval/bigram_shift",
    "Tense": "senteval/past_present",
    "SubjNum": "senteval/subj_number",
    "ObjNum": "senteval/obj_number",
    "Somo": "senteval/odd_man_out",
    "CoordInv": "senteval/coordination_inversion",
    "CoNLL-03": "conll2003",
    "WikiAnn": "wikiann",
    "WikiText-2": "wikitext2",
    "BERT_BASE": "last",
    "BERMo_BASE": "bermo",
    "Base": "last",
    "Base+n": "extra_layers",
    "RoBERTa+": "extra_layers",
    "Average": "mean",
    "Concat": "concat",
    "DWAtt": "dwatt",
    "Magnitude": "magnitude",
    "L0": "l0",
    "Movement": "movement",
    "topK": "movement",
    "Soft_Movement": "soft_movement",
    "sigmoided_threshold": "soft_movement",
    "BERT": "bert-base-uncased",
    "RoBERTa": "roberta-base",
    "XLNet": "xlnet-base-cased",
    "ALBERT": "albert-base",
    "DistilBERT": "distilbert-base-uncased",
    "DistilRoBERTa": "distilroberta-base",
}
_WHOLE = ("seed", "shots", "epochs", "layers_dropped")
_UNITS = {"%": Decimal("0.01"), "k": Decimal(10**3), "M": Decimal(10**6)}


@dataclass(frozen=True)
class Paper:
    """What one paper prints: numbers, and the settings that they were trained with."""

    results: list[Row]
    settings: list[Row]


def read_number(text: str) -> float:
    """A printed number: shares for ``%``, ``M`` and ``k`` multiplied out, ``↓`` positive (so many
    points lost), ``↑`` negative.

    >>> read_number("10.1%"), read_number("1.26↑"), read_number("110M")
    (0.101, -1.26, 110000000.0)
    """
    digits = text.rstrip("↓↑")
    number = Decimal(digits.rstrip("%kM")) * _UNITS.get(digits[-1], Decimal(1))
    return float(-number if text.endswith("↑") else number)


def our_word(column: str, text: str) -> str | int | float | None:
    """A label as its column has it: our name, a whole number, a threshold; None for ``-``."""
    if text == "-":
        return None
    if column in _WHOLE:
        return int(text)
    return float(text) if column == "threshold" else OUR_WORDS.get(text, text)


def read_block(block: str, over: str = "task", **common: Any) -> list[Row]:
    """The rows of a block as above.

    Args:
        block: header, headings and lines. A head is a value of ``over`` and, after a colon, the
            quantities that a cell of it holds. ``80.58/81.2`` and ``92.20(0.23↓)`` are cells of
            two numbers, ``-`` is one of none, and ``Diverges`` a number that is null.
        over: the column that the heads right of ``|`` fill.
        common: columns that are the same in all rows.
    """
    common = {"about": False} | common
    header, *lines = block.strip().splitlines()
    columns, heads = (part.split() for part in header.split("|"))
    rows: list[Row] = []
    for line in lines:
        if "|" not in line:
            common = common | _read_heading(line)
            continue
        labels, cells = (part.split() for part in line.split("|"))
        words = {c: our_word(c, label) for c, label in zip(columns, labels, strict=True)}
        for head, cell in zip(heads, cells, strict=True):
            rows += _read_cell(head, cell, over, common | words)
    return rows


def _read_heading(line: str) -> Row:
    """``seed = 63, quantity = accuracy``."""
    pairs = (part.split("=") for part in line.split(","))
    return {name.strip(): our_word(name.strip(), value.strip()) for name, value in pairs}


def _read_cell(head: str, cell: str, over: str, given: Row) -> list[Row]:
    name, _, quantities = head.partition(":")
    row = given | {over: our_word(over, name)}
    numbers = [] if cell == "-" else re.split(r"[/(]", cell.rstrip(")"))
    names = quantities.split("/") if quantities else [row["quantity"]]
    if len(numbers) > len(names):
        raise ValueError(f"{head}: got {cell}, expected {len(names)} numbers")
    return [
        row | {"quantity": quantity} | _read_value(number)
        for quantity, number in zip(names, numbers, strict=False)  # undropped models lose nothing
    ]


def _read_value(text: str) -> Row:
    if text == "Diverges":
        return {"value": None, "note": "diverges"}
    return {"value": read_number(text)}


def fact(
    table: str, quantity: str, value: float | None, note: str, about: bool = True, **columns: Any
) -> Row:
    """One number of the running text or of a figure; ``value`` is None where none is printed."""
    return {"table": table, "quantity": quantity, "value": value, "note": note, "about": about} | (
        columns
    )


def select(rows: list[Row], **where: Any) -> list[Row]:
    """The rows that have those values; there has to be one.

    Raises:
        LookupError: if no row has them, so that no annotation is lost to a misspelt name.
    """
    selected = [row for row in rows if all(row.get(key) == val for key, val in where.items())]
    if not selected:
        raise LookupError(f"no row has {where}")
    return selected


def annotate(rows: list[Row], note: str, **where: Any) -> None:
    """Adds a note to the rows that have those values, after the notes that are there."""
    for row in select(rows, **where):
        row["note"] = f"{row['note']}; {note}" if row.get("note") else note


def read_settings(block: str, names: Mapping[str, str], **common: Any) -> list[Row]:
    """The rows of a table of hyperparameters, its settings renamed by ``names``.

    A line with one cell holds for all heads (tasks); a name may end in a fusion in brackets, for
    which alone it holds. Sizes of batches are multiplied by the number of GPUs.
    """
    header, *lines = block.strip().splitlines()
    tasks = [our_word("task", task) for task in header.split("|")[1].split()]
    rows: list[Row] = []
    for line in lines:
        label, cells = (part.split() for part in line.split("|"))
        setting, _, fusion = label[0].rstrip(")").partition("(")
        row = common | {"setting": names.get(setting, setting)}
        row |= {"fusion": our_word("fusion", fusion)} if fusion else {}
        spread = cells * len(tasks) if len(cells) == 1 else cells
        rows += [
            row | {"task": task} | _read_setting(cell)
            for task, cell in zip(tasks, spread, strict=True)
        ]
    return _over_all_gpus(rows)


def _read_setting(text: str) -> Row:
    try:
        return {"value": read_number(text)}
    except InvalidOperation:
        word = OUR_WORDS.get(text, text)
        return {"text": word} | ({"note": f"printed as {text}"} if word != text else {})


def _over_all_gpus(rows: list[Row]) -> list[Row]:
    """``per_gpu_train_batch_size`` becomes our ``batch_size``."""
    gpus = {row["task"]: row["value"] for row in rows if row["setting"] == "number_of_gpus"}
    for row in rows:
        if row["setting"] == "per_gpu_train_batch_size":
            count = gpus[row["task"]]
            note = f"{row['value']:g} per GPU, {count:g} GPU{'s' if count > 1 else ''}"
            row |= {"setting": "batch_size", "value": row["value"] * count, "note": note}
    return rows

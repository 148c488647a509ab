"""What the three papers print: every table, and what their text says of figures, as Arrow data.

``published("bermo", "T4")`` is Table 4 with one number per row, in our names;
``hyperparameters("bermo", "T9")`` is how it was trained. Slips of the papers are kept as printed,
and ``note`` says what is meant.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bermo_ray.errors import UserError, unknown
from bermo_ray.results.published_tables import Row
from bermo_ray.results.published_tables.bermo import BERMO
from bermo_ray.results.published_tables.dwatt import DWATT
from bermo_ray.results.published_tables.layer_dropping import LAYER_DROPPING
from bermo_ray.results.schemas import FLAG, INTEGER, NUMBER, TEXT, make_schema

PAPERS = {"bermo": BERMO, "dwatt": DWATT, "layer_dropping": LAYER_DROPPING}

PUBLISHED = make_schema(
    ("paper", TEXT, "bermo, dwatt or layer_dropping"),
    ("table", TEXT, "'T4' is Table 4, 'F5' what is said of Figure 5, 'text' the running text"),
    ("task", TEXT, "our name; null: over several tasks, or of none; 'wikiann': many languages"),
    ("backbone", TEXT, ""),
    ("fusion", TEXT, "'last' is the papers' base model; null where several are meant"),
    (
        "method",
        TEXT,
        "of pruning, 'dense' for none; in layer_dropping T6 another paper's way to a small model, "
        "and in T7 'warm_start' for a model fine-tuned before its layers were dropped",
    ),
    ("strategy", TEXT, "of layer dropping; 'none' for the undropped model"),
    ("layers_dropped", INTEGER, "how many"),
    (
        "threshold",
        NUMBER,
        "points that may be lost; of strategy contribution: similarity above which a layer goes",
    ),
    ("seed", INTEGER, "null: over several seeds, or not said"),
    ("shots", INTEGER, "few-shot: training rows per class"),
    ("epochs", INTEGER, "of training; null: not said"),
    ("mode", TEXT, "finetune or features"),
    (
        "quantity",
        TEXT,
        "what the number is: a metric (accuracy, accuracy_mismatched, f1, spearman), or a "
        "difference, loss, mean or standard_deviation of the task's, in points of 100; perplexity; "
        "remaining, inference_time_saved and the like, as shares of 1; speedup and ratio; "
        "parameters, train_rows and others, as counts",
    ),
    ("value", NUMBER, "as printed; null: the run diverges, or no number is printed (see note)"),
    (
        "about",
        FLAG,
        "rounded, derived, or said of a figure; false: printed as it is, in a table or as a fact",
    ),
    ("note", TEXT, "what else is said, or what is meant where the paper slips"),
)
HYPERPARAMETERS = make_schema(
    ("paper", TEXT, "bermo, dwatt or layer_dropping"),
    ("table", TEXT, "'T7' is Table 7, '9.1' and 'A.1.1' are sections"),
    ("task", TEXT, "null: all of the paper's; 'wikiann': every language"),
    ("fusion", TEXT, "null: all"),
    ("method", TEXT, "of pruning, 'dense' for none; null: all"),
    (
        "setting",
        TEXT,
        "path of a Trial's field, such as optimizer.learning_rate; where we have none, the "
        "paper's own name",
    ),
    ("value", NUMBER, "one of several rows where a study varies it; null where it is a text"),
    ("text", TEXT, "of a setting that is no number"),
    ("note", TEXT, "what else is said, or what is meant where the paper slips"),
)


def published(paper: str, table: str | None = None) -> pa.Table:
    """The numbers that a paper prints, one per row.

    Args:
        paper: ``bermo``, ``dwatt`` or ``layer_dropping``.
        table: ``T4`` for Table 4, ``F5`` for Figure 5, ``text`` for the running text; None: all.

    Returns:
        A table of the schema :data:`PUBLISHED`.

    Raises:
        UserError: of a paper or table that is not there, with the nearest names.
    """
    _check_paper(paper)
    return _to_arrow(PAPERS[paper].results, paper, table, PUBLISHED)


def published_values(
    paper: str, table: str, keys: Sequence[str], **values: Any
) -> dict[tuple[Any, ...], float]:
    """A table's numbers by columns of it: ``published_values("bermo", "T1", ("task", "fusion"),
    quantity="accuracy")["sst2", "bermo"]``.

    Args:
        paper: As of :func:`published`.
        table: As of :func:`published`.
        keys: The columns that make a key.
        values: What other columns must be; None for null. A number that is null is left out.
    """
    rows = published(paper, table).to_pylist()
    wanted = [row for row in rows if all(row[name] == value for name, value in values.items())]
    return {
        tuple(row[key] for key in keys): row["value"] for row in wanted if row["value"] is not None
    }


def hyperparameters(paper: str, table: str | None = None) -> pa.Table:
    """The settings that a paper trained with, one per row.

    Args:
        paper: ``bermo``, ``dwatt`` or ``layer_dropping``.
        table: ``T7`` for Table 7, ``9.1`` for a section; None: all.

    Returns:
        A table of the schema :data:`HYPERPARAMETERS`.

    Raises:
        UserError: of a paper or table that is not there, with the nearest names.
    """
    _check_paper(paper)
    return _to_arrow(PAPERS[paper].settings, paper, table, HYPERPARAMETERS)


def _check_paper(paper: str) -> None:
    if paper not in PAPERS:
        raise UserError(unknown("paper", paper, PAPERS))


def _to_arrow(rows: list[Row], paper: str, table: str | None, schema: pa.Schema) -> pa.Table:
    known = dict.fromkeys(str(row["table"]) for row in rows)
    if table is not None and table not in known:
        raise UserError(unknown(f"table of {paper}", table, known))
    wanted = [row | {"paper": paper} for row in rows if table in (None, row["table"])]
    return pa.Table.from_pylist(wanted, schema=schema)

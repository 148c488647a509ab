"""A user's own files, written small."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def write_rows(file: Path, rows: Sequence[Row]) -> Path:
    """The rows as CSV, TSV or JSON lines, by the file's ending."""
    with file.open("w", newline="") as stream:
        if file.suffix == ".jsonl":
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            delimiter = "\t" if file.suffix == ".tsv" else ","
            writer = csv.DictWriter(stream, [*rows[0]], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    return file


def reviews(count: int = 40) -> list[Row]:
    """Rows of two classes, three of four of them good, in words of the embedded language."""
    return [
        {
            "id": i,
            "review": f"the dog {'sees' if i % 4 else 'saw'} the cat {'.' * (1 + i // 4 % 9)}",
            "stars": "good" if i % 4 else "bad",
        }
        for i in range(count)
    ]

"""Rows to word pieces, once per node.

A split is encoded as a whole, once for each tokenizer and length, and kept as one Arrow file that
all trials and workers of a node map into memory; what a trial takes of it are row numbers.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bermo_ray import cache
from bermo_ray.errors import UserError
from bermo_ray.tasks.encoded import EncodedRows, Ragged
from bermo_ray.tasks.task import Split, Task
from bermo_ray.trial import Data

FORMAT = b"4"  # of the files' layout; another number makes older files unfindable


def encode_split(task: Task, data: Data, split: Split, seed: int, tokenizer: Any) -> EncodedRows:
    """The rows that a trial takes of a split, encoded."""
    encoded = encode_part(task, data, task.part_of(split), tokenizer)
    return take_chosen(task, data, split, seed, encoded)


def take_chosen(
    task: Task, data: Data, split: Split, seed: int, encoded: EncodedRows
) -> EncodedRows:
    """What a trial takes of a whole part: of its questions, where those have several windows."""
    numbers, first = np.unique(encoded.row_numbers, return_index=True)
    chosen = task.choose_rows(data, split, seed, len(numbers))
    if len(chosen) == len(numbers):
        return encoded
    if len(numbers) == len(encoded):
        return encoded.take(chosen)
    bounds = np.append(first, len(encoded))
    windows = [np.arange(bounds[question], bounds[question + 1]) for question in chosen]
    return encoded.take(np.concatenate(windows))


def encode_part(task: Task, data: Data, part: str, tokenizer: Any) -> EncodedRows:
    """All rows of a part, encoded; from the node's cache, or put there."""
    folder = cache.find_folder("encoded")
    if folder is None:
        return encode_rows(task, task.read_rows(data, part), tokenizer, data.max_length)
    source = task.open_source(data, part)

    def write(file: Path) -> None:
        rows = task.read_rows(data, part)
        table = _encode_table(task, rows, tokenizer, data.max_length)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    def read(file: Path) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(str(file))).read_all()

    about = (task.name, task.head.name, task.labels, part, task.running_text, data.max_length)
    digest = hashlib.blake2b(FORMAT + repr(about).encode(), digest_size=16)
    digest.update(source.stamp())
    digest.update(_stamp_tokenizer(tokenizer))
    table = cache.read_or_make(folder / f"{digest.hexdigest()}.arrow", source.size, write, read)
    return _to_encoded_rows(task, table, tokenizer)


def encode_rows(task: Task, rows: pa.Table, tokenizer: Any, max_length: int) -> EncodedRows:
    """These rows, encoded; nothing is cached."""
    return _to_encoded_rows(task, _encode_table(task, rows, tokenizer, max_length), tokenizer)


def _encode_table(task: Task, rows: pa.Table, tokenizer: Any, max_length: int) -> pa.Table:
    """All that training and evaluation need of the rows, one table row per encoded row."""
    columns = task.head.encode(task, rows, tokenizer, max_length)
    if not columns["input_ids"]:
        raise UserError(f"task {task.name}: its text gives no row of {max_length} pieces")
    return pa.table({name: _to_arrow(name, values) for name, values in columns.items()})


def _to_arrow(name: str, values: Any) -> pa.Array:
    """Lists of numbers as one flat array with offsets; other values as Arrow has them."""
    first = values[0]
    if not isinstance(first, (list, np.ndarray)) or (len(first) and isinstance(first[0], str)):
        return pa.array(values)
    dtype = np.int8 if name == "token_type_ids" else np.int32
    flat = np.concatenate([np.asarray(row, dtype=dtype) for row in values])
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in values])])
    return pa.LargeListArray.from_arrays(offsets, flat)


def _to_encoded_rows(task: Task, table: pa.Table, tokenizer: Any) -> EncodedRows:
    # One chunk each, taken as it is: combining would copy what is mapped.
    columns = {name: table[name].chunk(0) for name in table.column_names}
    columns = {name: Ragged.of(c) if _is_ragged(c) else c for name, c in columns.items()}
    gold = {name: columns[name] for name in task.head.gold_names}
    return EncodedRows(
        task=task,
        inputs={n: columns[n] for n in ("input_ids", "token_type_ids") if n in columns},
        gold={n: v if isinstance(v, Ragged) else v.to_numpy() for n, v in gold.items()},
        row_numbers=columns["row"].to_numpy(),
        pad_id=tokenizer.pad_token_id,
        pad_left=tokenizer.padding_side == "left",
        extras={name: columns[name] for name in task.head.extra_names},
        redraw=task.head.make_redraw(tokenizer),
    )


def _is_ragged(column: pa.Array) -> bool:
    return bool(pa.types.is_large_list(column.type))


def _stamp_tokenizer(tokenizer: Any) -> bytes:
    """A digest of a tokenizer's rules and words, not of the settings of its last call."""
    import tokenizers
    import transformers

    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    about = [rules | {"truncation": None, "padding": None}, tokenizer.padding_side]
    about += [type(tokenizer).__name__, tokenizer.model_input_names, tokenizer.all_special_ids]
    about += [tokenizer.truncation_side]
    about += [transformers.__version__, tokenizers.__version__]
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode()).digest()

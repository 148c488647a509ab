"""How long inference takes on a task's own rows, by the number of layers (layer dropping, Table 3).

A random batch of one shape says how fast a forward is; rows of a dev set have their own lengths,
and time goes into embeddings and head too, which dropped layers do not save.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import torch

from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.tasks.registry import resolve_task
from bermo_ray.tasks.task import Task
from bermo_ray.training.latency import CPU
from bermo_ray.training.model import build_model, starting_depth
from bermo_ray.trial import Trial

INFERENCE_BATCH = 32  # rows, as in Table 3
INFERENCE_TIMES = pa.schema([
    pa.field("task", pa.string(), metadata={"meaning": "whose dev rows were read"}),
    pa.field("backbone", pa.string()),
    pa.field("layers_left", pa.int64()),
    pa.field("round", pa.int64(), metadata={"meaning": "all depths in turn, from 0"}),
    pa.field("rows", pa.int64(), metadata={"meaning": "of the dev set, in batches of 32"}),
    pa.field("seconds", pa.float64(), metadata={"meaning": "for all of these rows"}),
])  # fmt: skip


def inference_times(
    trial: Trial,
    depths: Iterable[int],
    rounds: int = 9,
    most_rows: int = 1024,
    device: torch.device = CPU,
    threads: int = 1,
) -> pa.Table:
    """Seconds that inference on the task's dev rows takes, a row for each depth and round.

    Which layers are left, and what they learned, changes nothing about the time, so each depth is
    the trial's encoder without its top layers. The depths take turns with every batch, so that a
    busy moment hits all of them; a first round that warms up is not counted.

    Args:
        trial: Task, rows and encoder.
        depths: Numbers of layers left.
        rounds: That count.
        most_rows: Of the dev set, the first ones; all, if there are fewer.
        device: Where it runs.
        threads: Of torch, on a CPU.

    Returns:
        A table of :data:`INFERENCE_TIMES`.
    """
    trial = trial.replace(layer_drop=None, warm_start=None, pruning=None, mode="finetune")
    task = resolve_task(trial.data)
    data = encode_split(task, trial.data, "dev", trial.seed, load_tokenizer(trial.backbone))
    count = min(most_rows, len(data))
    networks = _build_networks(trial, task, sorted(set(depths), reverse=True), device)
    about = {"task": task.name, "backbone": trial.backbone, "rows": count}
    rows, threads_before = [], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for number in range(-1, rounds):
            seconds = _time_round(networks, data, count, device)
            if number >= 0:
                rows += [
                    about | {"layers_left": left, "round": number, "seconds": taken}
                    for left, taken in seconds.items()
                ]
    finally:
        torch.set_num_threads(threads_before)
    return pa.Table.from_pylist(rows, schema=INFERENCE_TIMES)


def _build_networks(
    trial: Trial, task: Task, depths: Sequence[int], device: torch.device
) -> dict[int, Any]:
    """Layers left -> the encoder with its lowest ones, ready for inference."""
    depth, networks = starting_depth(trial), {}
    for left in depths:
        drop = {"strategy": "top", "count": depth - left} if left < depth else None
        model = build_model(trial.replace(layer_drop=drop), task)
        networks[left] = model.network.to(device).eval()
    return networks


@torch.no_grad()
def _time_round(
    networks: dict[int, Any], data: EncodedRows, count: int, device: torch.device
) -> dict[int, float]:
    """Seconds of each network for the first rows as they stand in the set, every batch padded to
    the longest of its rows."""
    seconds = dict.fromkeys(networks, 0.0)
    for begin in range(0, count, INFERENCE_BATCH):
        batch = data.batch(range(begin, min(begin + INFERENCE_BATCH, count)))
        inputs = {k: v.to(device) for k, v in batch.items() if k not in data.gold}
        for left, network in networks.items():
            start = time.perf_counter()
            network(**inputs)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds[left] += time.perf_counter() - start
    return seconds


def measure_encoders(
    bases: Iterable[Trial], table: pa.Table, gpus: bool = False, threads: int = 1
) -> pa.Table:
    """:func:`inference_times` of every encoder with as many layers as the trials of a table have
    left, on the dev rows of QQP, as in Table 3, or else of the encoder's first task.

    Args:
        bases: A trial for each task and encoder.
        table: Results.
        gpus: Whether to run on a GPU, where this machine has one.
        threads: Of torch, on a CPU.
    """
    device = torch.device("cuda" if gpus and torch.cuda.is_available() else "cpu")
    by_encoder: dict[str, Trial] = {}
    for base in bases:
        if base.backbone not in by_encoder or base.data.task == "qqp":
            by_encoder[base.backbone] = base
    rows = table.select(["backbone", "layers_left"]).to_pylist()
    parts = [INFERENCE_TIMES.empty_table()]
    for backbone, base in by_encoder.items():
        depths = {r["layers_left"] for r in rows if r["backbone"] == backbone and r["layers_left"]}
        parts.append(inference_times(base, depths, device=device, threads=threads))
    return pa.concat_tables(parts)

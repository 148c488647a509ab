"""A trained trial as a stock checkpoint, with what is left of it and how fast it is
(docs/methods.md §2).

What is written loads with ``AutoModelFor….from_pretrained`` and no code of ours; a fusion travels
along as one small module of its own.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import load_file, save_model

from bermo_ray.errors import UserError
from bermo_ray.export.card import CARD, RECIPE, write_card
from bermo_ray.export.compression import COMPRESSED, WEIGHTS, compress
from bermo_ray.export.fusion_source import (
    FUSION,
    FUSION_SETTINGS,
    FUSION_WEIGHTS,
    fusion_source,
    has_fusion,
    load_fusion,
)
from bermo_ray.export.measurements import ModelMeasurements
from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.models.stock import load_stock, quiet_transformers
from bermo_ray.record import Status
from bermo_ray.tasks.encoding import encode_rows
from bermo_ray.tracking.store import find_checkpoint, find_trial
from bermo_ray.training.latency import measure_latencies
from bermo_ray.training.model import TrainedModel, load_trained

LOGITS_TOLERANCE = 1e-6  # by how much a reloaded model's logits may differ
_COMPARED_ROWS = 16  # of the dev set


def export_trial(trial: str, folder: Path, uri: str) -> tuple[ModelMeasurements, ModelMeasurements]:
    """Writes a trial's model into a new folder: a stock checkpoint, the same weights compressed,
    its fusion if it has one, its recipe and its model card.

    The folder appears complete or not at all; the reloaded model is compared with the trained one
    before that.

    Args:
        trial: The first digits of its ``trial_id`` or of its ``run_id``.
        folder: Where it goes; absent or empty.
        uri: The MLflow store.

    Returns:
        The measurements of the model that the trial started from, and of what was written.

    Raises:
        UserError: no such trial, one that did not complete, a checkpoint that is gone, or a folder
            that holds something.
    """
    folder = folder.expanduser().resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder; give another")
    run = find_trial(uri, trial)
    status = run.data.tags.get("bermo.status", Status.RUNNING)
    if not Status(status).measured:
        raise UserError(f"trial {trial} is {status}: only a trial that has ended can be exported")
    with tempfile.TemporaryDirectory(prefix="bermo-export-") as scratch:
        checkpoint = fetch_checkpoint(find_checkpoint(run), Path(scratch))
        trained = load_trained(checkpoint)
    with _complete_or_absent(folder) as partial, quiet_transformers():
        _write_model(trained, partial)
        before, after = _measure(trained, partial)
        _write_recipe(trained, partial, run.info.run_id, before, after)
        (partial / CARD).write_text(write_card(trained, before, after))
    return before, after


def fetch_checkpoint(uri: str, scratch: Path) -> Path:
    """A checkpoint's folder on this machine; one in a bucket is copied into ``scratch``.

    Raises:
        UserError: it is gone.
    """
    if "://" in uri:
        from pyarrow import fs

        copy = scratch / "checkpoint"
        copy.mkdir()
        try:
            fs.copy_files(uri, copy.as_uri())
        except (OSError, pa.ArrowException) as error:
            why = str(error).splitlines()[0]
            raise UserError(f"the checkpoint {uri} can't be read: {why}") from error
        return copy
    if not uri or not Path(uri).is_dir():
        raise UserError(f"its checkpoint is gone: {uri or 'none was recorded'}")
    return Path(uri)


@contextmanager
def _complete_or_absent(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes its name once all of it is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_model(trained: TrainedModel, folder: Path) -> None:
    """Writes tokenizer, weights and fusion, and makes sure that they load as what they were."""
    network, fusion = trained.model.network, trained.model.fusion
    tokenizer = load_tokenizer(trained.trial.backbone)
    tokenizer.save_pretrained(folder)
    weights = {k: v for k, v in network.state_dict().items() if not k.startswith("fusion.")}
    network.save_pretrained(folder, state_dict=weights)
    if has_fusion(trained):
        save_model(fusion, str(folder / FUSION_WEIGHTS))
        settings = json.dumps(fusion.settings.model_dump(mode="json"), indent=1)
        (folder / FUSION_SETTINGS).write_text(settings)
        (folder / FUSION).write_text(fusion_source(trained))
    compress(load_file(folder / WEIGHTS), folder / COMPRESSED)
    _compare_logits(trained, tokenizer, folder)


def _compare_logits(trained: TrainedModel, tokenizer: Any, folder: Path) -> None:
    """Reloads what was written as a user would, and holds its logits against the trained ones."""
    trial, head = trained.trial, trained.task.head
    rows = trained.task.take_rows(trial.data, "dev", trial.seed).slice(0, _COMPARED_ROWS)
    data = encode_rows(trained.task, rows, tokenizer, trial.data.max_length)
    batch = {k: v for k, v in data.batch(range(len(data))).items() if k not in data.gold}
    reloaded = load_exported(folder, trained)
    with torch.no_grad():
        expected, logits = (head.logits(m(**batch)) for m in (trained.model.network, reloaded))
        pairs = zip(expected, logits, strict=True)
        worst = max(float((a - b).abs().max()) for a, b in pairs)
    if not worst <= LOGITS_TOLERANCE:
        raise RuntimeError(f"the exported model's logits differ by {worst:g} from the trained ones")


def load_exported(folder: Path, trained: TrainedModel) -> Any:
    """The model that was written to the folder: stock, or by the module that travels with it."""
    if has_fusion(trained):
        return load_fusion(folder)
    return load_stock(str(folder), trained.task).eval()


def _measure(trained: TrainedModel, folder: Path) -> tuple[ModelMeasurements, ModelMeasurements]:
    """Measures the stock model with nothing dropped or pruned, and what was written."""
    stock = load_stock(trained.trial.backbone, trained.task).eval()
    stock_latency, latency = measure_latencies([stock, trained.model.network])
    after = ModelMeasurements(trained.count.nonzero, *_file_sizes(folder), latency)
    with tempfile.TemporaryDirectory(prefix="bermo-export-") as scratch:
        stock.save_pretrained(scratch)
        compress(load_file(Path(scratch) / WEIGHTS), Path(scratch) / COMPRESSED)
        nonzero = sum(int(p.count_nonzero()) for p in stock.parameters())
        before = ModelMeasurements(nonzero, *_file_sizes(Path(scratch)), stock_latency)
    return before, after


def _file_sizes(folder: Path) -> tuple[int, int]:
    return (folder / WEIGHTS).stat().st_size, (folder / COMPRESSED).stat().st_size


def _write_recipe(
    trained: TrainedModel,
    folder: Path,
    run_id: str,
    before: ModelMeasurements,
    after: ModelMeasurements,
) -> None:
    result = trained.report.to_dict()
    result.pop("kept_by_matrix", None)  # thousands of numbers in a large encoder
    recipe = {
        "trial": json.loads(trained.trial.to_json()),
        "trial_id": trained.trial.id,
        "run_id": run_id,
        "result": result,
        "measurements": {"exported": vars(after), "started_from": vars(before)},
        "versions": {p: version(p) for p in ("bermo-ray", "torch", "transformers")},
    }
    (folder / RECIPE).write_text(json.dumps(recipe, indent=1))

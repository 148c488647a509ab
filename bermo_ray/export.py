"""A trained trial as a stock checkpoint, with what it weighs and how fast it is (methods §2).

What ``export`` writes loads with ``AutoModelFor….from_pretrained`` and no code of ours; a fusion
travels along as one small module of its own.
"""

import inspect
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import load_file, save, save_file, save_model

from bermo_ray import tracking
from bermo_ray.errors import UserError
from bermo_ray.models import backbone, fusion, heads
from bermo_ray.tasks.encoding import encode
from bermo_ray.training import trained
from bermo_ray.training.speed import SHAPE, latencies
from bermo_ray.training.trained import Trained

WEIGHTS, COMPRESSED, RECIPE, CARD = "model.safetensors", "model.zst", "recipe.json", "README.md"
FUSION, FUSION_WEIGHTS, FUSION_SETTINGS = "fusion.py", "fusion.safetensors", "fusion.json"
CLOSE = 1e-6  # by how much a reloaded model's logits may differ


@dataclass(frozen=True)
class Figures:
    """The four figures of a model: what is left, what it weighs, how fast it is."""

    nonzero: int
    dense_bytes: int  # the stock file
    compressed_bytes: int
    latency: float  # seconds for a batch of SHAPE


def export(run: str, folder: Path, uri: str) -> tuple[Figures, Figures]:
    """Writes the trial of that MLflow run into a new folder; gives its figures and those of the
    model it started from.

    The folder appears complete or not at all; the reloaded model is compared with the trained one
    before that.

    Raises:
        UserError: no such run, one that did not complete, a checkpoint that is gone, or a folder
            that holds something.
    """
    folder = folder.expanduser().resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder; give another")
    found = tracking.find_trial(uri, run)
    status = found.data.tags.get("bermo.status")
    if status not in ("completed", "diverged"):
        raise UserError(f"run {run} is {status}: only a trial that has ended can be exported")
    with tempfile.TemporaryDirectory(prefix="bermo-export-") as scratch:
        place = fetch(found.data.tags.get("bermo.checkpoint", ""), Path(scratch))
        model = trained.load(place)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        with heads.quiet():
            figures = _write(model, partial, found.info.run_id)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return figures


def fetch(place: str, scratch: Path) -> Path:
    """A checkpoint's folder on this machine; one in a bucket is copied into ``scratch``.

    Raises:
        UserError: it is gone.
    """
    if "://" in place:
        from pyarrow import fs

        copy = scratch / "checkpoint"
        copy.mkdir()
        try:
            fs.copy_files(place, copy.as_uri())
        except (OSError, pa.ArrowException) as error:
            why = str(error).splitlines()[0]
            raise UserError(f"the checkpoint {place} can't be read: {why}") from error
        return copy
    if not place or not Path(place).is_dir():
        raise UserError(f"its checkpoint is gone: {place or 'none was recorded'}")
    return Path(place)


def _write(model: Trained, folder: Path, run_id: str) -> tuple[Figures, Figures]:
    network, tokenizer = model.built.model, backbone.tokenizer(model.trial.backbone)
    tokenizer.save_pretrained(folder)
    own = {k: v for k, v in network.state_dict().items() if not k.startswith("fusion.")}
    network.save_pretrained(folder, state_dict=own)
    if _has_fusion(model):
        save_model(model.built.fusion, str(folder / FUSION_WEIGHTS))
        settings = model.built.fusion.settings.model_dump(mode="json")
        (folder / FUSION_SETTINGS).write_text(json.dumps(settings, indent=1))
        (folder / FUSION).write_text(fusion_module(model))
    compress(load_file(folder / WEIGHTS), folder / COMPRESSED)
    _compare(model, tokenizer, folder)
    stock = heads.load(model.trial.backbone, model.task).eval()  # nothing dropped, nothing pruned
    old, new = latencies([stock, network])
    after = Figures(model.left.nonzero, *_sizes(folder), new)
    with tempfile.TemporaryDirectory(prefix="bermo-export-") as scratch:
        stock.save_pretrained(scratch)
        compress(load_file(Path(scratch) / WEIGHTS), Path(scratch) / COMPRESSED)
        nonzero = sum(int(p.count_nonzero()) for p in stock.parameters())
        before = Figures(nonzero, *_sizes(Path(scratch)), old)
    recipe = {
        "trial": json.loads(model.trial.to_json()),
        "trial_id": model.trial.id,
        "run_id": run_id,
        "result": {k: v for k, v in model.report.items() if k not in ("matrices", "final")},
        "figures": {"exported": vars(after), "started_from": vars(before)},
        "versions": {p: version(p) for p in ("bermo-ray", "torch", "transformers")},
    }
    (folder / RECIPE).write_text(json.dumps(recipe, indent=1))
    (folder / CARD).write_text(card(model, before, after))
    return before, after


def _has_fusion(model: Trained) -> bool:
    return model.trial.fusion.name != "last"


def _sizes(folder: Path) -> tuple[int, int]:
    return (folder / WEIGHTS).stat().st_size, (folder / COMPRESSED).stat().st_size


def _compare(model: Trained, tokenizer: Any, folder: Path) -> None:
    """Reloads what was written as a user would, and holds its logits against the trained ones."""
    rows = model.task.table(model.trial.data, "dev", model.trial.seed).slice(0, 16)
    data = encode(model.task, rows, tokenizer, model.trial.data.max_length)
    batch = {k: v for k, v in data.batch(range(len(data))).items() if k not in data.targets}
    again = load(folder, model)
    with torch.no_grad():
        pairs = zip(
            heads.logits(model.built.model(**batch)), heads.logits(again(**batch)), strict=True
        )
        worst = max(float((a - b).abs().max()) for a, b in pairs)
    if not worst <= CLOSE:
        raise RuntimeError(f"the exported model's logits differ by {worst:g} from the trained ones")


def load(folder: Path, model: Trained) -> Any:
    """The exported model: stock, or by the module that travels with it."""
    if not _has_fusion(model):
        return heads.load(str(folder), model.task).eval()
    module: Any = ModuleType("exported_fusion")
    sys.modules[module.__name__] = module  # dataclasses look themselves up
    try:
        exec(compile((folder / FUSION).read_text(), FUSION, "exec"), vars(module))
        return module.load(folder)
    finally:
        del sys.modules[module.__name__]


def compress(tensors: dict[str, torch.Tensor], file: Path) -> None:
    """All tensors in one file: those with zeros as a bit for each value and the values that are not
    zero, everything under zstd. :func:`decompress` gives back every bit."""
    packed: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        bits = tensor.contiguous().view(-1).view(_INTEGER[tensor.element_size()]).numpy()
        there = bits != 0  # −0.0 has a bit: it is kept
        if there.mean() > 1 - 1 / 64:
            packed[f"dense:{name}"] = tensor.contiguous()
            continue
        packed[f"bits:{name}"] = torch.from_numpy(np.packbits(there))
        packed[f"values:{name}"] = torch.from_numpy(bits[there]).view(tensor.dtype)
        packed[f"shape:{name}"] = torch.tensor(tensor.shape)
    with pa.CompressedOutputStream(str(file), "zstd") as out:
        out.write(save(packed))


def decompress(file: Path) -> dict[str, torch.Tensor]:
    """The tensors that :func:`compress` wrote, bit for bit.

    Raises:
        UserError: the file is not one of those.
    """
    try:
        with pa.CompressedInputStream(str(file), "zstd") as source:
            packed = from_bytes(source.read())
    except Exception as error:  # safetensors and Arrow each have their own
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{file}: not a compressed model: {why}") from error
    out = {}
    for key, tensor in packed.items():
        kind, _, name = key.partition(":")
        if kind == "dense":
            out[name] = tensor
        elif kind == "bits":
            values = packed[f"values:{name}"]
            shape = packed[f"shape:{name}"].tolist()
            whole = torch.zeros(shape, dtype=values.dtype)
            there = np.unpackbits(tensor.numpy(), count=whole.numel()).astype(bool)
            whole.view(-1)[torch.from_numpy(there)] = values
            out[name] = whole
    return out


_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def unpack(folder: Path) -> Path:
    """Makes a folder's stock weights from its compressed ones (to send only those, say)."""
    file = folder / WEIGHTS
    partial = file.with_suffix(".partial")
    try:
        save_file(decompress(folder / COMPRESSED), partial, metadata={"format": "pt"})
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return file


_HEADER = '''"""{name}: fuses the states of all layers into one (bermo_ray {version}).

This file needs torch, transformers and safetensors alone. Use it so:

    from fusion import load
    model = load("this folder")

The stock model beside it gives the right answers only with the fusion that `load` puts on it.
"""

from __future__ import annotations

import copy
import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from safetensors.torch import load_model
from torch import nn
from transformers import {auto}

UserError = ValueError
EPSILON = {epsilon}

'''

_FOOTER = '''
def load(folder):
    """The model with its fusion, ready to evaluate."""
    folder = Path(folder)
    model = {auto}.from_pretrained(folder, dtype=torch.float32)
    layers = stack(model)
    settings = SimpleNamespace(**json.loads((folder / "{settings}").read_text()))
    fusion = {kind}(settings, layers)
    load_model(fusion, str(folder / "{weights}"))
    model.add_module("fusion", fusion)
    listen(layers, fusion.hear)
    return model.eval()
'''


def fusion_module(model: Trained) -> str:
    """The source of a module that loads the exported model: our own classes, and only those that
    this fusion needs."""
    kind = type(model.built.fusion)
    reach = (backbone.Stack, backbone.stack, backbone.listen, backbone._first, backbone._never)
    parts: list[Callable[..., Any]] = [*reach, fusion.Fusion, kind]
    text = "".join(inspect.getsource(part) for part in parts)
    while more := [
        item
        for name, item in vars(fusion).items()
        if inspect.getmodule(item) is fusion and callable(item)
        if item not in parts and name.startswith("_") and name in text
    ]:
        parts += more
        text = "".join(inspect.getsource(part) for part in parts)
    auto = heads.stock_name(model.task)
    header = _HEADER.format(
        name=kind.__name__, version=version("bermo-ray"), auto=auto, epsilon=fusion.EPSILON
    )
    footer = _FOOTER.format(
        auto=auto, settings=FUSION_SETTINGS, kind=kind.__name__, weights=FUSION_WEIGHTS
    )
    return header + "\n\n".join(inspect.getsource(part) for part in parts) + "\n" + footer


def rows(before: Figures, after: Figures) -> list[list[str]]:
    """The four figures for a table: name, before, after, ratio."""
    shown = []
    for field, name, unit, form in (
        ("nonzero", "non-zero parameters", 1, "{:,.0f}"),
        ("dense_bytes", "file, dense", 1e6, "{:.1f} MB"),
        ("compressed_bytes", "file, compressed", 1e6, "{:.1f} MB"),
        ("latency", f"latency of {SHAPE[0]} × {SHAPE[1]} pieces, CPU", 1e-3, "{:.1f} ms"),
    ):
        old, new = getattr(before, field), getattr(after, field)
        shown.append([name, form.format(old / unit), form.format(new / unit), f"{new / old:.2f}"])
    return shown


def card(model: Trained, before: Figures, after: Figures) -> str:
    """The model card: what it is, its metric, the four figures, and what they mean."""
    trial, report = model.trial, model.report
    method = trial.pruning.method if trial.pruning else "no pruning"
    dropped = f", layers {model.built.dropped} dropped" if model.built.dropped else ""
    use = (
        f"from fusion import load  # {FUSION} in this folder\n\nmodel = load('.')"
        if _has_fusion(model)
        else f"from transformers import {heads.stock_name(model.task)}\n\n"
        f"model = {heads.stock_name(model.task)}.from_pretrained('.')"
    )
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows(before, after))
    status = "" if report["status"] == "completed" else f" ({report['status']}: {report['reason']})"
    return f"""---
library_name: transformers
tags: [pruning, bermo_ray]
---

# {Path(trial.backbone).name} for {trial.data.task}

{method}, fusion `{trial.fusion.name}`{dropped}; remaining encoder parameters \
{report["remaining"]:.2%}.

- {model.task.metric} on dev: **{report["metric"]:.4f}** (a constant answer: \
{report["trivial"]:.4f}){status}
- trial `{trial.id}`, seed {trial.seed}; `{RECIPE}` holds all of it

| | started from | this model | ratio |
|---|---|---|---|
{table}

{meaning(model)}

```python
{use}
```

`{COMPRESSED}` holds the same weights, bit for bit: `bermo-ray unpack .` makes `{WEIGHTS}` of it.
"""


def meaning(model: Trained) -> str:
    """What got smaller and what got faster, said plainly."""
    said = []
    if model.matrices:
        said.append(
            "Pruning made single weights zero. The compressed file is smaller for it; the dense "
            "file and a dense forward are not: zeros are stored and multiplied like any number. "
            "Speed needs kernels or hardware for sparse matrices."
        )
    if model.built.dropped and model.built.stack.shared:
        said.append(
            "Dropping layers made it faster, but not smaller: the layers share their weights."
        )
    elif model.built.dropped:
        said.append("Dropping layers made both files smaller and every forward faster.")
    if _has_fusion(model):
        size = sum(p.numel() for p in model.built.fusion.parameters())
        said.append(f"The fusion adds {size:,} parameters, in `{FUSION_WEIGHTS}`.")
    return " ".join(said) or "Nothing was taken away: it is as large and as fast as it started."

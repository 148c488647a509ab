"""What dropping layers saves: fine-tuning steps, inference, and bytes on disk.

BERT-base's width and vocabulary, 12 layers, of which the top 2, 4 and 6 go, 2 threads. A step is
forward, backward, clipping and AdamW over everything, embeddings too, at batch 8 × 64; inference is
a forward at 8 × 64; the file is what ``save_pretrained`` writes. Ratios are medians of the ratios
within each round. ALBERT-base, whose layers share their weights, gets faster, not smaller.
"""

import copy
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from _measure import samples, show
from torch import nn
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
)

from bermo_ray.models.assembly import assemble
from bermo_ray.models.layer_strategies import POSITIONAL
from bermo_ray.models.stock import quiet_transformers
from bermo_ray.training.malloc import keep_freed_memory
from bermo_ray.trial import Fusion

COUNTS = (2, 4, 6)
SHAPE = (8, 64)
ALBERT = AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)


def short(network: Any, count: int) -> Any:
    """The network without its top layers."""
    model = assemble(network, Fusion())
    model.remove_layers(POSITIONAL["top"](model.stack.depth, count))
    return network


class Training:
    """A model and its optimiser."""

    def __init__(self, model: Any) -> None:
        self.model = model.train()
        self.adam = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def step(self, ids: torch.Tensor, labels: torch.Tensor) -> None:
        torch.autograd.backward(F.cross_entropy(self.model(ids).logits, labels))
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)


def size(model: Any) -> int:
    """Bytes of its weights as a file."""
    with tempfile.TemporaryDirectory() as folder, quiet_transformers():
        model.save_pretrained(folder)
        return (Path(folder) / "model.safetensors").stat().st_size


def ratios(seconds: dict[str, list[float]], undropped: str) -> dict[str, float]:
    """How many times faster than the undropped model, the median over rounds."""
    pairs = {n: zip(seconds[undropped], taken, strict=True) for n, taken in seconds.items()}
    return {name: statistics.median(a / b for a, b in pair) for name, pair in pairs.items()}


def main() -> None:
    """Measures BERT at four depths and ALBERT at two."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    keep_freed_memory()
    bert = {
        f"BERT −{n}": short(BertForSequenceClassification(BertConfig()), n) for n in (0, *COUNTS)
    }
    albert = {
        f"ALBERT −{n}": short(AlbertForSequenceClassification(copy.copy(ALBERT)), n) for n in (0, 6)
    }
    models = bert | albert
    ids, labels = torch.randint(5, 30_000, SHAPE), torch.randint(2, SHAPE[:1])
    training = {name: Training(model) for name, model in models.items()}
    trained = samples({n: partial(t.step, ids, labels) for n, t in training.items()}, rounds=7)
    for one in training.values():
        one.adam.state.clear()
        one.model.eval()
    with torch.inference_mode():
        used = samples({n: partial(model, ids) for n, model in models.items()}, rounds=15)
    all_ratios: dict[str, float] = {}
    rows = []
    for group, prefix in ((bert, ""), (albert, "albert_")):
        undropped = next(iter(group))
        train = ratios({n: trained[n] for n in group}, undropped)
        infer = ratios({n: used[n] for n in group}, undropped)
        sizes = {name: size(model) for name, model in group.items()}
        for name, model in group.items():
            count = name.rpartition("−")[2]
            ratio = sizes[undropped] / sizes[name]
            all_ratios |= {
                f"{prefix}train_{count}": train[name],
                f"{prefix}infer_{count}": infer[name],
                f"{prefix}file_{count}": ratio,
            } if count != "0" else {}  # fmt: skip
            parameters = sum(p.numel() for p in model.parameters()) / 1e6
            rows.append([name, f"{parameters:.1f} M", f"{sizes[name] / 1e6:.0f} MB",
                         f"{statistics.median(trained[name]):.2f} s", f"{train[name]:.2f}",
                         f"{1000 * statistics.median(used[name]):.0f} ms",
                         f"{infer[name]:.2f}", f"{ratio:.2f}"])  # fmt: skip
    columns = ["", "parameters", "file", "step", "faster", "forward", "faster", "smaller"]
    print("ALBERT's layers share their weights: fewer of them are faster, not smaller.")
    show(
        "Layers dropped, times faster and smaller than the undropped model",
        columns,
        rows,
        all_ratios,
    )


if __name__ == "__main__":
    main()

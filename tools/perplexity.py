"""How well an encoder knows a text: masked accuracy and perplexity, an untrained one beside it.

    python tools/perplexity.py --backbone ../shared/models/rxnfp-bert-mlm \\
        --file docs/samples/reactions.txt
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
import tyro
from transformers import AutoConfig, AutoModelForMaskedLM

from bermo_ray.models import backbone, heads
from bermo_ray.study import command
from bermo_ray.tasks import mlm, registry
from bermo_ray.tasks.encoding import encode
from bermo_ray.training.evaluate import evaluate


@dataclass
class Options:
    """An encoder with its head for masked words, and a text, a row a line."""

    file: Path
    backbone: str = "embedded"
    repeats: int = 20
    """Times that every line is taken, with other pieces hidden each time."""
    max_length: int = 256


def main() -> None:
    """Evaluates the encoder as it is, and one of its shape with random weights."""
    options = tyro.cli(Options)
    torch.manual_seed(0)
    task = registry.get("text")
    lines = mlm.text(options.file)["text"].to_pylist() * options.repeats
    tokenizer = backbone.tokenizer(options.backbone)
    data = encode(task, pa.table({"text": lines}), tokenizer, options.max_length)
    config = AutoConfig.from_pretrained(backbone.location(options.backbone))
    models = {
        "pretrained": heads.load(options.backbone, task, whole=True),
        "untrained": AutoModelForMaskedLM.from_config(config),
    }
    print(f"{len(lines)} rows, {int(data.counts.sum())} hidden pieces")
    for name, model in models.items():
        found = evaluate(model, data, 32, torch.device("cpu"))
        perplexity = found.others["perplexity"]
        print(f"{name}: masked accuracy {found.metric:.3f}, perplexity {perplexity:.3g}")


if __name__ == "__main__":
    command(main)()

"""How well an encoder knows a text: masked accuracy and perplexity, an untrained one beside it.

    python tools/perplexity.py --backbone ../shared/models/rxnfp-bert-mlm \\
        --file docs/samples/reactions.txt
"""

from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import torch
import tyro
from transformers import AutoConfig, AutoModelForMaskedLM

from bermo_ray.command_line.program import run_command
from bermo_ray.models import backbone
from bermo_ray.models.stock import load_stock
from bermo_ray.tasks.encoding import encode_rows
from bermo_ray.tasks.mlm import read_text
from bermo_ray.tasks.registry import get_task
from bermo_ray.training.evaluate import evaluate


@dataclass
class Options:
    """An encoder with its head for masked words, and a text with one row per line."""

    file: Path
    backbone: str = "embedded"
    repeats: int = 20
    """How often each line is taken, with other pieces hidden each time."""
    max_length: int = 256


def main() -> None:
    """Evaluates the encoder as it is, and one of its shape with random weights."""
    options = tyro.cli(Options)
    torch.manual_seed(0)
    task = get_task("text")
    lines = read_text(options.file)["text"].to_pylist() * options.repeats
    tokenizer = backbone.load_tokenizer(options.backbone)
    data = encode_rows(task, pa.table({"text": lines}), tokenizer, options.max_length)
    config = AutoConfig.from_pretrained(backbone.locate(options.backbone))
    networks = {
        "pretrained": load_stock(options.backbone, task, needs_head=True),
        "untrained": AutoModelForMaskedLM.from_config(config),
    }
    print(f"{len(lines)} rows, {int(data.loss_counts.sum())} hidden pieces")
    for name, network in networks.items():
        evaluation = evaluate(network, data, 32, torch.device("cpu"))
        perplexity = evaluation.other_metrics["perplexity"]
        print(f"{name}: masked accuracy {evaluation.metric:.3f}, perplexity {perplexity:.3g}")


if __name__ == "__main__":
    run_command(main, {field.name: field.name for field in fields(Options)})

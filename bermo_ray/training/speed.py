"""What a model weighs and how fast it is."""

import statistics
import time
from typing import Any

import torch
from torch import nn

CPU = torch.device("cpu")
SHAPE = (8, 64)  # rows and word pieces of the batch whose latency is measured


@torch.no_grad()
def latencies(
    models: list[Any], rounds: int = 15, shape: tuple[int, int] = SHAPE, device: torch.device = CPU
) -> list[float]:
    """Median seconds of a forward for each model, on this machine with torch's threads; taken in
    turns, so that a busy moment hits all of them."""
    seconds: list[list[float]] = [[] for _ in models]
    modes = [model.training for model in models]
    highest = min(1000, *(model.config.vocab_size for model in models))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, highest, shape, generator=generator).to(device)
    for model in models:
        model.eval()
    for _ in range(rounds + 2):
        for model, taken in zip(models, seconds, strict=True):
            start = time.perf_counter()
            model(ids)
            if ids.is_cuda:
                torch.cuda.synchronize(ids.device)
            taken.append(time.perf_counter() - start)
    for model, mode in zip(models, modes, strict=True):
        model.train(mode)
    return [statistics.median(taken[2:]) for taken in seconds]


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights, stored dense; what is shared counts once, as in a file."""
    return sum(p.numel() * p.element_size() for p in model.parameters())

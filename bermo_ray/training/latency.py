"""What a network weighs and how fast it is."""

import statistics
import time
from typing import Any

import torch
from torch import nn

CPU = torch.device("cpu")
SHAPE = (8, 64)  # [b, s] of the batch whose latency is measured
_WARMUP_ROUNDS = 2  # that are not counted


@torch.no_grad()
def measure_latencies(
    networks: list[Any],
    rounds: int = 15,
    shape: tuple[int, int] = SHAPE,
    device: torch.device = CPU,
) -> list[float]:
    """Median seconds of a forward for each network, on this machine with torch's threads; taken in
    turns, so that a busy moment hits all of them.

    Args:
        networks: Stock networks on ``device``.
        rounds: Forwards of each that count.
        shape: [b, s] of the batch.
        device: Where they run.
    """
    seconds: list[list[float]] = [[] for _ in networks]
    modes = [network.training for network in networks]
    highest = min(1000, *(network.config.vocab_size for network in networks))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, highest, shape, generator=generator).to(device)
    for network in networks:
        network.eval()
    for _ in range(rounds + _WARMUP_ROUNDS):
        for network, taken in zip(networks, seconds, strict=True):
            start = time.perf_counter()
            network(ids)
            if ids.is_cuda:
                torch.cuda.synchronize(ids.device)
            taken.append(time.perf_counter() - start)
    for network, mode in zip(networks, modes, strict=True):
        network.train(mode)
    return [statistics.median(taken[_WARMUP_ROUNDS:]) for taken in seconds]


def weight_bytes(network: nn.Module) -> int:
    """Bytes of all weights, stored dense; what is shared counts once, as in a file."""
    return sum(p.numel() * p.element_size() for p in network.parameters())

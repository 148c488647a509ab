"""How much each layer changes the sentence's token (layer dropping, §3.4)."""

import numpy as np
import torch
import torch.nn.functional as F

from bermo_ray.models.assembly import Assembled
from bermo_ray.tasks.encoded import Encoded
from bermo_ray.training import cache


def contribution(
    built: Assembled, data: Encoded, batch_size: int, device: torch.device
) -> list[float]:
    """Mean cosine of the sentence token (CLS) before and after each layer, over all rows.

    Near 1: the layer does little. One pass that keeps a sum a layer; done once on a node.
    """
    shape = (built.stack.depth,)

    def fill(means: np.ndarray) -> None:
        means[:] = _pass(built, data, batch_size, device)

    if not cache.fits(shape):
        means = np.empty(shape, np.float32)
        fill(means)
    else:
        name = cache.key(built.model, data, f"contribution {built.layers}")
        means = cache.get(name, shape, fill)
    return [float(mean) for mean in means]


@torch.no_grad()
def _pass(built: Assembled, data: Encoded, batch_size: int, device: torch.device) -> np.ndarray:
    sums = torch.zeros(built.stack.depth, dtype=torch.float64, device=device)
    place = -1 if data.pad_left else 0  # XLNet's CLS is the last token, and its padding the first
    before: torch.Tensor | None = None

    def hear(index: int, state: torch.Tensor) -> torch.Tensor:
        nonlocal before
        after = state[place] if built.stack.tokens_first else state[:, place]
        if index > 0:
            assert before is not None
            sums[index - 1] += F.cosine_similarity(before, after, dim=-1).double().sum()
        before = after
        return state

    mode = built.model.training
    built.model.to(device).eval()
    built.fusion.tape = hear
    try:
        for i in range(0, len(data), batch_size):
            batch = data.batch(data.by_length[i : i + batch_size])
            built.model(**{k: v.to(device) for k, v in batch.items() if k not in data.targets})
    finally:
        built.fusion.tape = None
        built.model.train(mode)
    return (sums / len(data)).cpu().numpy()

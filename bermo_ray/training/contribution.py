"""How much each layer changes the sentence's token (layer dropping, §3.4)."""

import numpy as np
import torch
import torch.nn.functional as F

from bermo_ray.models.assembly import AssembledModel
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.training import array_cache

# Rows whose cosines are averaged. A cosine deviates by at most 1, so that the mean of these has a
# standard error of at most 0.023, whatever the task.
MOST_ROWS = 2000


def layer_similarity(
    model: AssembledModel, data: EncodedRows, batch_size: int, device: torch.device
) -> list[float]:
    """Mean cosine of the sentence token (CLS) before and after each layer, over the first
    :data:`MOST_ROWS` rows.

    Near 1: the layer does little. One pass that keeps one sum per layer; done once per node.

    Args:
        model: Whose layers are scored.
        data: Training rows: what dev rows show must not choose layers (docs/methods.md §3).
        batch_size: Rows per forward.
        device: Where the forwards run.
    """
    data = data.take(np.arange(min(len(data), MOST_ROWS)))
    shape = (model.stack.depth,)

    def fill(means: np.ndarray) -> None:
        means[:] = _mean_cosines(model, data, batch_size, device)

    if array_cache.fits(shape):
        key = array_cache.make_key(model.network, data, f"contribution {model.layers_left}")
        means = array_cache.read_or_fill(key, shape, fill)
    else:
        means = np.empty(shape, np.float32)
        fill(means)
    return [float(mean) for mean in means]


@torch.no_grad()
def _mean_cosines(
    model: AssembledModel, data: EncodedRows, batch_size: int, device: torch.device
) -> np.ndarray:
    sums = torch.zeros(model.stack.depth, dtype=torch.float64, device=device)
    token = -1 if data.pad_left else 0  # XLNet's CLS is the last token, and its padding the first
    before: torch.Tensor | None = None

    def record(index: int, state: torch.Tensor) -> torch.Tensor:
        nonlocal before
        after = state[token] if model.stack.tokens_first else state[:, token]
        if index > 0:
            assert before is not None
            sums[index - 1] += F.cosine_similarity(before, after, dim=-1).double().sum()
        before = after
        return state

    network, mode = model.network, model.network.training
    network.to(device).eval()
    model.fusion.recorder = record
    try:
        for i in range(0, len(data), batch_size):
            batch = data.batch(data.rows_by_length[i : i + batch_size])
            network(**{k: v.to(device) for k, v in batch.items() if k not in data.gold})
    finally:
        model.fusion.recorder = None
        network.train(mode)
    return (sums / len(data)).cpu().numpy()

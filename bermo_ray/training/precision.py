"""What forwards compute in (docs/gpu.md): 32 bits, or 16 where the device is faster with them.

Weights, mask scores, masks, penalties, losses, BERMo's sums and the optimiser have 32 bits in every
case: autocast gives matrix products copies of 16 bits, and nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch

from bermo_ray.errors import UserError
from bermo_ray.trial import PrecisionName

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
_LEAST_SCALE = 1.0  # below it, losses of fp16 are scaled down, which only endless ones need


def find_problem(asked: PrecisionName | None, on_gpus: bool, workers: int, noisy: bool) -> str:
    """In a line why no device of that kind computes so; empty where one may.

    Args:
        asked: Of a trial.
        on_gpus: Whether it runs on GPUs.
        workers: Of the trial.
        noisy: Whether each worker draws masks of its own.
    """
    if asked == "tf32" and not on_gpus:
        return "precision: got 'tf32', which GPUs alone have; leave it out, or use `gpus`"
    if asked == "fp16" and noisy and workers > 1:
        return (
            "precision: got 'fp16' with several workers whose masks differ: they would not skip "
            "the same steps; use 'bf16'"
        )
    return ""


class Precision:
    """How a run computes on its device.

    Args:
        asked: Of the trial; None: bf16 on a GPU that has it, else fp32.
        device: Where it runs.

    Raises:
        UserError: The device can't compute so.
    """

    def __init__(self, asked: PrecisionName | None, device: torch.device) -> None:
        self._device = device.type
        has_bf16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
        default = "bf16" if device.type == "cuda" and has_bf16 else "fp32"
        self.name: str = asked or default
        if self.name == "bf16" and not has_bf16:
            name = torch.cuda.get_device_name(device)
            raise UserError(f"precision: got 'bf16', which {name} lacks; use 'fp16' or 'fp32'")
        if problem := find_problem(asked, device.type == "cuda", 1, False):
            raise UserError(problem)
        # Of the whole process, so it is set for every run anew.
        torch.set_float32_matmul_precision("high" if self.name == "tf32" else "highest")
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.name == "fp16")

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Within: a network's forward; its losses are computed behind it."""
        kind = _AUTOCAST.get(self.name)
        with torch.autocast(self._device, kind, enabled=kind is not None):
            yield

    def has_exploded(self, norm: torch.Tensor) -> bool:
        """Whether a gradient's norm says that the run diverged. With fp16 single steps overflow,
        are skipped, and the loss is scaled down until they do not."""
        if torch.isfinite(norm):
            return False
        return not self.scaler.is_enabled() or self.scaler.get_scale() < _LEAST_SCALE


assert set(_AUTOCAST) < set(get_args(PrecisionName))

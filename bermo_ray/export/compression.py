"""Weights without their zeros: a bit for each value, and the values that are not zero, in zstd."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load, save, save_file

from bermo_ray.errors import UserError

WEIGHTS, COMPRESSED = "model.safetensors", "model.zst"
# Bytes of a value -> the integers that its bits are looked at as.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# A bit for each value pays where more than 1 of 64 is zero.
_MAX_DENSITY = 1 - 1 / 64


def compress(tensors: dict[str, torch.Tensor], file: Path) -> None:
    """Writes all tensors into one file; :func:`decompress` gives back every bit."""
    packed: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        bits = tensor.contiguous().view(-1).view(_INTEGERS[tensor.element_size()]).numpy()
        nonzero = bits != 0  # −0.0 has a bit: it is kept
        if nonzero.mean() > _MAX_DENSITY:
            packed[f"dense:{name}"] = tensor.contiguous()
            continue
        packed[f"bits:{name}"] = torch.from_numpy(np.packbits(nonzero))
        packed[f"values:{name}"] = torch.from_numpy(bits[nonzero]).view(tensor.dtype)
        packed[f"shape:{name}"] = torch.tensor(tensor.shape)
    with pa.CompressedOutputStream(str(file), "zstd") as stream:
        stream.write(save(packed))


def decompress(file: Path) -> dict[str, torch.Tensor]:
    """The tensors that :func:`compress` wrote, bit for bit.

    Raises:
        UserError: the file is not one of those.
    """
    try:
        with pa.CompressedInputStream(str(file), "zstd") as stream:
            packed = load(stream.read())
    except Exception as error:  # safetensors and Arrow have no common one
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{file}: not a compressed model: {why}") from error
    tensors = {}
    for key, tensor in packed.items():
        kind, _, name = key.partition(":")
        if kind == "dense":
            tensors[name] = tensor
        elif kind == "bits":
            shape = packed[f"shape:{name}"].tolist()
            tensors[name] = _expand(tensor, packed[f"values:{name}"], shape)
    return tensors


def _expand(bits: torch.Tensor, values: torch.Tensor, shape: list[int]) -> torch.Tensor:
    tensor = torch.zeros(shape, dtype=values.dtype)
    nonzero = np.unpackbits(bits.numpy(), count=tensor.numel()).astype(bool)
    tensor.view(-1)[torch.from_numpy(nonzero)] = values
    return tensor


def unpack(folder: Path) -> Path:
    """Makes an exported folder's stock weights from its compressed ones; gives their file.

    Raises:
        UserError: the folder has no compressed weights.
    """
    file = folder / WEIGHTS
    partial = file.with_suffix(".partial")
    try:
        save_file(decompress(folder / COMPRESSED), partial, metadata={"format": "pt"})
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return file

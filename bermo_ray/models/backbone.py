"""Any Hugging Face encoder, with the head of a task, and how to reach its layers."""

from pathlib import Path
from typing import Any

from torch import nn

from bermo_ray.errors import UserError

EMBEDDED = "embedded"  # the small encoder that ships with the package


def location(name: str) -> str:
    """What ``from_pretrained`` takes: the shipped folder, a folder, or a hub name."""
    if name == EMBEDDED:
        return str(Path(__file__).parents[1] / "embedded_encoder")
    folder = Path(name).expanduser()
    return str(folder.resolve()) if folder.is_dir() else name


def config(name: str) -> Any:
    """The backbone's configuration.

    Raises:
        UserError: it can't be found, or it is not a BERT-like encoder.
    """
    from transformers import AutoConfig

    try:
        found = AutoConfig.from_pretrained(location(name))
    except (OSError, ValueError) as error:
        looks_like_path = "/" in name and (name.startswith((".", "/", "~")) or name.count("/") > 1)
        hint = "no such folder" if looks_like_path else "neither a folder nor reachable on the hub"
        raise UserError(f"backbone {name!r}: {hint}") from error
    if getattr(found, "num_hidden_layers", None) is None or getattr(found, "is_decoder", False):
        raise UserError(f"backbone {name!r}: a {found.model_type} model is not a layered encoder")
    return found


def tokenizer(name: str) -> Any:
    """The backbone's fast tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(location(name))


def layers(model: nn.Module) -> nn.ModuleList:
    """The encoder's layers, in order: the one ModuleList with as many entries as the config says.

    Raises:
        UserError: the family keeps its layers in another way.
    """
    base: Any = getattr(model, "base_model", model)
    count = base.config.num_hidden_layers
    lists = [m for m in base.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if not lists:
        raise UserError(f"{type(base).__name__}: no list of {count} layers found in it")
    return lists[0]


def embeddings(model: Any) -> nn.Module:
    """Everything before the first layer: word, position and type embeddings and their norm."""
    return getattr(model.base_model, "embeddings", None) or model.get_input_embeddings()

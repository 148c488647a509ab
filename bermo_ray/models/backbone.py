"""Any Hugging Face encoder, and the one way to reach its layers whatever its family."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
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
        is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
        hint = "no such folder" if is_path else "neither a folder nor reachable on the hub"
        raise UserError(f"backbone {name!r}: {hint}") from error
    if getattr(found, "num_hidden_layers", None) is None or _generates(found):
        raise UserError(f"backbone {name!r}: a {found.model_type} model is not an encoder")
    return found


def _generates(settings: Any) -> bool:
    """Whether the architecture is a decoder or has one; BERT may be used as either."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kind = type(settings)
    only_causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    # XLNet is listed as causal alone, because its masked head is a permutation one.
    return bool(
        settings.is_encoder_decoder
        or getattr(settings, "is_decoder", False)
        or (only_causal and settings.model_type != "xlnet")
    )


def depth(name: str) -> int:
    """How many layers it has.

    Raises:
        UserError: as :func:`config`.
    """
    return int(config(name).num_hidden_layers)


def tokenizer(name: str) -> Any:
    """The backbone's fast tokenizer; a folder without one raises UserError."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(location(name))
    except (OSError, ValueError) as error:
        raise UserError(f"backbone {name!r}: no tokenizer found there") from error


@dataclass(frozen=True)
class Stack:
    """An encoder's layers as a forward passes through them.

    ``modules`` holds each layer module once; ALBERT calls one of them for every layer, so layers
    are told apart by the order of calls. ``depth`` is L.
    """

    base: Any
    modules: nn.ModuleList

    @property
    def depth(self) -> int:
        return int(self.base.config.num_hidden_layers)

    @property
    def shared(self) -> bool:
        """Whether layers share their weights, so that fewer layers are not fewer parameters."""
        return getattr(self.base.config, "num_hidden_groups", None) is not None

    @property
    def tokens_first(self) -> bool:
        """Whether states are (tokens, batch, width) inside, as XLNet's are."""
        return bool(self.base.config.model_type == "xlnet")

    @property
    def returns_tuple(self) -> bool:
        """Whether a layer gives (state, …) rather than the state."""
        return bool(self.base.config.model_type in ("xlnet", "deberta-v2", "deberta"))

    @property
    def width(self) -> int:
        return int(self.base.config.hidden_size)


def stack(model: Any) -> Stack:
    """The model's layers: the first ModuleList with as many entries as the config has layers.

    Raises:
        UserError: the family keeps its layers in another way.
    """
    base: Any = getattr(model, "base_model", model)
    count = getattr(base.config, "num_hidden_groups", base.config.num_hidden_layers)
    lists = [m for m in base.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if not lists:
        raise UserError(f"{type(base).__name__}: no list of {count} layers found in it")
    return Stack(base, lists[0])


def embeddings(model: Any) -> nn.Module:
    """Everything before the first layer: word, position and type embeddings and their norm."""
    return getattr(model.base_model, "embeddings", None) or model.get_input_embeddings()


# index of the state, the state, a way to call a layer as the last one was called -> what goes on
Listener = Callable[[int, torch.Tensor, Callable[[nn.Module, torch.Tensor], torch.Tensor]], Any]


def listen(stack: Stack, heard: Listener) -> None:
    """Calls ``heard(index, state, call)`` for h_0 … h_L of every forward; what it returns goes on.

    h_j is the input of layer j+1 (DeBERTa changes the first layer's output before the second sees
    it), h_L what leaves the last layer; a norm behind that (ModernBERT) stays behind. States are
    (batch, tokens, width); XLNet's are (tokens, batch, width). ``call(layer, state)`` runs another
    layer with the masks and positions that the last layer was given.
    """
    place = 0  # calls so far in this forward

    def begin(module: nn.Module, args: Any) -> None:
        nonlocal place
        place = 0  # also after a forward that broke off

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal place
        place += 1
        if args:
            return (heard(place - 1, args[0], _never), *args[1:]), kwargs
        state = heard(place - 1, kwargs["hidden_states"], _never)
        return args, {**kwargs, "hidden_states": state}

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if place < stack.depth:
            return None

        def call(layer: nn.Module, state: torch.Tensor) -> torch.Tensor:
            if args:
                return _first(layer(state, *args[1:], **kwargs))
            return _first(layer(**{**kwargs, "hidden_states": state}))

        state = heard(stack.depth, _first(output), call)
        return (state, *output[1:]) if isinstance(output, tuple) else state

    stack.base.register_forward_pre_hook(begin)
    for module in stack.modules:
        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after, with_kwargs=True)


def _first(output: Any) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def _never(layer: nn.Module, state: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("a layer can be called only behind the last one")

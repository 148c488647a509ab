"""Any Hugging Face encoder, and the one way to reach its layers whatever its family."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bermo_ray.errors import UserError
from bermo_ray.models.sentence_folder import find_encoder_folder

EMBEDDED = "embedded"  # the small encoder that ships with the package


def locate(name: str) -> str:
    """What ``from_pretrained`` takes: the shipped folder, a folder, or a hub name. Of a folder of
    sentence-transformers it is the encoder's."""
    if name == EMBEDDED:
        return str(Path(__file__).parents[1] / "language" / "encoder")
    folder = Path(name).expanduser()
    return str(find_encoder_folder(folder.resolve())) if folder.is_dir() else name


def load_config(name: str) -> Any:
    """The backbone's configuration.

    Raises:
        UserError: It can't be found, or it is not a BERT-like encoder.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(locate(name))
    except (OSError, ValueError) as error:
        is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
        hint = "no such folder" if is_path else "neither a folder nor reachable on the hub"
        raise UserError(f"backbone {name!r}: {hint}") from error
    if getattr(config, "num_hidden_layers", None) is None or _generates(config):
        raise UserError(f"backbone {name!r}: a {config.model_type} model is not an encoder")
    return config


def _generates(config: Any) -> bool:
    """Whether the architecture is a decoder or has one; BERT may be used as either."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kind = type(config)
    only_causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    # XLNet is listed as causal alone, because its masked head is a permutation one.
    return bool(
        config.is_encoder_decoder
        or getattr(config, "is_decoder", False)
        or (only_causal and config.model_type != "xlnet")
    )


def layer_count(name: str) -> int:
    """How many layers the backbone has.

    Raises:
        UserError: As :func:`load_config`.
    """
    return int(load_config(name).num_hidden_layers)


def load_tokenizer(name: str) -> Any:
    """The backbone's fast tokenizer.

    Raises:
        UserError: There is none in its folder.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(locate(name))
    except (OSError, ValueError) as error:
        raise UserError(f"backbone {name!r}: no tokenizer found there") from error


@dataclass(frozen=True)
class Stack:
    """An encoder's layers as a forward passes through them.

    ``base`` is the encoder without its head. ``modules`` holds each layer module once; ALBERT calls
    one of them for every layer, so layers are told apart by the order of calls.
    """

    base: Any
    modules: nn.ModuleList

    @property
    def depth(self) -> int:
        """L, the number of layers that a forward passes through."""
        return int(self.base.config.num_hidden_layers)

    @property
    def width(self) -> int:
        """d, the width of a state."""
        return int(self.base.config.hidden_size)

    @property
    def shared(self) -> bool:
        """Whether layers share their weights, so that fewer layers are not fewer parameters."""
        return getattr(self.base.config, "num_hidden_groups", None) is not None

    @property
    def tokens_first(self) -> bool:
        """Whether states are [s, b, d] inside, as XLNet's are, rather than [b, s, d]."""
        return bool(self.base.config.model_type == "xlnet")

    @property
    def returns_tuple(self) -> bool:
        """Whether a layer returns (state, …) rather than the state."""
        return bool(self.base.config.model_type in ("xlnet", "deberta-v2", "deberta", "mpnet"))


def find_stack(network: Any) -> Stack:
    """The network's layers: the first ModuleList with as many entries as the config has layers.

    Raises:
        UserError: The family keeps its layers in another way.
    """
    base: Any = getattr(network, "base_model", network)
    count = getattr(base.config, "num_hidden_groups", base.config.num_hidden_layers)
    lists = [m for m in base.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if not lists:
        raise UserError(f"{type(base).__name__}: no list of {count} layers found in it")
    return Stack(base, lists[0])


def embedding_module(network: Any) -> nn.Module:
    """Everything before the first layer: word, position and type embeddings and their norm."""
    return getattr(network.base_model, "embeddings", None) or network.get_input_embeddings()


# Runs another layer on a state with the masks and positions that the last layer was given.
CallLayer = Callable[[nn.Module, torch.Tensor], torch.Tensor]
# Index of a state, the state, a way to call a layer -> the state that goes on in its place.
StateListener = Callable[[int, torch.Tensor, CallLayer], torch.Tensor]


def on_states(stack: Stack, listener: StateListener) -> None:
    """Calls ``listener(index, state, call_layer)`` for h_0 … h_L of every forward; what it returns
    goes on in the state's place.

    h_j is the input of layer j+1 (DeBERTa changes the first layer's output before the second sees
    it), h_L is what leaves the last layer; a norm behind that (ModernBERT) stays behind. States are
    [b, s, d]; XLNet's are [s, b, d]. ``call_layer(layer, state)`` works with h_L only.
    """
    calls = 0  # of layers, so far in this forward

    def begin_forward(module: nn.Module, args: Any) -> None:
        nonlocal calls
        calls = 0  # also after a forward that broke off

    def before_layer(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        if args:
            return (listener(calls - 1, args[0], _never), *args[1:]), kwargs
        state = listener(calls - 1, kwargs["hidden_states"], _never)
        return args, {**kwargs, "hidden_states": state}

    def after_layer(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if calls < stack.depth:
            return None

        def call_layer(layer: nn.Module, state: torch.Tensor) -> torch.Tensor:
            if args:
                return _first(layer(state, *args[1:], **kwargs))
            return _first(layer(**{**kwargs, "hidden_states": state}))

        state = listener(stack.depth, _first(output), call_layer)
        return (state, *output[1:]) if isinstance(output, tuple) else state

    stack.base.register_forward_pre_hook(begin_forward)
    for module in stack.modules:
        module.register_forward_pre_hook(before_layer, with_kwargs=True)
        module.register_forward_hook(after_layer, with_kwargs=True)


def _first(output: Any) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def _never(layer: nn.Module, state: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("a layer can be called only behind the last one")

"""The module that travels with an exported fusion: our own source, and only what it needs."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from bermo_ray.export.source_collector import SourceCollector
from bermo_ray.models import backbone
from bermo_ray.models.pooling import attach_pooling
from bermo_ray.models.stock import attached_pooling
from bermo_ray.training.model import TrainedModel

FUSION, FUSION_WEIGHTS, FUSION_SETTINGS = "fusion.py", "fusion.safetensors", "fusion.json"

_HEADER = '''"""{name}: fuses the states of all layers into one (bermo_ray {version}).

This file needs torch, transformers and safetensors alone. Use it so:

    from fusion import load
    model = load("this folder")

The stock model beside it gives the right answers only with the fusion that `load` puts on it.
"""

from __future__ import annotations

{imports}

'''

# What `load` below needs; the same lines come up among a definition's own imports.
_FOOTER_IMPORTS = (
    "import json",
    "import torch",
    "from pathlib import Path",
    "from types import SimpleNamespace",
    "from safetensors.torch import load_model",
)

_FOOTER = '''
def load(folder):
    """The model with its fusion, ready to evaluate."""
    folder = Path(folder)
    model = {stock_class}.from_pretrained(folder, dtype=torch.float32)
    layers = find_stack(model)
    settings = SimpleNamespace(**json.loads((folder / "{settings}").read_text()))
    fusion = {name}(settings, layers)
    load_model(fusion, str(folder / "{weights}"))
    model.add_module("fusion", fusion)
    on_states(layers, fusion.receive)
{pooling}    return model.eval()
'''

_POOLING = "    attach_pooling(layers, model.config.sentence_pooling)\n"


def has_fusion(trained: TrainedModel) -> bool:
    """Whether the stock checkpoint alone is not the model: it has a fusion, or pools rows for a
    head that does not do so itself."""
    return trained.trial.fusion.name != "last" or bool(attached_pooling(trained.model.network))


def fusion_source(trained: TrainedModel) -> str:
    """The source of a module whose ``load(folder)`` gives the exported model with its fusion."""
    kind, stock_class = type(trained.model.fusion), trained.task.head.stock_class
    collector = SourceCollector("bermo_ray", kind.__module__)
    pools = bool(attached_pooling(trained.model.network))
    roots: list[Any] = [backbone.find_stack, backbone.on_states, kind]
    for root in [*roots, attach_pooling] if pools else roots:
        collector.add(root.__module__, root.__name__)
    imports = {
        *_FOOTER_IMPORTS,
        *collector.external_imports(),
        f"from transformers import {stock_class}",
    }
    header = _HEADER.format(
        name=kind.__name__, version=version("bermo-ray"), imports="\n".join(sorted(imports))
    )
    footer = _FOOTER.format(
        name=kind.__name__,
        stock_class=stock_class,
        settings=FUSION_SETTINGS,
        weights=FUSION_WEIGHTS,
        pooling=_POOLING if pools else "",
    )
    return header + "\n\n\n".join(collector.sources()) + "\n\n" + footer


def load_fusion(folder: Path) -> Any:
    """The exported model with its fusion, by the module that travels with it."""
    name = "exported_fusion"
    loader = _LoaderWithoutBytecode(name, str(folder / FUSION))
    spec = spec_from_file_location(name, folder / FUSION, loader=loader)
    assert spec is not None
    module: Any = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up
    try:
        loader.exec_module(module)
        return module.load(folder)
    finally:
        del sys.modules[name]


class _LoaderWithoutBytecode(SourceFileLoader):
    """Leaves no ``__pycache__`` in the exported folder."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        pass

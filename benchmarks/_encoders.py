"""Random encoders of any shape: speed does not depend on weights."""

import shutil
from pathlib import Path

from transformers import BertConfig, BertForMaskedLM

from bermo_ray.models import backbone


def make_encoder(folder: Path, layers: int, width: int, heads: int) -> str:
    """A random BERT with the embedded vocabulary, in a folder; gives its path.

    Args:
        folder: Where it goes.
        layers: How many.
        width: Of the states; the feed-forward parts are four times as wide.
        heads: Of each layer's attention.
    """
    source = Path(backbone.locate("embedded"))
    config = BertConfig.from_pretrained(source)
    shape = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    config.update(shape | {"intermediate_size": 4 * width})
    BertForMaskedLM(config).save_pretrained(folder)
    for file in source.glob("*token*"):
        shutil.copy(file, folder)
    return str(folder)

"""A tiny random model of every family that users compress, with every head."""

from typing import Any

import pyarrow as pa
import pytest
import torch
import transformers

from bermo_ray.tasks.heads import HEADS
from bermo_ray.tasks.task import Task

BASE = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 40, "pad_token_id": 0,
}  # fmt: skip
XLNET = {"vocab_size": 40, "d_model": 16, "n_layer": 4, "n_head": 2, "d_inner": 24}
DISTIL = {"vocab_size": 40, "dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 24}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": BASE,
    "roberta": BASE,
    "xlm-roberta": BASE,
    "electra": BASE | {"embedding_size": 8},
    "albert": BASE | {"embedding_size": 8},
    "distilbert": DISTIL | {"pad_token_id": 0},
    "xlnet": XLNET,
    "deberta-v2": BASE
    | {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "conv_kernel_size": 3,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
    },
    "modernbert": BASE | {"local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
}
STOCK = {
    "sequence": ("AutoModelForSequenceClassification", {"num_labels": 3}),
    "regression": ("AutoModelForSequenceClassification", {"num_labels": 1}),
    "token": ("AutoModelForTokenClassification", {"num_labels": 3}),
    "span": ("AutoModelForQuestionAnswering", {}),
    "masked": ("AutoModelForMaskedLM", {}),
}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12], [5, 20, 21, 22, 0, 0, 0, 0]])
MASK = (IDS != 0).long()


def task_of(head: str) -> Task:
    labels = ("a", "b", "c") if head in ("sequence", "token") else ()
    return Task("t", HEADS[head], labels, "accuracy", False, lambda *_: pa.table({}))


@pytest.fixture(scope="module")
def family_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folders: dict[str, str] = {}

    def save(family: str, head: str) -> str:
        key = f"{family}-{head}"
        if key not in folders:
            torch.manual_seed(0)
            name, extra = STOCK[head]
            config = transformers.AutoConfig.for_model(family, **FAMILIES[family], **extra)
            auto = getattr(transformers, name)
            model = auto.from_config(config)
            for parameter in model.parameters():  # zero biases would hide a lost term
                torch.nn.init.normal_(parameter, std=0.2)
            folders[key] = str(tmp_path_factory.mktemp(key))
            model.save_pretrained(folders[key])
        return folders[key]

    return save

"""Folders of sentence-transformers: their encoder and their pooling, which the head reads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.models.pooling import pool_states
from bermo_ray.models.sentence_folder import read_pooling
from bermo_ray.models.stock import attached_pooling, tokens_read
from bermo_ray.training.model import build_model
from bermo_ray.trial import Fusion, Trial
from tests.support.families import FAMILIES, IDS, MASK, family_folder, task_of
from tests.support.sentence_folders import sentence_folder, switches

__all__ = ["family_folder"]  # a fixture
MPNET = FAMILIES["bert"]


def test_both_forms_of_the_settings_are_read(tmp_path: Path) -> None:
    for number, (settings, mode) in enumerate(
        [
            (switches("cls_token"), "cls"),
            (switches("mean_tokens"), "mean"),
            (switches("max_tokens"), "max"),
            ({"embedding_dimension": 16, "pooling_mode": "mean"}, "mean"),
        ]
    ):
        (tmp_path / "encoder").mkdir(exist_ok=True)
        folder = sentence_folder(str(tmp_path / "encoder"), tmp_path / str(number), settings)
        assert read_pooling(Path(folder)) == mode
    assert read_pooling(tmp_path) is None
    folder = sentence_folder(
        str(tmp_path / "encoder"), tmp_path / "odd", switches("mean_sqrt_len_tokens")
    )
    with pytest.raises(UserError, match="it pools by mean_sqrt_len, expected one of cls, mean"):
        read_pooling(Path(folder))


def test_the_encoder_lies_where_its_module_says(tiny: str, tmp_path: Path) -> None:
    folder = sentence_folder(tiny, tmp_path / "st", switches("mean_tokens"), "0_BERT")
    assert backbone.locate(folder) == f"{folder}/0_BERT"
    assert backbone.layer_count(folder) == 2
    assert backbone.load_tokenizer(folder).get_vocab() == backbone.load_tokenizer(tiny).get_vocab()


def pool_by_hand(states: np.ndarray, mode: str) -> np.ndarray:
    rows = [states[row][MASK[row].numpy() == 1] for row in range(len(states))]
    return np.stack([row.mean(0) if mode == "mean" else row.max(0) for row in rows])


@pytest.mark.parametrize("mode", ["mean", "max"])
@pytest.mark.parametrize(
    "family", ["bert", "roberta", "distilbert", "electra", "albert", "deberta-v2", "mpnet"]
)
def test_the_head_reads_what_is_pooled(
    family_folder: Any, tmp_path: Path, family: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "mpnet", MPNET)
    source = family_folder(family, "sequence")
    folder = sentence_folder(source, tmp_path / "st", switches(f"{mode}_tokens"))
    encoder = transformers.AutoModel.from_pretrained(source).eval()
    with torch.no_grad():
        states = encoder(input_ids=IDS, attention_mask=MASK).last_hidden_state
    pooled = pool_by_hand(states.numpy(), mode)
    trial = Trial(backbone=folder, fusion=Fusion(name="last"))
    network = build_model(trial, task_of("sequence")).network.eval()
    seen: list[torch.Tensor] = []
    network.base_model.register_forward_hook(lambda m, args, out: seen.append(out[0]))
    with torch.no_grad():
        logits = network(input_ids=IDS, attention_mask=MASK).logits
        stock = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
        plain = stock(input_ids=IDS, attention_mask=MASK).logits
    assert np.allclose(seen[0][:, 0].numpy(), pooled, atol=1e-6)
    assert torch.allclose(seen[0][:, 1:], states[:, 1:], atol=1e-6)
    assert not torch.allclose(logits, plain, atol=1e-6, rtol=0)  # [CLS] is not what it reads
    assert tokens_read(network, task_of("sequence").head) == slice(None)
    # Without the mask's padding it is the same row.
    with torch.no_grad():
        alone = network(input_ids=IDS[1:, :4], attention_mask=MASK[1:, :4]).logits
    assert torch.allclose(alone, logits[1:], atol=1e-5)


def test_other_heads_and_cls_are_left_alone(family_folder: Any, tmp_path: Path) -> None:
    source = family_folder("bert", "token")
    folder = sentence_folder(source, tmp_path / "st", switches("mean_tokens"))
    assert attached_pooling(build_model(Trial(backbone=folder), task_of("token")).network) is None
    source = family_folder("bert", "sequence")
    folder = sentence_folder(source, tmp_path / "cls", switches("cls_token"))
    network = build_model(Trial(backbone=folder), task_of("sequence")).network
    assert attached_pooling(network) is None


def test_modernbert_pools_itself(family_folder: Any, tmp_path: Path) -> None:
    source = family_folder("modernbert", "sequence")
    folder = sentence_folder(source, tmp_path / "st", switches("mean_tokens"))
    network = build_model(Trial(backbone=folder), task_of("sequence")).network
    assert network.config.classifier_pooling == "mean"
    assert attached_pooling(network) is None
    folder = sentence_folder(source, tmp_path / "max", switches("max_tokens"))
    with pytest.raises(UserError, match="modernbert heads can't read pooling 'max'"):
        build_model(Trial(backbone=folder), task_of("sequence"))


def test_states_are_pooled_by_hand() -> None:
    state = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert pool_states(state, mask, "mean").tolist() == [[2.0, -3.0]]
    assert pool_states(state, mask, "max").tolist() == [[3.0, -2.0]]

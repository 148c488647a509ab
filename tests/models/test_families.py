"""Every family that users compress: the same way to its layers, and stock heads untouched."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
import transformers

from bermo_ray import trial as spec
from bermo_ray.errors import UserError
from bermo_ray.models import assembly, backbone, fusion, heads, layer_drop
from bermo_ray.pruning.pruner import prunable
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Trial

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
HEADS = {
    "sequence": ("AutoModelForSequenceClassification", {"num_labels": 3}),
    "regression": ("AutoModelForSequenceClassification", {"num_labels": 1}),
    "token": ("AutoModelForTokenClassification", {"num_labels": 3}),
    "span": ("AutoModelForQuestionAnswering", {}),
    "masked": ("AutoModelForMaskedLM", {}),
}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12], [5, 20, 21, 22, 0, 0, 0, 0]])
MASK = (IDS != 0).long()


def task(head: str) -> Task:
    labels = ("a", "b", "c") if head in ("sequence", "token") else ()
    return Task("t", head, labels, "accuracy", False, lambda *_: pa.table({}))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, str] = {}

    def get(family: str, head: str) -> str:
        key = f"{family}-{head}"
        if key not in made:
            torch.manual_seed(0)
            name, extra = HEADS[head]
            config = transformers.AutoConfig.for_model(family, **FAMILIES[family], **extra)
            auto = getattr(transformers, name)
            model = auto.from_config(config)
            for parameter in model.parameters():  # zero biases would hide a lost term
                torch.nn.init.normal_(parameter, std=0.2)
            made[key] = str(tmp_path_factory.mktemp(key))
            model.save_pretrained(made[key])
        return made[key]

    return get


# Every pair that transformers has: all but a masked head for XLNet.
PAIRS = [
    (family, head) for family in FAMILIES for head in HEADS if (family, head) != ("xlnet", "masked")
]


def test_the_pairs_are_all_there_are() -> None:
    known = transformers.AutoModelForMaskedLM._model_mapping
    assert transformers.XLNetConfig not in known
    assert len(PAIRS) == len(FAMILIES) * len(HEADS) - 1


@pytest.mark.parametrize(("family", "head"), PAIRS)
def test_last_fusion_is_the_stock_model(folder: Any, family: str, head: str) -> None:
    place = folder(family, head)
    name, extra = HEADS[head]
    stock = getattr(transformers, name).from_pretrained(place, **extra).eval()
    built = assembly.build(Trial(backbone=place), task(head))
    with torch.no_grad():
        expected = heads.logits(stock(input_ids=IDS, attention_mask=MASK))
        found = heads.logits(built.model.eval()(input_ids=IDS, attention_mask=MASK))
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max() <= 1e-6


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_states_heard_are_the_models_own(folder: Any, family: str) -> None:
    model = heads.load(folder(family, "token"), task("token")).eval()
    stack = backbone.stack(model)
    heard: list[torch.Tensor] = []

    def hear(index: int, state: torch.Tensor, call: Any) -> torch.Tensor:
        assert index == len(heard)
        heard.append(state)
        return state

    with torch.no_grad():
        own = model(input_ids=IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
        backbone.listen(stack, hear)
        model(input_ids=IDS, attention_mask=MASK)
    assert len(heard) == stack.depth + 1 == 5
    last = 4 if family == "modernbert" else 5  # there the stock list ends behind the final norm
    for mine, theirs in zip(heard[:last], own[:last], strict=True):
        mine = mine.transpose(0, 1) if family == "xlnet" else mine
        assert torch.allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in fusion.FUSIONS if n != "last"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_fusion_trains_on_every_family(folder: Any, family: str, name: str) -> None:
    trial = Trial(backbone=folder(family, "sequence"), fusion=spec.Fusion(name=name))
    built = assembly.build(trial, task("sequence"))
    labels = torch.tensor([0, 2])
    answer = heads.logits(built.model.train()(input_ids=IDS, attention_mask=MASK))
    heads.loss("sequence", answer, {"labels": labels}).backward()
    for key, parameter in built.model.named_parameters():
        if key.startswith("fusion.") and not key.endswith(("r_s_bias", "seg_embed")):
            assert parameter.grad is not None, key
            assert torch.isfinite(parameter.grad).all(), key
    first = next(iter(built.stack.modules.parameters()))
    assert first.grad is not None


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_layer_starts_as_the_stock_model(folder: Any, family: str) -> None:
    place = folder(family, "sequence")
    outputs = []
    for name in ("last", "every_layer"):
        trial = Trial(backbone=place, fusion=spec.Fusion(name=name))
        built = assembly.build(trial, task("sequence"))
        with torch.no_grad():
            outputs.append(built.model.eval()(input_ids=IDS, attention_mask=MASK).logits)
    assert torch.allclose(outputs[0], outputs[1], atol=1e-6)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_layers_drop_and_matrices_are_found(folder: Any, family: str) -> None:
    trial = Trial(
        backbone=folder(family, "sequence"), layer_drop=spec.LayerDrop(strategy="top", count=1)
    )
    built = assembly.build(trial, task("sequence"))
    assert built.stack.depth == 3
    with torch.no_grad():
        built.model.eval()(input_ids=IDS, attention_mask=MASK)
    # XLNet has q, k, v, o, r and two more; ModernBERT joins q, k, v, and gate and input.
    a_layer = {"xlnet": 7, "modernbert": 4}.get(family, 6)
    assert len(prunable(built.stack.modules)) == a_layer * (1 if family == "albert" else 3)
    assert built.dropped == [4]


# What each family writes last in a block: the way out of its feed-forward part.
FINAL = {
    "distilbert": "ffn.lin2.weight",
    "albert": "albert_layers.0.ffn_output.weight",
    "xlnet": "ff.layer_2.weight",
    "modernbert": "mlp.Wo.weight",
}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_layers_are_scored_by_their_final_matrix(folder: Any, family: str) -> None:
    built = assembly.build(Trial(backbone=folder(family, "sequence")), task("sequence"))
    name, _ = layer_drop.final_matrix(built.stack.modules[0])
    assert name == FINAL.get(family, "output.dense.weight")
    scores = layer_drop.weight_scores(built.stack)
    assert all(len(values) == 4 for values in scores.values())
    assert len(set(scores["variance"])) == (1 if family == "albert" else 4)


@pytest.mark.parametrize("name", list(fusion.FUSIONS))
@pytest.mark.parametrize("family", ["bert", "albert", "xlnet"])
def test_a_dropped_model_with_any_fusion_is_like_one_made_short(
    folder: Any, family: str, name: str
) -> None:
    """Shapes are those of a fusion on fewer layers, and what stays is what was there."""
    trial = Trial(backbone=folder(family, "sequence"), fusion=spec.Fusion(name=name))
    whole = assembly.build(trial, task("sequence"))
    drop = spec.LayerDrop(strategy="explicit", layers=(2, 4))
    short = assembly.build(trial.replace(layer_drop=drop), task("sequence"))
    assert short.layers == [1, 3]
    assert short.dropped == [2, 4]
    fresh = fusion.FUSIONS[name](trial.fusion, short.stack)
    mine = {k: v.shape for k, v in short.fusion.state_dict().items()}
    assert mine == {k: v.shape for k, v in fresh.state_dict().items()}
    if name == "bermo":
        kept = whole.fusion.state_dict()["alpha"][[0, 1, 3]]
        assert torch.equal(short.fusion.state_dict()["alpha"], kept)
    with torch.no_grad():
        output = short.model.eval()(input_ids=IDS, attention_mask=MASK).logits
    assert torch.isfinite(output).all()


def test_a_head_that_the_family_lacks_is_one_line(folder: Any) -> None:
    with pytest.raises(UserError, match="its family has no head for masked tasks"):
        heads.load(folder("xlnet", "token"), task("masked"))


def test_weights_that_do_not_match_are_one_line(folder: Any, tmp_path: Path) -> None:
    for change, line in (
        ({"num_hidden_layers": 6}, "32 are missing, bert.encoder.layer.4.attention"),
        ({"intermediate_size": 30}, "its weights can't be loaded"),
    ):
        shutil.copytree(folder("bert", "token"), tmp_path / line[:2])
        config = transformers.AutoConfig.from_pretrained(tmp_path / line[:2])
        config.update(change)
        config.save_pretrained(tmp_path / line[:2])
        with pytest.raises(UserError, match="^[^\n]*$") as caught:
            heads.load(str(tmp_path / line[:2]), task("token"))
        assert line in str(caught.value)
    (tmp_path / "32" / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(UserError, match="its weights can't be loaded"):
        heads.load(str(tmp_path / "32"), task("token"))


def test_a_decoder_is_refused(tmp_path: Path) -> None:
    for family in ("gpt2", "t5"):
        config = transformers.AutoConfig.for_model(family)
        config.save_pretrained(tmp_path / family)
        with pytest.raises(UserError, match=f"a {family} model is not an encoder"):
            backbone.config(str(tmp_path / family))

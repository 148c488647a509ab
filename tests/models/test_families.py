"""Every family that users compress: the same way to its layers, and stock heads untouched."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bermo_ray import trial as spec
from bermo_ray.errors import UserError
from bermo_ray.models import backbone, fusion, layer_drop
from bermo_ray.models.stock import load_stock
from bermo_ray.pruning.pruner import prunable_matrices
from bermo_ray.tasks.heads import HEADS
from bermo_ray.training.model import build_model
from bermo_ray.trial import Trial
from tests.support.families import FAMILIES, IDS, MASK, STOCK, task_of

# Every pair that transformers has: all but a masked head for XLNet.
PAIRS = [
    (family, head) for family in FAMILIES for head in STOCK if (family, head) != ("xlnet", "masked")
]


def test_the_pairs_are_all_there_are() -> None:
    known = transformers.AutoModelForMaskedLM._model_mapping
    assert transformers.XLNetConfig not in known
    assert len(PAIRS) == len(FAMILIES) * len(STOCK) - 1


@pytest.mark.parametrize(("family", "head"), PAIRS)
def test_last_fusion_is_the_stock_model(family_folder: Any, family: str, head: str) -> None:
    path = family_folder(family, head)
    name, extra = STOCK[head]
    stock = getattr(transformers, name).from_pretrained(path, **extra).eval()
    network = build_model(Trial(backbone=path), task_of(head)).network.eval()
    with torch.no_grad():
        expected = HEADS[head].logits(stock(input_ids=IDS, attention_mask=MASK))
        logits = HEADS[head].logits(network(input_ids=IDS, attention_mask=MASK))
    for a, b in zip(logits, expected, strict=True):
        assert (a - b).abs().max() <= 1e-6


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_states_listened_to_are_the_models_own(family_folder: Any, family: str) -> None:
    network = load_stock(family_folder(family, "token"), task_of("token")).eval()
    stack = backbone.find_stack(network)
    recorded: list[torch.Tensor] = []

    def record(index: int, state: torch.Tensor, call_layer: Any) -> torch.Tensor:
        assert index == len(recorded)
        recorded.append(state)
        return state

    with torch.no_grad():
        states = network(IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
        backbone.on_states(stack, record)
        network(input_ids=IDS, attention_mask=MASK)
    assert len(recorded) == stack.depth + 1 == 5
    last = 4 if family == "modernbert" else 5  # there the stock list ends behind the final norm
    for mine, theirs in zip(recorded[:last], states[:last], strict=True):
        mine = mine.transpose(0, 1) if family == "xlnet" else mine
        assert torch.allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in fusion.FUSIONS if n != "last"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_fusion_trains_on_every_family(family_folder: Any, family: str, name: str) -> None:
    trial = Trial(backbone=family_folder(family, "sequence"), fusion=spec.Fusion(name=name))
    model, head = build_model(trial, task_of("sequence")), HEADS["sequence"]
    logits = head.logits(model.network.train()(input_ids=IDS, attention_mask=MASK))
    head.loss(logits, {"labels": torch.tensor([0, 2])}).backward()
    for key, parameter in model.network.named_parameters():
        if key.startswith("fusion.") and not key.endswith(("r_s_bias", "seg_embed")):
            assert parameter.grad is not None, key
            assert torch.isfinite(parameter.grad).all(), key
    first = next(iter(model.stack.modules.parameters()))
    assert first.grad is not None


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_layer_starts_as_the_stock_model(family_folder: Any, family: str) -> None:
    path = family_folder(family, "sequence")
    outputs = []
    for name in ("last", "every_layer"):
        trial = Trial(backbone=path, fusion=spec.Fusion(name=name))
        network = build_model(trial, task_of("sequence")).network.eval()
        with torch.no_grad():
            outputs.append(network(input_ids=IDS, attention_mask=MASK).logits)
    assert torch.allclose(outputs[0], outputs[1], atol=1e-6)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_layers_drop_and_matrices_are_found(family_folder: Any, family: str) -> None:
    trial = Trial(
        backbone=family_folder(family, "sequence"),
        layer_drop=spec.LayerDrop(strategy="top", count=1),
    )
    model = build_model(trial, task_of("sequence"))
    assert model.stack.depth == 3
    with torch.no_grad():
        model.network.eval()(input_ids=IDS, attention_mask=MASK)
    # XLNet has q, k, v, o, r and two more; ModernBERT joins q, k, v, and gate and input.
    a_layer = {"xlnet": 7, "modernbert": 4}.get(family, 6)
    assert len(prunable_matrices(model.stack.modules)) == a_layer * (1 if family == "albert" else 3)
    assert model.dropped_layers == [4]


# What each family writes last in a block: the way out of its feed-forward part.
FINAL = {
    "distilbert": "ffn.lin2.weight",
    "albert": "albert_layers.0.ffn_output.weight",
    "xlnet": "ff.layer_2.weight",
    "modernbert": "mlp.Wo.weight",
}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_layers_are_scored_by_their_final_matrix(family_folder: Any, family: str) -> None:
    model = build_model(Trial(backbone=family_folder(family, "sequence")), task_of("sequence"))
    name, _ = layer_drop.final_matrix(model.stack.modules[0])
    assert name == FINAL.get(family, "output.dense.weight")
    scores = layer_drop.weight_scores(model.stack)
    assert all(len(values) == 4 for values in scores.values())
    assert len(set(scores["variance"])) == (1 if family == "albert" else 4)


@pytest.mark.parametrize("name", list(fusion.FUSIONS))
@pytest.mark.parametrize("family", ["bert", "albert", "xlnet"])
def test_a_dropped_model_with_any_fusion_is_like_one_made_short(
    family_folder: Any, family: str, name: str
) -> None:
    """Shapes are those of a fusion on fewer layers, and what stays is what was there."""
    trial = Trial(backbone=family_folder(family, "sequence"), fusion=spec.Fusion(name=name))
    undropped = build_model(trial, task_of("sequence"))
    drop = spec.LayerDrop(strategy="explicit", dropped_layers=(2, 4))
    short = build_model(trial.replace(layer_drop=drop), task_of("sequence"))
    assert short.layers_left == [1, 3]
    assert short.dropped_layers == [2, 4]
    fresh = fusion.FUSIONS[name](trial.fusion, short.stack)
    mine = {k: v.shape for k, v in short.fusion.state_dict().items()}
    assert mine == {k: v.shape for k, v in fresh.state_dict().items()}
    if name == "bermo":
        kept = undropped.fusion.state_dict()["alpha"][[0, 1, 3]]
        assert torch.equal(short.fusion.state_dict()["alpha"], kept)
    with torch.no_grad():
        output = short.network.eval()(input_ids=IDS, attention_mask=MASK).logits
    assert torch.isfinite(output).all()


def test_a_head_that_the_family_lacks_is_one_line(family_folder: Any) -> None:
    with pytest.raises(UserError, match="its family has no head for masked tasks"):
        load_stock(family_folder("xlnet", "token"), task_of("masked"))


def test_weights_that_do_not_match_are_one_line(family_folder: Any, tmp_path: Path) -> None:
    for change, line in (
        (
            {"num_hidden_layers": 6},
            "32 are missing or of another shape, bert.encoder.layer.4.attention",
        ),
        ({"intermediate_size": 30}, "12 are missing or of another shape, bert.encoder"),
    ):
        shutil.copytree(family_folder("bert", "token"), tmp_path / line[:2])
        config = transformers.AutoConfig.from_pretrained(tmp_path / line[:2])
        config.update(change)
        config.save_pretrained(tmp_path / line[:2])
        with pytest.raises(UserError, match="^[^\n]*$") as caught:
            load_stock(str(tmp_path / line[:2]), task_of("token"))
        assert line in str(caught.value)
    (tmp_path / "32" / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(UserError, match="its weights can't be loaded"):
        load_stock(str(tmp_path / "32"), task_of("token"))


def test_a_decoder_is_refused(tmp_path: Path) -> None:
    for family in ("gpt2", "t5"):
        config = transformers.AutoConfig.for_model(family)
        config.save_pretrained(tmp_path / family)
        with pytest.raises(UserError, match=f"a {family} model is not an encoder"):
            backbone.load_config(str(tmp_path / family))

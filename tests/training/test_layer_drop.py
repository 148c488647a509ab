"""Layers that go before training, from a trained model, or while it trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bermo_ray.errors import UserError
from bermo_ray.models import assembly, backbone, heads
from bermo_ray.tasks import registry
from bermo_ray.tasks.encoding import load
from bermo_ray.training import trained
from bermo_ray.training.check import check
from bermo_ray.training.contribution import contribution
from bermo_ray.training.loop import prepare, train
from bermo_ray.training.trainer import run_locally
from bermo_ray.trial import Data, LayerDrop, Optimizer, Pruning, Trial
from tests.training.test_loop import Interrupt, Stopping, numbers

CPU = torch.device("cpu")


def small(backbone: str, **changes: Any) -> Trial:
    base = Trial(
        data=Data(task="tense", train_rows=48, dev_rows=31),
        backbone=backbone,
        optimizer=Optimizer(learning_rate=1e-3, mask_rate=0.1),
        epochs=1,
        batch_size=16,
    )
    return base.replace(**changes)


def test_a_dropped_model_is_the_stock_one_with_fewer_layers(deeper: str, tmp_path: Path) -> None:
    trial = small(deeper, layer_drop=LayerDrop(strategy="explicit", layers=(2, 3)))
    built = assembly.build(trial, registry.get("tense"))
    torch.manual_seed(trial.seed)
    stock = heads.load(deeper, registry.get("tense")).eval()
    kept = [stock.bert.encoder.layer[i] for i in (0, 3)]
    stock.bert.encoder.layer = torch.nn.ModuleList(kept)
    ids = torch.randint(5, 60, (3, 9))
    with torch.no_grad():
        mine = built.model.eval()(ids).logits
        assert torch.equal(mine, stock(ids).logits)
        built.model.save_pretrained(tmp_path)
        again = heads.load(str(tmp_path), registry.get("tense")).eval()
        assert again.config.num_hidden_layers == len(again.bert.encoder.layer) == 2
        assert torch.equal(again(ids).logits, mine)


def test_what_went_counts_as_gone_and_the_rest_is_logged(deeper: str) -> None:
    whole = run_locally(small(deeper))[-1]
    short = run_locally(small(deeper, layer_drop=LayerDrop(count=3)))[-1]
    assert (whole["layers"], short["layers"]) == (4, 1)
    assert "dropped" not in whole
    assert short["dropped"] == [2, 3, 4]
    assert (whole["remaining"], short["remaining"]) == (1.0, 0.25)
    # A layer of width 32: 4·(32·32 + 32) + (32·64 + 64) + (64·32 + 32) + 2·2·32.
    assert whole["parameters"] - short["parameters"] == 3 * 8544
    assert whole["bytes"] - short["bytes"] == 4 * 3 * 8544
    assert 0 < short["latency"] < whole["latency"]


def test_contribution_is_the_mean_cosine_of_the_first_token(deeper: str) -> None:
    trial = small(deeper, fusion__name="bermo")
    built = assembly.build(trial, registry.get("tense"))
    data = load(registry.get("tense"), trial.data, "dev", 0, backbone.tokenizer(deeper))
    stock = heads.load(deeper, registry.get("tense")).eval()
    expected = np.zeros(4)
    with torch.no_grad():
        for row in range(len(data)):
            batch = {k: v for k, v in data.batch([row]).items() if k not in data.targets}
            states = stock(**batch, output_hidden_states=True).hidden_states
            for i in range(4):
                expected[i] += F.cosine_similarity(states[i][0, 0], states[i + 1][0, 0], dim=0)
    found = contribution(built, data, 7, CPU)
    assert found == pytest.approx(expected / len(data), abs=1e-5)
    assert len(set(found)) == 4
    going = prepare(trial.replace(layer_drop__strategy="contribution", layer_drop__count=2), 1, CPU)
    most_similar = sorted(range(1, 5), key=lambda i: -found[i - 1])[:2]
    assert going.built.dropped == sorted(most_similar)


@pytest.mark.parametrize("fusion", ["bermo", "every_layer", "concat"])
def test_gradual_dropping_with_masks_resumes_exactly(
    deeper: str, tmp_path: Path, fusion: str
) -> None:
    trial = small(
        deeper,
        fusion__name=fusion,
        layer_drop=LayerDrop(strategy="top", count=2, every=1),
        pruning=Pruning(final_lambda=50.0),
        optimizer__mask_rate=3.0,
        epochs=3,
    )
    whole = numbers(run_locally(trial, tmp_path / "whole"))
    assert [r["layers"] for r in whole] == [4, 3, 2]
    assert [r.get("dropped") for r in whole] == [None, [4], [3, 4]]
    assert whole[1]["remaining"] < 0.75
    assert whole[2]["remaining"] < 0.5
    if fusion == "bermo":
        assert [len(r["mixing"]) for r in whole] == [5, 4, 3]

    class StoppingLater(Stopping):
        def report(self, metrics: Any, save: Any) -> None:
            if metrics["step"] == 3:
                super(Stopping, self).report(metrics, save)
                self.reports.clear()
            else:
                super().report(metrics, save)

    with pytest.raises(Interrupt):
        train(trial, StoppingLater(tmp_path / "c"))  # after the first layer went
    assert numbers(run_locally(trial, tmp_path / "c"))[1:] == whole[2:]
    again = trained.load(tmp_path / "whole")
    assert again.built.layers == [1, 2]
    assert again.left.remaining == whole[-1]["remaining"]


def test_a_dropped_layer_of_every_layer_is_the_identity(deeper: str) -> None:
    """Random mixes: the model without layer 3 answers as one whose third layer passes on."""
    built = [assembly.build(small(deeper, fusion__name="every_layer"), registry.get("tense"))
             for _ in range(2)]  # fmt: skip
    torch.manual_seed(1)
    for a, b in zip(*(list(one.fusion.mixes) for one in built), strict=True):  # type: ignore[arg-type]
        a.data = b.data = torch.randn_like(a)
    built[0].stack.modules[2].forward = lambda state, *_, **__: state
    assembly.shrink(built[1], [3])
    ids = torch.randint(5, 60, (3, 9))
    with torch.no_grad():
        first, second = (one.model.eval()(ids).logits for one in built)
    assert torch.allclose(first, second, atol=1e-5)


def test_dropping_from_a_trained_model_keeps_its_weights_and_its_alpha(
    deeper: str, tmp_path: Path
) -> None:
    first = small(deeper, fusion__name="bermo", data__train_rows=400, epochs=8)
    run_locally(first, tmp_path / "first")
    drop = LayerDrop(strategy="bottom", count=1)
    second = first.replace(
        start=str(tmp_path / "first"), layer_drop=drop, seed=1, epochs=1, data__train_rows=48
    )
    check([second])
    run = prepare(second, 1, CPU)
    source = trained.load(tmp_path / "first").built
    old, new = source.model.state_dict(), run.built.model.state_dict()
    assert torch.equal(new["fusion.alpha"], old["fusion.alpha"][[0, 2, 3, 4]])
    assert torch.equal(new["classifier.weight"], old["classifier.weight"])
    key = "bert.encoder.layer.{}.output.dense.weight"
    assert torch.equal(new[key.format(0)], old[key.format(1)])
    last = run_locally(second, tmp_path / "second")[-1]
    assert last["dropped"] == [1]
    assert trained.load(tmp_path / "second").left.remaining == last["remaining"] == 0.75
    # And on from there: layers keep the backbone's numbers.
    third = second.replace(start=str(tmp_path / "second"))
    check([third])
    last = run_locally(third, tmp_path / "third")[-1]
    assert last["dropped"] == [1, 2]
    assert last["remaining"] == 0.5
    with pytest.raises(UserError, match="got 3, expected < 3 layers"):
        check([second.replace(start=str(tmp_path / "second"), layer_drop__count=3)])
    for change, line in (
        ({"fusion__name": "last"}, "start: its fusion is"),
        ({"data__task": "entities"}, "start: its labels"),
        ({"start": str(tmp_path / "none")}, "start: no checkpoint of a trial in"),
    ):
        with pytest.raises(UserError) as caught:
            check([second.replace(**change)])
        assert line in str(caught.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"count": 4}, "layer_drop.count: got 4, expected < 4 layers"),
        ({"strategy": "explicit", "layers": (1, 7)}, "layer_drop.layers: got 7, expected 1 <="),
        ({"strategy": "contribution", "threshold": -0.9}, "layer_drop.threshold: all 4 layers"),
    ],
)
def test_what_can_not_go_is_found_before_anything_starts(
    deeper: str, change: dict[str, Any], line: str
) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        check([small(deeper, layer_drop=LayerDrop(**change))])
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"layer_drop": {"strategy": "explicit", "layers": [2, 2]}}, "a layer is named twice in"),
        ({"layer_drop": {"strategy": "top", "threshold": 0.9}}, "threshold is for strategy"),
        ({"layer_drop": {"strategy": "contribution", "threshold": 0.9, "count": 1}}, "give one"),
        ({"layer_drop": {"count": 2, "every": 2}, "epochs": 4}, "take 4 epochs and some training"),
    ],
)
def test_settings_that_contradict_are_one_line(values: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        Trial.from_dict(values)
    assert line in str(caught.value)


def test_a_shortened_student_learns_from_a_shortened_teacher(tmp_path: Path) -> None:
    drop = LayerDrop(strategy="symmetric", count=1)
    teacher = small("embedded", layer_drop=drop, data__train_rows=200, epochs=2)
    run_locally(teacher, tmp_path / "teacher")
    student = small(
        "embedded",
        layer_drop=LayerDrop(strategy="variance", count=2),
        pruning=Pruning(final_lambda=1.0),
        distillation={"teacher": str(tmp_path / "teacher")},
        fusion__name="bermo",
    )
    check([student])
    taught, alone = (run_locally(t)[-1] for t in (student, student.replace(distillation=None)))
    assert taught["layers"] == 4
    assert taught["train_loss"] != alone["train_loss"]


def test_what_starts_from_frozen_features_trains_everything(tmp_path: Path) -> None:
    frozen = small("embedded", mode="features", fusion__name="bermo", data__train_rows=200)
    run_locally(frozen, tmp_path / "frozen")
    whole = frozen.replace(start=str(tmp_path / "frozen"), mode="finetune")
    run = prepare(whole, 1, CPU)
    assert all(p.requires_grad for p in run.built.model.parameters())

"""Layers that go before training, from a trained model, or while it trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bermo_ray.errors import UserError
from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.models.stock import load_stock
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.tasks.registry import get_task
from bermo_ray.training import contribution
from bermo_ray.training.check import check_trials
from bermo_ray.training.contribution import layer_similarity
from bermo_ray.training.layer_scores import layer_scores
from bermo_ray.training.loop import train
from bermo_ray.training.model import build_model, load_trained
from bermo_ray.training.reporter import run_locally
from bermo_ray.training.setup import set_up
from bermo_ray.trial import L0, Data, LayerDrop, Optimizer, Trial
from tests.support.runs import Interrupted, InterruptingReporter, untimed

CPU = torch.device("cpu")


def small(backbone: str, **changes: Any) -> Trial:
    base = Trial(
        data=Data(task="tense", train_rows=48, dev_rows=31),
        backbone=backbone,
        optimizer=Optimizer(learning_rate=1e-3, score_learning_rate=0.1, fusion_learning_rate=0.1),
        epochs=1,
        batch_size=16,
    )
    return base.replace(changes)


def test_a_dropped_model_is_the_stock_one_with_fewer_layers(deeper: str, tmp_path: Path) -> None:
    trial = small(deeper, layer_drop=LayerDrop(strategy="explicit", dropped_layers=(2, 3)))
    network = build_model(trial, get_task("tense")).network.eval()
    torch.manual_seed(trial.seed)
    stock = load_stock(deeper, get_task("tense")).eval()
    kept = [stock.bert.encoder.layer[i] for i in (0, 3)]
    stock.bert.encoder.layer = torch.nn.ModuleList(kept)
    ids = torch.randint(5, 60, (3, 9))
    with torch.no_grad():
        mine = network(ids).logits
        assert torch.equal(mine, stock(ids).logits)
        network.save_pretrained(tmp_path)
        again = load_stock(str(tmp_path), get_task("tense")).eval()
        assert again.config.num_hidden_layers == len(again.bert.encoder.layer) == 2
        assert torch.equal(again(ids).logits, mine)


def test_what_went_counts_as_gone_and_the_rest_is_logged(deeper: str) -> None:
    undropped = run_locally(small(deeper))[-1]
    short = run_locally(small(deeper, layer_drop=LayerDrop(count=3)))[-1]
    assert (undropped.layers_left, short.layers_left) == (4, 1)
    assert undropped.dropped_layers == []
    assert short.dropped_layers == [2, 3, 4]
    assert (undropped.remaining, short.remaining) == (1.0, 0.25)
    # A layer of width 32: 4·(32·32 + 32) + (32·64 + 64) + (64·32 + 32) + 2·2·32.
    assert undropped.parameters - short.parameters == 3 * 8544  # type: ignore[operator]
    assert undropped.weight_bytes - short.weight_bytes == 4 * 3 * 8544  # type: ignore[operator]
    assert 0 < short.latency < undropped.latency


def test_contribution_is_the_mean_cosine_of_the_first_token(deeper: str) -> None:
    trial = small(deeper, fusion="bermo")
    model = build_model(trial, get_task("tense"))
    data = encode_split(get_task("tense"), trial.data, "train", 0, load_tokenizer(deeper))
    stock = load_stock(deeper, get_task("tense")).eval()
    expected = np.zeros(4)
    with torch.no_grad():
        for row in range(len(data)):
            batch = {k: v for k, v in data.batch([row]).items() if k not in data.gold}
            states = stock(**batch, output_hidden_states=True).hidden_states
            for i in range(4):
                expected[i] += F.cosine_similarity(states[i][0, 0], states[i + 1][0, 0], dim=0)
    similarity = layer_similarity(model, data, 7, CPU)
    assert similarity == pytest.approx(expected / len(data), abs=1e-5)
    assert len(set(similarity)) == 4
    run = set_up(trial.replace(layer_drop={"strategy": "contribution", "count": 2}), 1, CPU)
    most_similar = sorted(range(1, 5), key=lambda i: -similarity[i - 1])[:2]
    assert run.model.dropped_layers == sorted(most_similar)
    assert layer_scores(trial)["contribution"].to_pylist() == similarity


def test_contribution_sees_training_rows_alone(
    deeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the dev set, whose second half verifies what was chosen."""
    seen: list[int] = []

    def score(model: Any, data: EncodedRows, *_: Any, **__: Any) -> list[float]:
        seen.append(len(data))
        return layer_similarity(model, data, 16, CPU)

    for module in ("setup", "check", "layer_scores"):
        monkeypatch.setattr(f"bermo_ray.training.{module}.layer_similarity", score)
    trial = small(deeper, layer_drop=LayerDrop(strategy="contribution", threshold=0.999999))
    check_trials([trial])
    set_up(trial, 1, CPU)
    layer_scores(trial)
    assert seen == [48, 48, 48]  # of 48 training rows and 31 dev rows


def test_contribution_is_over_the_first_rows(deeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = small(deeper)
    model = build_model(trial, get_task("tense"))
    data = encode_split(get_task("tense"), trial.data, "train", 0, load_tokenizer(deeper))
    first = layer_similarity(model, data.take(np.arange(10)), 8, CPU)
    assert layer_similarity(model, data, 8, CPU) != first
    assert contribution.MOST_ROWS == 2000
    monkeypatch.setattr(contribution, "MOST_ROWS", 10)
    assert layer_similarity(model, data, 8, CPU) == first


@pytest.mark.parametrize("fusion", ["bermo", "every_layer", "concat"])
def test_gradual_dropping_with_masks_resumes_exactly(
    deeper: str, tmp_path: Path, fusion: str
) -> None:
    trial = small(
        deeper,
        fusion=fusion,
        layer_drop=LayerDrop(strategy="top", count=2, epochs_per_layer=1),
        pruning=L0(multiplier=50.0),
        optimizer={"score_learning_rate": 3.0},
        epochs=3,
    )
    straight = run_locally(trial, tmp_path / "straight")
    assert [r.layers_left for r in straight] == [4, 3, 2]
    assert [r.dropped_layers for r in straight] == [[], [4], [3, 4]]
    assert straight[1].remaining < 0.75
    assert straight[2].remaining < 0.5
    if fusion == "bermo":
        assert [len(r.mixing_weights) for r in straight] == [5, 4, 3]

    with pytest.raises(Interrupted):
        train(trial, InterruptingReporter(tmp_path / "c", stop_at=6))  # after the first layer went
    assert untimed(run_locally(trial, tmp_path / "c")[1:]) == untimed(straight[2:])
    again = load_trained(tmp_path / "straight")
    assert again.model.layers_left == [1, 2]
    assert again.count.remaining == straight[-1].remaining


def test_a_dropped_layer_of_every_layer_is_the_identity(deeper: str) -> None:
    """Random mixes: the model without layer 3 answers as one whose third layer passes on."""
    models = [build_model(small(deeper, fusion="every_layer"), get_task("tense"))
              for _ in range(2)]  # fmt: skip
    torch.manual_seed(1)
    for a, b in zip(*(list(m.fusion.mixes) for m in models), strict=True):  # type: ignore[arg-type]
        a.data = b.data = torch.randn_like(a)
    models[0].stack.modules[2].forward = lambda state, *_, **__: state
    models[1].remove_layers([3])
    ids = torch.randint(5, 60, (3, 9))
    with torch.no_grad():
        first, second = (model.network.eval()(ids).logits for model in models)
    assert torch.allclose(first, second, atol=1e-5)


def test_dropping_from_a_trained_model_keeps_its_weights_and_its_alpha(
    deeper: str, tmp_path: Path
) -> None:
    first = small(deeper, fusion="bermo", data={"train_rows": 400}, epochs=8)
    run_locally(first, tmp_path / "first")
    drop = LayerDrop(strategy="bottom", count=1)
    second = first.replace(
        warm_start=str(tmp_path / "first"),
        layer_drop=drop,
        seed=1,
        epochs=1,
        data={"train_rows": 48},
    )
    check_trials([second])
    run = set_up(second, 1, CPU)
    source = load_trained(tmp_path / "first").model
    old, new = source.network.state_dict(), run.model.network.state_dict()
    assert torch.equal(new["fusion.alpha"], old["fusion.alpha"][[0, 2, 3, 4]])
    assert torch.equal(new["classifier.weight"], old["classifier.weight"])
    key = "bert.encoder.layer.{}.output.dense.weight"
    assert torch.equal(new[key.format(0)], old[key.format(1)])
    last = run_locally(second, tmp_path / "second")[-1]
    assert last.dropped_layers == [1]
    assert load_trained(tmp_path / "second").count.remaining == last.remaining == 0.75
    # And on from there: layers keep the backbone's numbers.
    third = second.replace(warm_start=str(tmp_path / "second"))
    check_trials([third])
    last = run_locally(third, tmp_path / "third")[-1]
    assert last.dropped_layers == [1, 2]
    assert last.remaining == 0.5
    with pytest.raises(UserError, match="got 3, expected < 3 layers"):
        check_trials([second.replace(warm_start=str(tmp_path / "second"), layer_drop={"count": 3})])
    for change, line in (
        ({"fusion.name": "last"}, "warm_start: its fusion is"),
        ({"data.task": "entities"}, "warm_start: its labels"),
        ({"warm_start": str(tmp_path / "none")}, "warm_start: no checkpoint of a trial in"),
    ):
        with pytest.raises(UserError) as caught:
            check_trials([second.replace(change)])
        assert line in str(caught.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"count": 4}, "layer_drop.count: got 4, expected < 4 layers"),
        (
            {"strategy": "explicit", "dropped_layers": (1, 7)},
            "layer_drop.dropped_layers: got 7, expected 1 <=",
        ),
        ({"strategy": "contribution", "threshold": -0.9}, "layer_drop.threshold: all 4 layers"),
    ],
)
def test_what_can_not_go_is_found_before_anything_starts(
    deeper: str, change: dict[str, Any], line: str
) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        check_trials([small(deeper, layer_drop=LayerDrop(**change))])
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"layer_drop": {"strategy": "explicit", "dropped_layers": [2, 2]}},
            "a layer is named twice in",
        ),
        ({"layer_drop": {"strategy": "top", "threshold": 0.9}}, "threshold is for strategy"),
        ({"layer_drop": {"strategy": "contribution", "threshold": 0.9, "count": 1}}, "give one"),
        (
            {"layer_drop": {"count": 2, "epochs_per_layer": 2}, "epochs": 4},
            "take 4 epochs and some training",
        ),
    ],
)
def test_settings_that_contradict_are_one_line(values: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        Trial.from_dict(values)
    assert line in str(caught.value)


def test_a_shortened_student_learns_from_a_shortened_teacher(tmp_path: Path) -> None:
    drop = LayerDrop(strategy="symmetric", count=1)
    teacher = small("embedded", layer_drop=drop, data={"train_rows": 200}, epochs=2)
    run_locally(teacher, tmp_path / "teacher")
    student = small(
        "embedded",
        layer_drop=LayerDrop(strategy="variance", count=2),
        pruning=L0(multiplier=1.0),
        distillation={"teacher": str(tmp_path / "teacher")},
        fusion="bermo",
    )
    check_trials([student])
    taught, alone = (run_locally(t)[-1] for t in (student, student.replace(distillation=None)))
    assert taught.layers_left == 4
    assert taught.train_loss != alone.train_loss


def test_what_starts_from_frozen_features_trains_everything(tmp_path: Path) -> None:
    frozen = small("embedded", mode="features", fusion="bermo", data={"train_rows": 200})
    run_locally(frozen, tmp_path / "frozen")
    finetuned = frozen.replace(warm_start=str(tmp_path / "frozen"), mode="finetune")
    run = set_up(finetuned, 1, CPU)
    assert all(p.requires_grad for p in run.model.network.parameters())

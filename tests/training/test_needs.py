"""What a trial is said to need is what it takes."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_model

from bermo_ray.errors import UserError
from bermo_ray.models.stock import build_empty_stock, load_stock
from bermo_ray.training.loop import train
from bermo_ray.training.needs import _file_bytes, _saved_tensors, estimate_needs
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import LayerDrop, Trial
from tests.support.families import FAMILIES, STOCK, task_of
from tests.support.runs import Interrupted, InterruptingReporter, small_trial

# Every pair that transformers has: all but a masked head for XLNet.
PAIRS = [
    (family, head) for family in FAMILIES for head in STOCK if (family, head) != ("xlnet", "masked")
]
DENSE: dict[str, Any] = {"pruning": None}
CASES: dict[str, dict[str, Any]] = {
    "l0": {},
    "l0, embeddings trained": {"freeze_embeddings": False},
    "dense": DENSE,
    "frozen embeddings": DENSE | {"freeze_embeddings": True},
    "features": DENSE | {"mode": "features"},
    "magnitude has no scores": {"pruning": "magnitude"},
    "some matrices": {"pruning": {"name_pattern": "query"}},
    "layers dropped": {"layer_drop": LayerDrop(strategy="top", count=2)},
    "layers listed": {"layer_drop": LayerDrop(strategy="explicit", dropped_layers=(1, 3, 4))},
    "layers dropped by score": {"layer_drop": LayerDrop(strategy="variance", count=1)},
    "layers dropped one by one": DENSE
    | {"epochs": 3, "layer_drop": LayerDrop(strategy="top", count=2, epochs_per_layer=1)},
    "a copy of the best": DENSE | {"final_checkpoint": "best"},
    "dwatt": {"fusion": "dwatt"},
    "concat": DENSE | {"fusion": "concat"},
    "extra layers": {"fusion": "extra_layers"},
    "every layer": {"fusion": "every_layer"},
}


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_takes_what_was_estimated(deeper: str, tmp_path: Path, case: str) -> None:
    trial = small_trial(deeper, **CASES[case])
    (needs,) = estimate_needs([trial])
    reports = run_locally(trial, tmp_path / "finished")
    assert needs.finished_bytes == pytest.approx(folder_bytes(tmp_path / "finished"), rel=0.02)
    assert (needs.steps, needs.evaluations) == (reports[-1].step, len(reports))
    assert needs.trained_rows == trial.epochs * 96
    extra = trial.final_checkpoint == "best"
    assert needs.evaluated_rows == (len(reports) + extra) * 51 + 51  # of test, once
    # The first evaluation has all layers that go later; the one before the last has a best model.
    middle = reports[-2 if extra else 0].step
    with pytest.raises(Interrupted):
        train(trial, InterruptingReporter(tmp_path / "running", stop_at=middle))
    assert needs.running_bytes == pytest.approx(folder_bytes(tmp_path / "running"), rel=0.02)


def test_a_warm_start_has_the_layers_that_were_left(deeper: str, tmp_path: Path) -> None:
    first = small_trial(deeper, layer_drop=LayerDrop(strategy="top", count=1), epochs=1)
    run_locally(first, tmp_path / "first")
    second = small_trial(
        deeper, warm_start=str(tmp_path / "first"), layer_drop=LayerDrop(strategy="top", count=1)
    )
    (needs,) = estimate_needs([second])
    run_locally(second, tmp_path / "second")
    assert needs.finished_bytes == pytest.approx(folder_bytes(tmp_path / "second"), rel=0.02)


@pytest.mark.parametrize(("family", "head"), PAIRS)
def test_every_family_is_as_large_without_its_weights(
    family_folder: Any, tmp_path: Path, family: str, head: str
) -> None:
    folder, task = family_folder(family, head), task_of(head)
    network, empty = load_stock(folder, task), build_empty_stock(folder, task)
    assert family == "xlnet" or {p.device.type for p in empty.parameters()} == {"meta"}
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}
    assert {name: tuple(p.shape) for name, p in empty.named_parameters()} == shapes
    save_model(network, str(tmp_path / "model.safetensors"))
    size = (tmp_path / "model.safetensors").stat().st_size
    assert abs(_file_bytes(_saved_tensors(empty)) - size) < 200  # padding, and what shares weights


def test_a_head_that_a_family_has_not_is_one_line(family_folder: Any) -> None:
    with pytest.raises(UserError, match="its family has no head for masked tasks"):
        build_empty_stock(family_folder("xlnet", "token"), task_of("masked"))


def test_workers_that_can_not_share_a_last_batch_leave_it_out(tiny: str) -> None:
    trial = small_trial(tiny, data={"train_rows": 97}, batch_size=16, epochs=2)
    alone, two = (estimate_needs([trial], workers)[0] for workers in (1, 2))
    assert (alone.steps, two.steps) == (14, 12)


def test_the_test_split_is_evaluated_once(tmp_path: Path, tiny: str) -> None:
    from tests.support.task_files import data_in, write_text

    rows = [f"{part}\tPAST\tHe slept .\n" for part in ("tr", "va", "te") for _ in range(12)]
    write_text(tmp_path, "senteval/past_present.txt", "".join(rows))
    data = data_in(tmp_path, "senteval/past_present")
    (needs,) = estimate_needs([Trial(data=data, backbone=tiny, batch_size=4, epochs=3)])
    assert (needs.steps, needs.evaluations) == (9, 3)
    assert needs.evaluated_rows == 3 * 12 + 12

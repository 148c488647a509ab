import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bermo_ray.cache import CACHE_VARIABLE, LIMIT_VARIABLE
from bermo_ray.errors import UserError
from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.models.fusion import FUSIONS
from bermo_ray.tasks.encoding import encode_rows, encode_split
from bermo_ray.tasks.registry import get_task
from bermo_ray.training import array_cache, features
from bermo_ray.training.check import check_trials
from bermo_ray.training.model import build_model
from bermo_ray.training.reporter import run_locally
from bermo_ray.training.setup import set_up
from bermo_ray.trial import Data, Fusion, Optimizer, Trial

CPU = torch.device("cpu")


def small(tiny: str, **changes: Any) -> Trial:
    base = Trial(
        data=Data(task="tense", train_rows=60, dev_rows=41),
        backbone=tiny,
        fusion=Fusion(name="bermo"),
        optimizer=Optimizer(learning_rate=1e-2),
        mode="features",
        epochs=3,
        batch_size=16,
    )
    return base.replace(changes)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return tmp_path / "features"


@pytest.mark.parametrize("name", list(FUSIONS))
def test_cached_and_recomputed_give_the_same_numbers(
    tiny: str, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    trial = small(tiny, fusion=name)
    first, again = run_locally(trial), run_locally(trial)
    monkeypatch.setenv(CACHE_VARIABLE, "off")
    plain = run_locally(trial)
    for a, b, c in zip(first, again, plain, strict=True):
        assert a.loss == b.loss
        assert a.loss == pytest.approx(c.loss, abs=1e-4)
        assert a.train_loss == pytest.approx(c.train_loss, abs=1e-4)
        assert a.metric == c.metric
    files = list(cache.glob("*.npy"))
    assert len(files) == (0 if name == "every_layer" else 3)  # its states change as it learns


def test_the_encoder_runs_once(tiny: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    compute = features._compute

    def counted(*args: Any) -> Any:
        seen.extend(args[-1])
        return compute(*args)

    monkeypatch.setattr(features, "_compute", counted)
    for seed in (0, 1):
        run_locally(small(tiny, seed=seed))
    run_locally(small(tiny, fusion={"norm": "none"}, optimizer={"learning_rate": 1e-3}))
    assert len(seen) == 60 + 41 + 41  # every row of train, dev and test once, for all three trials


def test_what_matters_makes_another_file(tiny: str, cache: Path) -> None:
    def key(trial: Trial, change: bool = False) -> str:
        model = set_up(trial, 1, CPU).model
        if change:
            with torch.no_grad():
                next(iter(model.stack.modules.parameters()))[0] += 1e-3
        task = get_task(trial.data.task)
        rows = task.take_rows(trial.data, "train", 0)
        data = encode_rows(task, rows, load_tokenizer(tiny), trial.data.max_length)
        kept = features.KeptStates.of(model, data)
        assert kept is not None
        return array_cache.make_key(model.stack.base, data, repr(kept), "pooler")

    base = key(small(tiny))
    assert key(small(tiny, seed=5)) == base  # head and α are not of the encoder
    assert key(small(tiny), change=True) != base
    assert key(small(tiny, data={"train_rows": 59})) != base
    assert key(small(tiny, data={"max_length": 8})) != base
    assert key(small(tiny, fusion={"mixed_states": [0, 2]})) != base
    assert key(small(tiny, fusion="last")) != base
    assert key(small(tiny, fusion="extra_layers")) != key(small(tiny, fusion="last"))


@pytest.mark.parametrize("task", ["entities", "answer_span", "similarity"])
def test_other_heads_keep_the_tokens_they_read(
    tiny: str, cache: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    trial = small(tiny, data={"task": task}, epochs=1)
    kept = run_locally(trial)[-1]
    files = [np.load(f) for f in cache.glob("*.npy")]
    rows = {60, 41}
    assert ({len(f) for f in files} == rows) == (task == "similarity")  # one token per row
    monkeypatch.setenv(CACHE_VARIABLE, "off")
    plain = run_locally(trial)[-1]
    assert kept.loss == pytest.approx(plain.loss, abs=1e-4)
    # Two of 41 rows that swap neighbouring ranks move Spearman's by 1.7e-4: Pearson's has no ranks.
    values = [r.other_metrics.get("pearson", r.metric) for r in (kept, plain)]
    assert values[0] == pytest.approx(values[1], abs=1e-4)


def test_rows_that_are_drawn_anew_have_no_states_to_keep(tiny: str) -> None:
    trial = small(tiny, data={"task": "masked_words"})
    line = (
        "mode: got 'features', which keeps the states of fixed rows, "
        "but masked_words hides other pieces in every epoch"
    )
    for refused in (lambda: check_trials([trial]), lambda: run_locally(trial)):
        with pytest.raises(UserError) as caught:
            refused()
        assert caught.value.problems == (line,)


def test_replay_is_the_model(tiny: str, cache: Path) -> None:
    for name in ("last", "bermo", "mean", "concat", "dwatt", "extra_layers"):
        trial = small(tiny, fusion=name)
        task = get_task("tense")
        model = build_model(trial, task)
        data = encode_split(task, trial.data, "dev", 0, load_tokenizer(tiny))
        model.network.eval()
        rows = [4, 0, 17]
        with torch.no_grad():
            batch = data.batch(rows)
            del batch["labels"]
            expected = model.network(**batch).logits
            states = model.fusion.states_read()
            assert states is not None
            batch = features.with_states(model, data, 16, CPU).batch(rows)
            del batch["labels"]
            replayed = features.ReplayNetwork(model, states).eval()(**batch).logits
        assert (batch["input_ids"].shape[1] == 1) == (name != "extra_layers")
        assert torch.allclose(replayed, expected, atol=1e-5), name


def test_the_oldest_goes_when_there_is_no_room_and_too_much_is_not_kept(
    tiny: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_locally(small(tiny))
    old = {f: f.stat().st_size for f in cache.glob("*.npy")}
    for file in old:
        os.utime(file, (1, 1))
    monkeypatch.setenv(LIMIT_VARIABLE, str(1.2 * sum(old.values()) / 1e9))
    run_locally(small(tiny, data={"max_length": 10}))
    kept = list(cache.glob("*.npy"))
    assert sum(f.stat().st_size for f in kept) <= 1.2 * sum(old.values())
    assert not all(f in kept for f in old)
    monkeypatch.setenv(LIMIT_VARIABLE, "0.000001")
    reports = run_locally(small(tiny, data={"max_length": 12}))
    assert reports[-1].status.ended
    assert set(cache.glob("*.npy")) == set(kept)


def _fill(tiny: str, folder: str, slow: bool, ready: Any) -> None:
    os.environ[CACHE_VARIABLE] = folder
    torch.set_num_threads(1)
    trial = small(tiny)
    task = get_task("tense")
    model = build_model(trial, task)
    data = encode_split(task, trial.data, "train", 0, load_tokenizer(tiny))
    if slow:
        compute = features._compute

        def half(*args: Any) -> None:
            compute(*args)
            ready.set()
            signal.pause()  # killed here, the file half-written

        features._compute = half
    features.with_states(model, data, 16, CPU)


@pytest.mark.slow
def test_one_dies_while_writing_and_two_want_it_at_once(tiny: str, cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    folder = str(cache.parent)
    dying = context.Process(target=_fill, args=(tiny, folder, True, ready))
    dying.start()
    assert ready.wait(120)
    os.kill(dying.pid, signal.SIGKILL)  # type: ignore[arg-type]
    dying.join()
    assert len(list(cache.glob("*.partial"))) == 1
    assert not list(cache.glob("*.npy"))
    both = [context.Process(target=_fill, args=(tiny, folder, False, ready)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [p.exitcode for p in both] == [0, 0]
    files = list(cache.glob("*.npy"))
    assert len(files) == 1
    assert not list(cache.glob("*.partial"))
    states = np.load(files[0])
    assert np.isfinite(states).all()
    assert (np.abs(states).sum(axis=(1, 2)) > 0).all()

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from bermo_ray.errors import UserError
from bermo_ray.record import Status
from bermo_ray.training.reporter import run_locally
from bermo_ray.training.result import run
from bermo_ray.training.setup import set_up
from tests.support.runs import small_trial, untimed


def test_a_run_gives_model_metric_and_history(tiny: str) -> None:
    trial = small_trial(tiny, pruning={"initial_score": -2.3})
    result = run(trial)
    assert untimed(result.reports) == untimed(run_locally(trial))
    assert result.report is result.reports[-1]
    assert result.history["step"].to_pylist() == [3, 6, 9, 12]
    assert result.history["metric"].to_pylist() == [report.metric for report in result.reports]
    assert result.history.schema.field("mixing_weights").type == pa.list_(pa.float64())
    assert result.metric == result.report.metric
    # The model gives the metric that was reported: its masks are in it, dropout is off.
    data = set_up(trial, 1, torch.device("cpu")).data["dev"]
    batch = data.batch(range(len(data)))
    gold = batch.pop("labels")
    with torch.no_grad():
        right = (result.model(**batch).logits.argmax(1) == gold).numpy()
    assert np.mean(right) == pytest.approx(result.metric)
    assert not result.model.training
    nonzero = sum(int(p.count_nonzero()) for p in result.model.parameters())
    assert nonzero == result.report.nonzero_parameters
    assert result.report.density < 1


def test_it_shows_how_it_went(tiny: str) -> None:
    result = run(small_trial(tiny, pruning=None, epochs=1))
    assert repr(result).startswith(f"TrialResult({result.trial.id}: {result.report.status}, ")
    shown = result._repr_html_()
    assert shown.count("<tr>") == 1 + len(result.reports)
    assert f"{result.metric:.4f}" in shown
    assert "100.0%" in shown


def test_a_folder_keeps_the_run_and_refuses_another(tiny: str, tmp_path: Path) -> None:
    trial = small_trial(tiny, epochs=1)
    first, again = run(trial, tmp_path / "kept"), run(trial, str(tmp_path / "kept"))
    assert again.reports == first.reports  # read, not run again: speeds are equal too
    with pytest.raises(UserError, match=f"holds trial {trial.id}, not "):
        run(trial.replace(seed=9), tmp_path / "kept")


def test_bad_trials_and_models_are_told_in_a_line(tiny: str) -> None:
    with pytest.raises(UserError, match="unknown fusion 'brmo': did you mean bermo"):
        run(small_trial(tiny, fusion="brmo"))
    result = run(small_trial(tiny, optimizer={"learning_rate": 1e30, "warmup": 0}))
    assert result.report.status is Status.DIVERGED
    with pytest.raises(UserError, match="not finite"):
        _ = result.model

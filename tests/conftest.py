"""Shared fixtures. Tests are small: one thread, tiny encoders, rows of the embedded language."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is left in a user's cache, or taken from it."""
    os.environ["BERMO_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard() -> None:
    """pytest-xdist's processes ignore it, and so would all that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """No login of MLflow's is known when a test starts, and what it leaves is forgotten."""
    from bermo_ray.tracking import addresses

    for name in ("URI", "USERNAME", "PASSWORD", "TOKEN"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "restores what was there")
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}")
    monkeypatch.setattr(addresses, "_full_addresses", {})
    monkeypatch.setattr(addresses, "_logins", {})


def _random_bert(folder: Path, layers: int) -> str:
    """A random BERT of width 32 with the embedded vocabulary: trains in a second."""
    from transformers import BertConfig, BertForMaskedLM

    from bermo_ray.models import backbone

    source = Path(backbone.locate("embedded"))
    for file in source.glob("*token*"):
        shutil.copy(file, folder)
    config = BertConfig.from_pretrained(source)
    small = {"hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 2}
    config.update(small | {"intermediate_size": 64})
    torch.manual_seed(0)
    BertForMaskedLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small encoder of two layers."""
    return _random_bert(tmp_path_factory.mktemp("tiny"), 2)


@pytest.fixture(scope="session")
def deeper(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small encoder of four layers, to drop some of."""
    return _random_bert(tmp_path_factory.mktemp("deeper"), 4)


@pytest.fixture(scope="session")
def shared_data() -> str:
    """Real data that stands beside the project here and in CI."""
    if not (SHARED / "data").is_dir():
        pytest.skip("no ../shared/data beside the project")
    return str(SHARED / "data")


@pytest.fixture(scope="session")
def report_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose store has the frontier study ``one``, ``two``, which needs half of its
    weights, and ``young``, of which no trial has finished."""
    from tests.support.report_store import write_frontier_study, write_young_study

    folder = tmp_path_factory.mktemp("report_runs")
    write_frontier_study(folder, "one", (0.4, 0.2))
    write_frontier_study(folder, "two", (0.2, 0.1))
    write_young_study(folder, "young")
    return folder

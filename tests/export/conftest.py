from pathlib import Path

import pytest

from tests.support.trial_store import TrialStore


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return TrialStore(tmp_path)

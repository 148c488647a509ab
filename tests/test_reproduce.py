"""The document of ``make reproduce``, from verdicts made up."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from bermo_ray.results.verdicts import Claim, Estimate, judge

ROOT = Path(__file__).parents[1]


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reproduce", ROOT / "tools" / "reproduce.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reproduce"] = module
    spec.loader.exec_module(module)
    return module


def test_it_names_every_script_once() -> None:
    scripts = {file.stem for file in (ROOT / "studies").glob("[!_]*.py")}
    assert sorted(load_tool().STUDIES) == sorted(scripts)


def test_the_document_counts_outcomes_and_names_what_is_missing() -> None:
    from dataclasses import replace

    claim = Claim("B is better", "Paper, Table 1", "B is better by", published=2.5)
    estimates = [Estimate(1.0, 0.5, 1.5, 3), Estimate(1.0, -0.5, 2.5, 3)]
    verdicts = [
        replace(judge(claim, "here", lambda e=e: e), study="probing", command="python studies/x.py")  # type: ignore[misc]
        for e in estimates
    ]
    tool = load_tool()
    text = tool.write_document(verdicts, {"probing": 90.0})
    assert "1 of the 16 studies" in text
    assert "Not run yet: `standalone`, `stability`" in text
    assert "Of 2 claims: 1 agrees, 1 not settled." in text
    assert (
        "| B is better (Paper, Table 1) | 2.50 points | 1.00 points (0.50 to 1.50), n = 3 |" in text
    )
    assert "| `studies/probing.py` | 1.5 |" in text
    assert "minutes" not in tool.write_document(verdicts, {})

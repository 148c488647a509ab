"""The tutorial runs, and what it says of its own numbers holds."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.ipynb"


def text_of(cell: nbformat.NotebookNode, kind: str) -> str:
    """All that a cell shows in that form."""
    shown = [output["data"].get(kind, "") for output in cell.outputs if "data" in output]
    printed = [output.get("text", "") for output in cell.outputs if kind == "text/plain"]
    return "".join([*shown, *printed])


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = str(TUTORIAL.parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(TUTORIAL, as_version=4)
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": tmp_path}}).execute()
    cells = {cell.source: cell for cell in notebook.cells if cell.cell_type == "code"}
    (front,) = (cell for source, cell in cells.items() if source == "results.frontier()")
    assert "data:image/png;base64," in text_of(front, "text/html")
    assert "Models on the frontier" in text_of(front, "text/html")
    (mistake,) = (cell for source, cell in cells.items() if "brmo" in source)
    assert text_of(mistake, "text/plain").startswith("UserError: unknown fusion 'brmo'")
    (kept,) = (cell for source, cell in cells.items() if source.startswith("layers = "))
    assert text_of(kept, "text/plain").startswith("0.200 of the weights")
    assert not list(tmp_path.iterdir())  # it leaves nothing behind

"""``bermo-ray report`` and ``bermo-ray compare``."""

import sys
from pathlib import Path

import pytest

from bermo_ray.command_line import commands


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["bermo-ray", *words])
    commands.main()


def test_a_report_is_written_into_the_folder_of_the_study(
    report_runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call(monkeypatch, "report", "one", "--runs", str(report_runs))
    file = report_runs / "one" / "report.html"
    assert capsys.readouterr().out.split() == ["report", str(file)]
    out, figures = tmp_path / "r.html", tmp_path / "figures"
    words = ("--out", str(out), "--figures", str(figures), "--runs", str(report_runs))
    call(monkeypatch, "report", "one", *words)
    assert out.read_text() == file.read_text()
    shown = capsys.readouterr().out
    assert f"figures  {figures}/ (7, as PNG and SVG)" in shown.replace("\n", " ")
    assert len(list(figures.glob("*.svg"))) == len(list(figures.glob("*.png"))) == 7


def test_a_comparison_fits_80_columns_and_is_written_too(
    report_runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "c.html"
    call(monkeypatch, "compare", "one", "two", "--runs", str(report_runs), "--out", str(out))
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines() if str(out) not in line)
    for title in ("What differs", "Weights at the same metric", "Hypervolume", "Metric"):
        assert f"\n{title}\n" in shown
    assert "0.97  0.8730  2.00 (1.5 to 2.67)" in shown
    assert "Point at one" not in shown  # of figures that a terminal does not show
    assert "<h1>one and two</h1>" in out.read_text()
    assert out.read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["report", "young"], "study 'young' has no finished trial to report on"),
        (["report", "other"], "no study 'other' in"),
        (["report", "one", "--out", "x.pdf"], "--out: got x.pdf, expected a name ending in .html"),
        (["report", "one", "--out", "no/such/x.html"], "--out: can't write no/such/x.html"),
        (["compare", "one", "young"], "study 'young' has no finished trial"),
        (["compare", "one", "one"], "second: got 'one', the same study as the first"),
        (["compare", "one", "two", "--out", "x.txt"], "expected a name ending in .html"),
    ],
)
def test_mistakes_are_one_line(
    report_runs: Path,
    words: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, *words, "--runs", str(report_runs))
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert line in err
    assert len(err.strip().splitlines()) == 1

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from bermo_ray.record import Report
from bermo_ray.results import figures as figures_module
from bermo_ray.results import frontier
from bermo_ray.results.figures import frontier_figure, sparsity_figure, trial_figures
from tests.support.result_rows import points


def test_the_constant_answer_is_dotted_and_the_dense_baseline_dashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    save = figures_module._save

    def keep(figure: Figure, file: Path) -> Path:
        drawn.append(figure)
        return save(figure, file)

    monkeypatch.setattr(figures_module, "_save", keep)

    def levels(table: pa.Table, style: str = ":") -> dict[Any, float]:
        frontier_figure(table, frontier(table), "accuracy", tmp_path / "f.png")
        lines = drawn[-1].axes[0].get_lines()
        drawn_so = [line for line in lines if line.get_linestyle() == style]
        return {line.get_label(): float(line.get_ydata()[0]) for line in drawn_so}  # type: ignore[index,arg-type]

    one_task = points((0.1, 0.524), (0.3, 0.9), constant_metric=0.5)
    assert levels(one_task) == {"constant answer": 0.5}
    assert levels(points((0.1, 0.6))) == {}  # not known
    assert levels(one_task.slice(0, 0)) == {}
    dense = points((1.0, 0.7), (1.0, 0.95), method="dense", constant_metric=0.5)  # two recipes
    assert levels(pa.concat_tables([one_task, dense]), "--") == {"last, dense": 0.95}
    assert levels(one_task, "--") == {}


def test_the_heat_map_has_layers_by_kinds() -> None:
    matrices = [
        (f"{layer}.{kind}.weight", (layer + 1) * 10, 100)
        for layer in (0, 1, 8)
        for kind in ("attention.self.query", "output.dense")
    ]
    figure = sparsity_figure([*matrices, ("1.only.here", 7, 100)], 0.4)
    axes = figure.axes[0]
    percent = axes.get_images()[0].get_array()
    assert percent is not None
    assert percent.shape == (3, 3)
    assert percent[:, 0].tolist() == [10, 20, 90]
    assert percent[1, 2] == pytest.approx(7)
    assert percent.mask[0, 2]  # no such matrix there
    kinds = [label.get_text() for label in axes.get_xticklabels()]
    assert kinds == ["attention.self.query", "output.dense", "only.here"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "9"]
    assert "40.00%" in axes.get_title(loc="left")


def test_a_trial_has_the_figures_of_what_it_reports() -> None:
    assert trial_figures(Report()) == {}
    report = Report(mixing_weights=[0.5, 0.5], kept_by_matrix=[("0.a.weight", 1, 2)], density=0.5)
    figures = trial_figures(report)
    assert set(figures) == {"mixing.png", "sparsity.png"}
    assert figures["mixing.png"].axes[0].get_title(loc="left") == ""
    with_gamma = trial_figures(Report(mixing_weights=[1.0], gamma=1.25))["mixing.png"]
    assert with_gamma.axes[0].get_title(loc="left") == "γ = 1.250"

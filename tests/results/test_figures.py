from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure

from bermo_ray.record import Report
from bermo_ray.results import figures as figures_module
from bermo_ray.results.figures import (
    draw_frontier,
    figure_files,
    frontier_figure,
    line_style,
    sparsity_figure,
    trial_figures,
)
from tests.support.result_rows import points, seeded


@pytest.fixture
def draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[pa.Table], Axes]:
    """Draws a frontier and gives its axes."""
    drawn: list[Figure] = []
    save = figures_module.save_figure

    def keep(figure: Figure, file: Path) -> Path:
        drawn.append(figure)
        return save(figure, file)

    def axes_of(table: pa.Table) -> Axes:
        file = frontier_figure(table, "accuracy", tmp_path / "f.png")
        assert file.read_bytes().startswith(b"\x89PNG")
        assert 'viewBox="0 0 504 324"' in file.with_suffix(".svg").read_text()  # 7 by 4.5 inches
        return drawn[-1].axes[0]

    monkeypatch.setattr(figures_module, "save_figure", keep)
    return axes_of


def lines(axes: Axes, style: str) -> dict[Any, float]:
    """Label -> level of the level lines of a style."""
    found = [line for line in axes.get_lines() if line.get_linestyle() == style]
    return {line.get_label(): float(np.asarray(line.get_ydata())[0]) for line in found}


def test_the_constant_answer_is_dotted_and_the_dense_baseline_dashed(
    draw: Callable[[pa.Table], Axes],
) -> None:
    one_task = points((0.1, 0.524), (0.3, 0.9), constant_metric=0.5)
    assert lines(draw(one_task), ":") == {"constant answer, 0.500": 0.5}
    assert lines(draw(points((0.1, 0.6))), ":") == {}  # not known
    assert lines(draw(one_task), "--") == {}
    # Two dense recipes: the better on one half is drawn as the other half has it.
    dense = points((1.0, 0.7, 0.9), (1.0, 0.95, 0.85), method="dense", constant_metric=0.5)
    assert lines(draw(pa.concat_tables([one_task, dense])), "--") == {"last, dense": 0.85}


def test_steps_of_one_seed_go_from_point_to_point(draw: Callable[[pa.Table], Axes]) -> None:
    axes = draw(points((0.1, 0.7, 0.6), (0.2, 0.6, 0.9), (0.4, 0.8, 0.75)))
    (steps,) = (line for line in axes.get_lines() if line.get_drawstyle() == "steps-post")
    assert np.asarray(steps.get_xdata()).tolist() == pytest.approx([10, 40, 100])
    assert np.asarray(steps.get_ydata()).tolist() == pytest.approx([0.6, 0.75, 0.75])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["last"]  # type: ignore[union-attr]
    faint = axes.collections[0].get_offsets()
    assert np.asarray(faint)[:, 1].tolist() == pytest.approx([0.6, 0.9, 0.75])
    # From a little below the lowest point of the curve: 0.6 less a tenth of 0.15.
    assert axes.get_ylim() == pytest.approx((0.585, 0.765))


def test_the_mean_over_seeds_begins_where_all_have_a_point(
    draw: Callable[[pa.Table], Axes],
) -> None:
    columns = {"task": "t", "backbone": "b", "fusion": "last", "method": "l0"}
    rows = [("a", 0, 0.05, 0.7), ("b", 0, 0.3, 0.9), ("c", 1, 0.1, 0.6), ("d", 1, 0.4, 0.7)]
    axes = draw(seeded(rows, **columns))
    *seeds, steps = (line for line in axes.get_lines() if line.get_drawstyle() == "steps-post")
    assert [np.asarray(s.get_xdata()).tolist() for s in seeds] == [[5, 30, 100], [10, 40, 100]]
    assert np.asarray(seeds[0].get_ydata()).tolist() == [0.7, 0.9, 0.9]
    assert np.asarray(steps.get_xdata()).tolist() == pytest.approx([10, 30, 40, 100])
    assert np.asarray(steps.get_ydata()).tolist() == pytest.approx([0.65, 0.75, 0.8, 0.8])
    # Bars at 10, 15, 20, 30, 40, 50, 70 and 100 %: half of the first is 12.706 times 0.05.
    (bars,) = (c for c in axes.collections if isinstance(c, LineCollection))
    ends = [np.asarray(segment)[:, 1] for segment in bars.get_segments()]
    assert len(ends) == 8
    assert ends[0] == pytest.approx([0.65 - 12.706205 * 0.05, 0.65 + 12.706205 * 0.05])


def test_a_figure_without_a_point_says_so(draw: Callable[[pa.Table], Axes]) -> None:
    failed = points((0.1, 0.6), status="failed")
    for table in (failed, failed.slice(0, 0)):
        assert [text.get_text() for text in draw(table).texts] == ["no trial completed"]
    only_dense = points((1.0, 0.9), method="dense")
    assert lines(draw(only_dense), "--") == {"last, dense": 0.9}


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
    assert set(figures) == {"mixing.png", "mixing.svg", "sparsity.png", "sparsity.svg"}
    assert figures["mixing.svg"] is figures["mixing.png"]
    assert figures["mixing.png"].axes[0].get_title(loc="left") == ""
    with_gamma = trial_figures(Report(mixing_weights=[1.0], gamma=1.25))["mixing.png"]
    assert with_gamma.axes[0].get_title(loc="left") == "γ = 1.250"


def test_the_same_figure_gives_the_same_svg_with_its_text_as_text(tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        file = frontier_figure(points((0.1, 0.6), (0.4, 0.8)), "accuracy", tmp_path / f"{name}.png")
        assert figure_files(file) == [file, file.with_suffix(".svg")]
        texts.append(file.with_suffix(".svg").read_text())
    assert texts[0] == texts[1]
    assert ">remaining encoder parameters, %</text>" in texts[0]
    assert figure_files(tmp_path / "other.png") == [tmp_path / "other.png"]


def test_each_trial_that_has_an_address_is_drawn_once_and_solid_on_its_frontier() -> None:
    pruned, dense = points((0.1, 0.6), (0.2, 0.5)), points((1.0, 0.9), method="dense")
    table = pa.concat_tables([pruned, dense])
    table = table.set_column(table.schema.get_field_index("run_id"), "run_id", [["a", "b", "c"]])
    arms = [table.append_column("arm", [[name] * 3]) for name in ("one", "other")]
    addresses = {"a": "trial:a", "b": "trial:b", "c": "trial:c"}
    figure = draw_frontier(pa.concat_tables(arms), "accuracy", "arm", addresses)
    (drawn,) = (c for c in figure.axes[0].collections if isinstance(c, PathCollection))
    linked = dict(zip(drawn.get_urls(), np.asarray(drawn.get_alpha()), strict=True))
    assert linked == {"trial:a": 0.9, "trial:b": 0.35, "trial:c": 0.9}


def test_no_two_of_42_arms_look_alike() -> None:
    looks = {(style["color"], style["marker"]) for style in map(line_style, range(42))}
    assert len(looks) == 42

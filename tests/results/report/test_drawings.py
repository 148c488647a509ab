import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from bermo_ray.results.report.drawings import (
    MOST_DOTS,
    TrainingCurve,
    intervals_figure,
    mixing_weights_figure,
    training_figure,
)
from bermo_ray.results.verdicts import Claim, Estimate, Verdict, judge


def verdict(value: float, low: float | None, high: float | None, **claim: object) -> Verdict:
    words = {"text": "a claim", "source": "a paper", "quantity": "it is"} | claim
    return judge(Claim(**words), "here", lambda: Estimate(value, low, high, 3))  # type: ignore[arg-type]


def test_an_interval_has_its_ends_the_papers_number_and_no_effect() -> None:
    figure = intervals_figure([verdict(0.8, 0.6, 1.1, published=1.4, unit="×", no_effect=1.0)])
    assert figure is not None
    lines = [np.asarray(line.get_xdata()).tolist() for line in figure.axes[0].get_lines()]
    assert lines == [[0.6, 1.1], [0.8], [1.4], [1.0, 1.0]]


def test_units_have_panels_of_their_own_and_no_answer_is_not_drawn() -> None:
    answers = [verdict(2.0, 1.0, 3.0), verdict(0.8, None, None, unit="×", no_effect=1.0)]
    figure = intervals_figure(answers)
    assert figure is not None
    assert [axes.get_xlabel() for axes in figure.axes] == ["estimate, points", "estimate, ×"]
    assert len(figure.axes[1].get_lines()) == 2  # the dot and no effect: one seed has no interval
    assert intervals_figure([verdict(float("nan"), None, None)]) is None
    assert intervals_figure([]) is None


def test_a_line_is_the_mean_and_the_band_goes_from_lowest_to_highest() -> None:
    curves = [TrainingCurve([1, 2], [0.5, 0.8]), TrainingCurve([1, 2], [0.7, 0.9])]
    axes = training_figure({"": {"last": curves}}, "accuracy", scale=100).axes[0]
    (line,) = axes.get_lines()
    assert np.asarray(line.get_ydata()).tolist() == pytest.approx([60, 85])
    (band,) = (c for c in axes.collections if isinstance(c, PolyCollection))
    corners = {tuple(np.round(point, 6)) for point in band.get_paths()[0].vertices}
    assert corners >= {(1, 50), (1, 70), (2, 80), (2, 90)}


def test_trials_of_different_lengths_are_lines_of_their_own() -> None:
    curves = [TrainingCurve([1, 2], [0.5, 0.8]), TrainingCurve([1, 2, 3], [0.7, 0.9, 1.0])]
    axes = training_figure({"": {"last": curves}}, "accuracy").axes[0]
    assert [len(np.asarray(line.get_xdata())) for line in axes.get_lines()] == [2, 3]
    assert not axes.collections


def test_mixing_weights_are_bars_of_means_and_a_dot_for_each_trial() -> None:
    weights = np.array([[0.2, 0.8], [0.4, 0.6]])
    axes = mixing_weights_figure({"": {"bermo": weights}}).axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.3, 0.7])  # type: ignore[attr-defined]
    dots = [np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()]
    assert dots == [[0.2, 0.8], [0.4, 0.6], [0.5, 0.5]]  # the last is where all count alike


def test_no_more_than_twelve_panels_are_drawn() -> None:
    curves = {"last": [TrainingCurve([1, 2], [0.5, 0.8])]}
    figure = training_figure({str(number): curves for number in range(20)}, "accuracy")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [str(n) for n in range(12)]


def test_of_many_trials_the_spread_is_drawn_instead_of_dots() -> None:
    first = np.linspace(0.2, 0.4, MOST_DOTS + 1)
    axes = mixing_weights_figure({"": {"bermo": np.stack([first, 1 - first], axis=1)}}).axes[0]
    (bars,) = (c for c in axes.collections if isinstance(c, LineCollection))
    ends = [np.asarray(segment)[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [pytest.approx([0.2, 0.4]), pytest.approx([0.6, 0.8])]

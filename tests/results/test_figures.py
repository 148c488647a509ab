import pytest

from bermo_ray.results.figures import of_trial, sparsity_figure


def test_the_heat_map_has_layers_by_kinds() -> None:
    matrices = [
        (f"{layer}.{kind}.weight", (layer + 1) * 10, 100)
        for layer in (0, 1, 8)
        for kind in ("attention.self.query", "output.dense")
    ]
    figure = sparsity_figure([*matrices, ("1.only.here", 7, 100)], 0.4)
    axes = figure.axes[0]
    shown = axes.get_images()[0].get_array()
    assert shown is not None
    assert shown.shape == (3, 3)
    assert shown[:, 0].tolist() == [10, 20, 90]
    assert shown[1, 2] == pytest.approx(7)
    assert shown.mask[0, 2]  # no such matrix there
    kinds = [label.get_text() for label in axes.get_xticklabels()]
    assert kinds == ["attention.self.query", "output.dense", "only.here"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "9"]
    assert "40.00%" in axes.get_title(loc="left")


def test_a_trial_has_the_figures_of_what_it_reports() -> None:
    assert of_trial({}) == {}
    report = {"mixing": [0.5, 0.5], "matrices": [["0.a.weight", 1, 2]], "density": 0.5}
    assert set(of_trial(report)) == {"mixing.png", "sparsity.png"}

"""Between which numbers of layers the counts are looked for."""

from bermo_ray.results import hyperparameters, published
from tests.support.studies import load_script


def test_by_default_three_tasks_with_three_seeds() -> None:
    script = load_script("optimal_layers")
    plan = script.plan(script.Options())
    assert [line.base.data.task for line in plan.lines] == ["tense", "bigram_shift", "entities"]
    assert {line.most_dropped for line in plan.lines} == {5}
    assert (plan.seeds, plan.strategy) == ((0, 1, 2), "top")
    assert plan.most_trials == 3 * 3 * 6


def test_the_papers_settings_need_no_encoder_and_keep_two_halves_of_dev() -> None:
    script = load_script("optimal_layers")
    plan = script.plan(script.Options(paper=True))
    asked = {(line.base.data.task, line.base.backbone) for line in plan.lines}
    rows = published("layer_dropping", "T4").to_pylist()
    assert asked == {(row["task"], row["backbone"]) for row in rows}
    assert {line.most_dropped for line in plan.lines} == {11}
    assert not any(line.base.data.whole_dev for line in plan.lines)
    settings = hyperparameters("layer_dropping", "6.1").to_pylist()
    assert plan.thresholds == [row["value"] for row in settings if row["setting"] == "loss"]
    assert {line.base.epochs for line in plan.lines} == {3}

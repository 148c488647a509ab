import math

import pytest

from bermo_ray.tasks.metrics import (
    accuracy,
    constant_metric,
    entity_f1,
    exact_match,
    f1,
    find_entities,
    masked_accuracy,
    matthews,
    measure_metrics,
    pearson,
    span_f1,
    spearman,
)

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def test_classification_metrics_by_hand() -> None:
    predicted, gold = [1, 1, 0, 0, 1], [1, 0, 0, 1, 1]
    assert accuracy(predicted, gold) == 0.6
    assert math.isclose(f1(predicted, gold), 2 * 2 / (3 + 3))
    # tp=2 tn=1 fp=1 fn=1: (2·1 − 1·1)/√(3·3·2·2)
    assert math.isclose(matthews(predicted, gold), 1 / 6)
    assert matthews([1, 1], [0, 1]) == 0.0
    assert f1([0, 0], [0, 1]) == 0.0


def test_pearson_is_linear_and_zero_for_a_constant() -> None:
    assert math.isclose(pearson([1, 2, 3], [2, 4, 6]), 1.0)
    assert math.isclose(pearson([0, 0, 3], [0, 1, 2]), math.sqrt(3) / 2)  # 3 / √(6·2)
    assert pearson([1, 1, 1], [1, 2, 3]) == 0.0


def test_spearman_is_of_ranks_and_zero_for_a_constant() -> None:
    assert math.isclose(spearman([1, 4, 9, 16], [1, 2, 3, 4]), 1.0)
    assert spearman([1, 1, 1], [1, 2, 3]) == 0.0


def test_entities_follow_seqevals_rules() -> None:
    assert find_entities(["B-PER", "I-PER", "O", "B-LOC"]) == {("PER", 0, 1), ("LOC", 3, 3)}
    assert find_entities(["B-PER", "B-PER"]) == {("PER", 0, 0), ("PER", 1, 1)}
    # An I- that continues nothing opens an entity of its own.
    assert find_entities(["O", "I-LOC", "I-PER"]) == {("LOC", 1, 1), ("PER", 2, 2)}


def test_entity_f1_counts_exact_spans_and_skips_ignored_pieces() -> None:
    gold = [[-100, 1, 2, -100, 0, 3, -100]]
    assert entity_f1([[0, 1, 2, 4, 0, 3, 1]], gold, TAGS) == 1.0
    # One of two found, and one found wrong: 2·1/(2+2).
    assert entity_f1([[0, 1, 0, 0, 0, 3, 0]], gold, TAGS) == 0.5
    assert entity_f1([[0] * 7], gold, TAGS) == 0.0


def test_span_f1_normalises_as_squad_does() -> None:
    assert span_f1(["The red Car!"], [["a red car"]]) == 1.0
    assert math.isclose(span_f1(["red car here"], [["red car"]]), 0.8)
    assert span_f1(["the"], [["a"]]) == 0.0  # v1.1's script; 1 is v2.0's
    assert span_f1([""], [["car"]]) == 0.0
    # The nearest of several answers counts, question by question.
    assert math.isclose(span_f1(["red car", "x"], [["car", "red cars"], ["y"]]), (2 / 3 + 0) / 2)


def test_exact_match_takes_any_answer_after_normalisation() -> None:
    assert exact_match(["The Red, car"], [["blue", "a red car"]]) == 1.0
    assert exact_match(["red car", "x"], [["red cars"], ["X."]]) == 0.5


def test_perplexity_is_e_to_the_loss() -> None:
    metrics = measure_metrics(("masked_accuracy", "perplexity"), [[1]], [[1]], (), math.log(7))
    assert metrics == {"masked_accuracy": 1.0, "perplexity": pytest.approx(7.0)}


def test_masked_accuracy_counts_hidden_pieces_only() -> None:
    assert masked_accuracy([[1, 2, 3], [4]], [[-100, 2, 9], [4]]) == pytest.approx(2 / 3)


def test_constant_metric_is_what_a_constant_answer_reaches() -> None:
    assert constant_metric("accuracy", [0, 0, 1]) == pytest.approx(2 / 3)
    assert constant_metric("f1", [1, 1, 0, 0]) == pytest.approx(f1([1] * 4, [1, 1, 0, 0]))
    assert constant_metric("spearman", [0.5, 1.0]) == 0.0

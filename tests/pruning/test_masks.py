import math

import torch

from bermo_ray.pruning.masks import L0, PENALTY_SHIFT, hard_concrete, open_probability


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_evaluation_mask_by_hand() -> None:
    # σ(S)·1.2 − 0.1, clamped: S=0 gives 0.5; it is 0 from σ(S) ≤ 1/12, S ≤ −ln 11, on.
    scores = torch.tensor([0.0, 2.197, -math.log(11.0) - 1e-3, 5.0, -0.5])
    expected = [0.5, 0.9 * 1.2 - 0.1, 0.0, 1.0, sigmoid(-0.5) * 1.2 - 0.1]
    assert torch.allclose(hard_concrete(scores), torch.tensor(expected), atol=1e-4)
    assert hard_concrete(scores)[2] == 0


def test_training_mask_by_hand() -> None:
    # u = 0.25: ln u − ln(1−u) = −ln 3; β = 2/3.
    expected = sigmoid((-math.log(3) + 0.4) * 1.5) * 1.2 - 0.1
    found = hard_concrete(torch.tensor(0.4), torch.tensor(0.25))
    assert math.isclose(found.item(), expected, abs_tol=1e-6)


def test_noise_is_clamped_so_that_nothing_is_infinite() -> None:
    scores = torch.zeros(2, requires_grad=True)
    mask = hard_concrete(scores, torch.tensor([0.0, 1.0]))
    assert mask.tolist() == [0.0, 1.0]
    mask.sum().backward()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    u = torch.tensor(1e-4)
    assert torch.equal(hard_concrete(scores, torch.zeros(2)), hard_concrete(scores, u.expand(2)))


def test_gradient_by_hand() -> None:
    # d M/d S = (r−l)/β · s(1−s) inside (0, 1), 0 where clamped (Eq. 5 with 0 ≤ Z ≤ 1).
    scores = torch.tensor([0.4, 30.0], requires_grad=True)
    hard_concrete(scores, torch.tensor([0.25, 0.25])).sum().backward()
    s = sigmoid((-math.log(3) + 0.4) * 1.5)
    assert scores.grad is not None
    assert torch.allclose(scores.grad, torch.tensor([1.2 * 1.5 * s * (1 - s), 0.0]), atol=1e-6)


def test_penalty_is_the_probability_that_the_mask_is_open() -> None:
    assert math.isclose(PENALTY_SHIFT, -2 / 3 * math.log(0.1 / 1.1))
    scores = torch.tensor([-2.0, 0.0, 1.0])
    torch.manual_seed(0)
    draws = hard_concrete(scores.expand(200_000, 3), torch.rand(200_000, 3)) > 0
    assert torch.allclose(draws.float().mean(0), open_probability(scores), atol=4e-3)


def test_the_mask_is_random_in_training_only_and_multiplies_the_weight() -> None:
    torch.manual_seed(0)
    weight = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    mask = L0(weight, 2.197)
    assert torch.allclose(mask.eval()(weight), 0.98 * weight, atol=1e-4)
    assert not torch.equal(mask.train()(weight), mask(weight))
    assert math.isclose(mask.penalty().item(), sigmoid(2.197 + PENALTY_SHIFT), abs_tol=1e-6)

import math

import pytest
import torch
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.pruning.masks import (
    BLOCK_NUMBERS,
    L0_PENALTY_SHIFT,
    L0Mask,
    MagnitudeMask,
    Matrix,
    Method,
    MovementMask,
    SoftMovementMask,
    blocks,
    hard_concrete,
    keep_above,
    mean_penalty,
    random_like,
    top_cut,
    uniform,
)

MAGNITUDE, MOVEMENT = MagnitudeMask(spec.Magnitude()), MovementMask(spec.Movement())
SOFT_MOVEMENT, HARD_CONCRETE = SoftMovementMask(spec.SoftMovement()), L0Mask(spec.L0())


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def matrix(weight: torch.Tensor, scores: torch.Tensor | None = None) -> Matrix:
    return Matrix("0.w", nn.Parameter(weight), None if scores is None else nn.Parameter(scores))


def gradients(masked: Matrix, method: Method, grad: torch.Tensor) -> torch.Tensor:
    """The scores' gradient from G; the weight's is left in ``grad``."""
    out = torch.empty_like(grad)
    method.backward(masked, masked.weight.detach(), grad, out)
    return out


WEIGHT = torch.tensor([[0.5, -2.0, 0.1], [1.5, -0.3, 0.7]])
SCORES = torch.tensor([[3.0, -1.0, 0.5], [0.2, 2.0, -4.0]])
G = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


class TestTop:
    def test_exactly_as_many_as_asked_lie_above_the_cut(self) -> None:
        torch.manual_seed(0)
        values = torch.randn(40, 25)
        for keep in (1, 7, 100, 999):
            cut, (ties,) = top_cut([values], keep)
            assert ties is None
            assert int((values > cut).sum()) == keep

    def test_ties_are_broken_by_order(self) -> None:
        cut, (first, second) = top_cut([torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 2.0])], 4)
        assert cut == 0.0
        assert first is not None
        assert (first.tolist(), second) == ([1, 2], None)  # the first two zeros of three

    def test_all_and_none(self) -> None:
        assert top_cut([torch.zeros(3)], 3) == (-math.inf, [None])
        assert top_cut([torch.zeros(3)], 0) == (math.inf, [None])

    def test_kept_by_cut_and_ties(self) -> None:
        x = torch.tensor([1.0, 2.0, 3.0, 4.0])
        masked = matrix(x, torch.tensor([5.0, 0, 0, -1]))
        masked.cut, masked.ties = 0.0, torch.tensor([2])
        assert keep_above(x, torch.tensor([5.0, 0, 0, -1]), 0.0).tolist() == [1.0, 0.0, 0.0, 0.0]
        assert MOVEMENT.masked_weight(masked, True).tolist() == [1.0, 0.0, 3.0, 0.0]
        assert MOVEMENT.kept_mask(masked).tolist() == [True, False, True, False]

    def test_blocks_cover_everything(self) -> None:
        x = torch.arange(2.0 * BLOCK_NUMBERS + 3).view(1, -1)
        for tensor in (x, x.expand(2, -1)):  # what is not contiguous comes in one piece
            y = torch.zeros_like(tensor).contiguous()
            parts = list(blocks(tensor, y))
            for a, b in parts:
                b.add_(a)
            assert torch.equal(y, tensor)
            assert len(parts) == (3 if tensor is x else 1)


class TestMagnitude:
    def test_mask_and_gradient_by_hand(self) -> None:
        masked, method = matrix(WEIGHT.clone()), MAGNITUDE
        method.update([masked], 0.5)  # int(0.5 · 6) = 3: −2, 1.5, 0.7
        assert method.masked_weight(masked, True).tolist() == [
            [0, -2.0, 0],
            [1.5, 0, pytest.approx(0.7)],
        ]
        grad = G.clone()
        gradients(masked, MAGNITUDE, grad)
        assert grad.tolist() == [[0, 2, 0], [4, 0, 6]]

    def test_kept_is_rounded_down(self) -> None:
        masked, method = matrix(WEIGHT.clone()), MAGNITUDE
        method.update([masked], 0.49)  # int(2.94) = 2
        assert int(method.kept_mask(masked).sum()) == 2


class TestMovement:
    def test_mask_and_straight_through_gradient_by_hand(self) -> None:
        masked, method = matrix(WEIGHT.clone(), SCORES.clone()), MOVEMENT
        method.update([masked], 0.5)  # scores 3, 2, 0.5
        kept = [[True, False, True], [False, True, False]]
        assert method.kept_mask(masked).tolist() == kept
        assert torch.equal(method.masked_weight(masked, True), WEIGHT * torch.tensor(kept))
        grad = G.clone()
        assert torch.equal(gradients(masked, MOVEMENT, grad), G * WEIGHT)  # ∂L/∂S := G ⊙ W
        assert torch.equal(grad, G * torch.tensor(kept))  # ∂L/∂W = G ⊙ M

    def test_one_ranking_over_all_matrices(self) -> None:
        low = matrix(torch.ones(4), torch.tensor([0.0, 1.0, 2.0, 3.0]))
        high = matrix(torch.ones(4), torch.tensor([4.0, 5.0, 6.0, -1.0]))
        for scope, kept in (("global", [1, 3]), ("local", [2, 2])):
            method = MovementMask(spec.Movement.model_validate({"scope": scope}))
            method.update([low, high], 0.5)
            assert [int(method.kept_mask(m).sum()) for m in (low, high)] == kept

    def test_equal_scores_still_keep_the_exact_number(self) -> None:
        masked, method = matrix(WEIGHT.clone(), torch.zeros(2, 3)), MOVEMENT
        method.update([masked], 0.5)
        assert torch.equal(method.masked_weight(masked, True)[0], WEIGHT[0])
        assert method.masked_weight(masked, True)[1].tolist() == [0, 0, 0]
        grad = G.clone()
        gradients(masked, MOVEMENT, grad)
        assert grad.tolist() == [[1, 2, 3], [0, 0, 0]]


class TestSoftMovement:
    def test_mask_and_gradient_by_hand(self) -> None:
        masked, method = matrix(WEIGHT.clone(), SCORES.clone()), SOFT_MOVEMENT
        method.update([masked], 0.6)  # σ(S) > 0.6: S > 0.405
        kept = torch.tensor([[True, False, True], [False, True, False]])
        assert torch.equal(method.kept_mask(masked), kept)
        grad = G.clone()
        assert torch.equal(gradients(masked, SOFT_MOVEMENT, grad), G * WEIGHT)
        assert torch.equal(grad, G * kept)

    def test_half_a_percent_and_one_weight_always_stay(self) -> None:
        torch.manual_seed(0)
        masked = matrix(torch.ones(20, 30), torch.randn(20, 30) - 50)
        SOFT_MOVEMENT.update([masked], 0.1)
        kept = SOFT_MOVEMENT.kept_mask(masked)
        assert int(kept.sum()) == int(0.005 * 600) + 1 == 4
        assert masked.scores is not None
        assert set(masked.scores[kept].tolist()) == set(masked.scores.flatten().topk(4)[0].tolist())

    def test_threshold_zero_keeps_all(self) -> None:
        masked = matrix(torch.ones(3), torch.tensor([-100.0, 0.0, 1.0]))
        SOFT_MOVEMENT.update([masked], 0.0)
        assert SOFT_MOVEMENT.kept_mask(masked).all()


class TestL0:
    def test_evaluation_mask_by_hand(self) -> None:
        # σ(S)·1.2 − 0.1, clamped: S=0 gives 0.5; it is 0 from σ(S) ≤ 1/12, S ≤ −ln 11, on.
        scores = torch.tensor([0.0, 2.197, -math.log(11.0) - 1e-3, 5.0, -0.5])
        expected = [0.5, 0.9 * 1.2 - 0.1, 0.0, 1.0, sigmoid(-0.5) * 1.2 - 0.1]
        assert torch.allclose(hard_concrete(scores), torch.tensor(expected), atol=1e-4)
        assert hard_concrete(scores)[2] == 0
        assert HARD_CONCRETE.score_threshold(1.0) == pytest.approx(-math.log(11.0))

    def test_training_mask_by_hand(self) -> None:
        # u = 0.25: ln u − ln(1−u) = −ln 3; β = 2/3.
        expected = sigmoid((-math.log(3) + 0.4) * 1.5) * 1.2 - 0.1
        mask = hard_concrete(torch.tensor(0.4), torch.tensor(0.25))
        assert math.isclose(mask.item(), expected, abs_tol=1e-6)

    def test_noise_is_clamped_so_that_nothing_is_infinite(self) -> None:
        scores = torch.zeros(2)
        assert hard_concrete(scores, torch.tensor([0.0, 1.0])).tolist() == [0.0, 1.0]
        u = torch.tensor(1e-4)
        at_zero = hard_concrete(scores, torch.zeros(2))
        assert torch.equal(at_zero, hard_concrete(scores, u.expand(2)))

    def test_gradient_is_what_autograd_finds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch.manual_seed(0)
        shape = (300, 450)  # more than two blocks
        weight, scores, grad = torch.randn(shape), torch.randn(shape) * 3, torch.randn(shape)
        noise = torch.rand(shape)
        monkeypatch.setattr("bermo_ray.pruning.masks.random_like", lambda x: noise.clone())
        masked = matrix(weight.clone(), scores.clone())
        form = HARD_CONCRETE.masked_weight(masked, training=True)
        w, s = weight.requires_grad_(), scores.requires_grad_()
        u = noise.clamp(1e-4, 1 - 1e-4)
        soft = ((u.log() - (1 - u).log() + s) / (2 / 3)).sigmoid()
        expected = (soft * 1.2 - 0.1).clamp(0, 1) * w
        assert torch.allclose(form, expected, atol=1e-6)
        expected.backward(grad)
        of_weight = grad.clone()
        of_scores = gradients(masked, HARD_CONCRETE, of_weight)
        assert s.grad is not None
        assert w.grad is not None
        assert torch.allclose(of_scores, s.grad, atol=1e-5)
        assert torch.allclose(of_weight, w.grad, atol=1e-5)
        assert (of_scores == 0).float().mean() > 0.1  # clamped gates are in the test

    def test_gradient_by_hand(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # d M/d S = (r−l)/β · s(1−s) inside (0, 1), 0 where clamped (Eq. 5 with 0 ≤ Z ≤ 1).
        monkeypatch.setattr("bermo_ray.pruning.masks.random_like", lambda x: x * 0 + 0.25)
        masked = matrix(torch.tensor([2.0, 2.0]), torch.tensor([0.4, 30.0]))
        HARD_CONCRETE.masked_weight(masked, training=True)
        s = sigmoid((-math.log(3) + 0.4) * 1.5)
        of_scores = gradients(masked, HARD_CONCRETE, torch.tensor([3.0, 3.0]))
        expected = torch.tensor([3 * 2 * 1.2 * 1.5 * s * (1 - s), 0.0])
        assert torch.allclose(of_scores, expected, atol=1e-5)

    def test_penalty_is_the_probability_that_the_mask_is_open(self) -> None:
        assert math.isclose(L0_PENALTY_SHIFT, -2 / 3 * math.log(0.1 / 1.1))
        scores = torch.tensor([-2.0, 0.0, 1.0])
        torch.manual_seed(0)
        draws = (
            hard_concrete(scores.expand(200_000, 3), uniform(random_like(torch.empty(200_000, 3))))
            > 0
        )
        open_share = (scores + L0_PENALTY_SHIFT).sigmoid()
        assert torch.allclose(draws.float().mean(0), open_share, atol=4e-3)
        masked = matrix(torch.ones(3), scores)
        assert torch.allclose(mean_penalty(masked, L0_PENALTY_SHIFT), open_share.mean())

    def test_the_mask_is_random_in_training_only(self) -> None:
        torch.manual_seed(0)
        masked, method = matrix(WEIGHT.clone(), torch.full((2, 3), 2.197)), HARD_CONCRETE
        assert torch.allclose(method.masked_weight(masked, False), 0.98 * WEIGHT, atol=1e-4)
        assert not torch.equal(
            method.masked_weight(masked, True), method.masked_weight(masked, True)
        )


def test_uniform_noise_is_uniform_and_seeded() -> None:
    torch.manual_seed(3)
    first = uniform(random_like(torch.empty(1001, 999)))
    torch.manual_seed(3)
    assert torch.equal(first, uniform(random_like(torch.empty(1001, 999))))
    assert not torch.equal(first, uniform(random_like(torch.empty(1001, 999))))
    assert 0 < first.min() < 1e-4
    assert 1 - 1e-4 < first.max() < 1
    counts = torch.histc(first, 50, 0, 1) / first.numel() * 50
    assert torch.allclose(counts, torch.ones(50), atol=0.03)  # ~4σ
    flat = first.flatten() - 0.5
    for lag in (1, 2, 3, 4):  # four numbers share 64 bits
        assert abs(float((flat[lag:] * flat[:-lag]).mean()) * 12) < 5e-3

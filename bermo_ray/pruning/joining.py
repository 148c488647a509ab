"""Small matrices treated as one: a training step then takes a handful of calls, however many they
are. With matrices of 128 × 128, calls cost more than numbers do."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bermo_ray.pruning.masks import BLOCK_NUMBERS, Matrix

_MOST_ON_DEVICES = 2**24  # numbers joined where there is no cache of a CPU to fit into


@dataclass(eq=False)
class Joined:
    """Matrices of one size, and one matrix that has all of their numbers.

    Attributes:
        members: k matrices of n numbers each.
        matrix: [k·n] copies of their weights and scores, one behind the other; of a single member,
            that itself.
    """

    members: list[Matrix]
    matrix: Matrix

    @property
    def member_size(self) -> int:
        """n, the same for all."""
        return self.members[0].size

    def split(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        """Of ``numbers``, [k·n], each member's part in its own shape; views."""
        parts = numbers.view(-1).split(self.member_size)
        return [part.view(m.weight.shape) for part, m in zip(parts, self.members, strict=True)]

    def gradients(self) -> torch.Tensor | None:
        """The weights' gradients, [k·n], zeros for those that have none; None where none has."""
        if len(self.members) == 1:
            return self.members[0].weight.grad
        grads = [m.weight.grad for m in self.members]
        if all(grad is None for grad in grads):
            return None
        weights = [m.weight for m in self.members]
        return _flatten([
            torch.zeros_like(w) if g is None else g for g, w in zip(grads, weights, strict=True)
        ])  # fmt: skip

    def put_gradients(self, of_weights: torch.Tensor, of_scores: torch.Tensor) -> None:
        """Gives each member its part, but for those that no gradient came to (layers that a model
        has but does not use)."""
        alone = len(self.members) == 1
        of_each = [of_weights] if alone else self.split(of_weights)
        for member, grad, of_score in zip(
            self.members, of_each, self.split(of_scores), strict=True
        ):
            if member.weight.grad is None:
                continue
            member.weight.grad = grad
            if member.scores is not None:
                member.scores.grad = of_score


def keep_apart(matrices: Sequence[Matrix]) -> list[Joined]:
    """Each matrix by itself."""
    return [Joined([matrix], matrix) for matrix in matrices]


def join(matrices: Sequence[Matrix]) -> list[Joined]:
    """Matrices of like size together, as many as a CPU's cache holds; larger ones by themselves."""
    groups: list[list[Matrix]] = []
    filling: dict[int, list[Matrix]] = {}  # by size: the group that is not full yet
    for matrix in matrices:
        most = BLOCK_NUMBERS if matrix.weight.device.type == "cpu" else _MOST_ON_DEVICES
        group = filling.get(matrix.size)
        if group is None or (len(group) + 1) * matrix.size > most:
            group = filling[matrix.size] = []
            groups.append(group)
        group.append(matrix)
    return [Joined(group, _as_one(group)) for group in groups]


def _as_one(members: list[Matrix]) -> Matrix:
    if len(members) == 1:
        return members[0]
    scores = [m.scores for m in members if m.scores is not None]
    return Matrix(
        f"{members[0].name} to {members[-1].name}",
        _flatten([m.weight for m in members]),
        _flatten(scores) if scores else None,
    )


def _flatten(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])

import math

import numpy as np
import torch

from bermo_ray.training.optimizer import forget_removed
from bermo_ray.training.setup import set_up
from tests.support.runs import small_trial


def test_optimizer_groups(tiny: str) -> None:
    settings = {"optimizer.weight_decay": 0.3, "optimizer.fusion_learning_rate": 0.02}
    run = set_up(small_trial(tiny, **settings), 1, torch.device("cpu"))
    groups = run.optimizer.param_groups
    assert [g["weight_decay"] for g in groups] == [0.0, 0.0, 0.3, 0.0]
    assert [g["initial_lr"] for g in groups] == [0.1, 0.02, 1e-3, 1e-3]
    ids = [{id(p) for p in group["params"]} for group in groups]
    assert {id(s) for s in run.pruner.scores()} == ids[0]  # type: ignore[union-attr]
    assert {id(p) for p in run.model.fusion.scalars()} == ids[1]
    assert len(ids[1]) == 2  # α and γ
    assert all(p.ndim >= 2 for p in groups[2]["params"])
    embeddings = run.model.network.bert.embeddings
    assert not any(p.requires_grad for p in embeddings.parameters())
    # Linear warm-up over w steps, then linear decay to 0 at T.
    rates = []
    for _ in range(run.total_steps):
        rates.append(groups[2]["lr"] / 1e-3)
        run.optimizer.step()
        run.rates.step()
    assert run.total_steps == 12
    assert np.allclose(rates[:3], [0.5, 1.0, 10 / 11])  # w = round(0.1·12) = 1
    assert math.isclose(rates[-1], 1 / 11)


def test_groups_without_parameters_are_left_out(tiny: str) -> None:
    dense = small_trial(tiny, pruning=None)
    rates = []
    for changes in ({}, {"fusion.learn_gamma": False}, {"fusion.name": "last"}):
        groups = set_up(dense.replace(changes), 1, torch.device("cpu")).optimizer.param_groups
        rates.append([(g["initial_lr"], len(g["params"])) for g in groups[:-2]])
    assert rates == [[(0.01, 2)], [(0.01, 1)], []]


def test_what_was_removed_is_forgotten_and_what_shrank_starts_anew() -> None:
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(3)]
    adam = torch.optim.AdamW(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones(3)
    adam.step()
    stays, shrinks, _ = parameters
    shrinks.data = shrinks.data[:2]
    forget_removed(adam, [stays, shrinks])
    assert [id(p) for p in adam.param_groups[0]["params"]] == [id(stays), id(shrinks)]
    assert [id(p) for p in adam.state] == [id(stays)]

"""Forwards in 16 bits: what has them and what must not; on CPUs, where nothing is gained by it."""

from typing import Any

import pytest
import torch
from torch import nn

from bermo_ray.errors import UserError
from bermo_ray.training import loop
from bermo_ray.training.batches import epoch_batches
from bermo_ray.training.check import check_trials
from bermo_ray.training.precision import Precision
from bermo_ray.training.reporter import run_locally
from bermo_ray.training.setup import set_up
from bermo_ray.trial import Movement
from tests.support.runs import Interrupted, InterruptingReporter, small_trial, untimed

CPU = torch.device("cpu")


def test_by_default_a_cpu_computes_in_32_bits(tiny: str) -> None:
    assert Precision(None, CPU).name == "fp32"
    trial = small_trial(tiny)
    assert "precision" not in trial.describe_changes()
    asked, default = (run_locally(t) for t in (trial.replace(precision="fp32"), trial))
    assert untimed(asked) == untimed(default)
    assert default[-1].precision == "fp32"


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_products_have_16_bits_and_what_is_summed_or_learned_has_32(tiny: str, name: str) -> None:
    run = set_up(small_trial(tiny, precision=name), 1, CPU)
    run.wrap_network()
    run.start_training()
    products, sums = set(), set()
    layer = run.model.stack.modules[0]
    linear = next(m for m in layer.modules() if isinstance(m, nn.Linear))
    linear.register_forward_hook(lambda module, given, out: products.add(out.dtype))
    take = run.model.fusion._take  # type: ignore[operator]

    def watched_take(now: Any, *given: Any) -> None:
        take(now, *given)
        sums.add(now.total.dtype)

    run.model.fusion._take = watched_take  # type: ignore[assignment,method-assign]
    before = [p.detach().clone() for p in run.trained_parameters()]
    losses = []
    for step, rows in enumerate(epoch_batches(run.data["train"], run.trial, 0), 1):
        loss, norm = loop.take_step(run, step, rows)
        losses.append(loss)
    assert products == {{"bf16": torch.bfloat16, "fp16": torch.float16}[name]}
    assert sums == {torch.float32}
    assert {loss.dtype for loss in losses} == {torch.float32}
    after = run.trained_parameters()
    assert {p.dtype for p in after} == {torch.float32}
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.isfinite(norm)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
@pytest.mark.parametrize("pruning", [None, Movement(final_density=0.5), {"multiplier": 2.0}])
def test_a_step_of_16_bits_has_about_the_gradients_of_32(
    tiny: str, name: str, pruning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The penalty's part included, which is added after losses were scaled up for fp16."""
    grads = []
    for precision in ("fp32", name):
        trial = small_trial(tiny, pruning=pruning, precision=precision, fusion="last")
        run = set_up(trial, 1, CPU)
        run.wrap_network()
        run.network.eval()  # no dropout
        seen: list[torch.Tensor] = []

        def clip(parameters: list[nn.Parameter], most: float, seen: Any = seen) -> torch.Tensor:
            seen += [p.grad.clone() for p in parameters if p.grad is not None]
            return torch.zeros(())

        monkeypatch.setattr(nn.utils, "clip_grad_norm_", clip)
        torch.manual_seed(0)  # L0's noise
        loop.take_step(run, 6, epoch_batches(run.data["train"], run.trial, 0)[0])
        grads.append(torch.cat([g.flatten() for g in seen]))
    error = (grads[1] - grads[0]).norm() / grads[0].norm()
    assert 0 < error < 0.05


def test_fp16_resumes_with_the_scale_that_it_had(tiny: str, tmp_path: Any) -> None:
    trial = small_trial(tiny, precision="fp16")
    expected = run_locally(trial, tmp_path / "whole")
    with pytest.raises(Interrupted):
        loop.train(trial, InterruptingReporter(tmp_path / "cut", stop_at=6))
    (resumed,) = untimed(run_locally(trial, tmp_path / "cut")[-1:])
    assert resumed == untimed(expected)[-1]


def test_a_step_that_overflows_is_skipped_and_no_divergence(tiny: str) -> None:
    precision = Precision("fp16", CPU)
    assert not precision.has_exploded(torch.tensor(torch.inf))
    assert not precision.has_exploded(torch.tensor(1.0))
    precision.scaler.load_state_dict(precision.scaler.state_dict() | {"scale": 0.5})
    assert precision.has_exploded(torch.tensor(torch.inf))
    assert Precision("bf16", CPU).has_exploded(torch.tensor(torch.nan))


def test_what_a_device_lacks_is_one_line(tiny: str) -> None:
    trial = small_trial(tiny, precision="tf32")
    with pytest.raises(UserError, match="^precision: got 'tf32', which GPUs alone have"):
        check_trials([trial])
    check_trials([trial], gpus=True)
    with pytest.raises(UserError, match="^precision: got 'tf32'"):
        run_locally(trial)
    with pytest.raises(UserError, match="^precision: got 'fp16' with several workers"):
        check_trials([trial.replace(precision="fp16")], workers=2)
    check_trials([trial.replace(precision="fp16", pruning="movement")], workers=2)
    with pytest.raises(UserError, match="precision"):
        trial.replace(precision="int8")  # type: ignore[arg-type]

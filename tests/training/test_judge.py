import math

from bermo_ray.record import Report, Status
from bermo_ray.training.judge import judge
from bermo_ray.trial import L0, Movement

GOOD = {"step": 7, "loss": 0.5, "metric": 0.8, "constant_metric": 0.5, "density": 0.104}


def test_how_a_trial_ended() -> None:
    def status(exploded: bool = False, **changes: float) -> tuple[Status, str]:
        return judge(Report(**(GOOD | changes)), exploded, None)

    constant = "is no better than a constant answer"
    assert status() == (Status.COMPLETED, "")
    assert status(exploded=True) == (Status.DIVERGED, "non-finite loss at step 7")
    assert status(loss=math.inf) == (Status.DIVERGED, "non-finite loss at step 7")
    assert status(metric=0.5) == (Status.DIVERGED, f"metric 0.5000 {constant}")
    assert status(metric=math.nan) == (Status.DIVERGED, f"metric nan {constant}")


def test_a_missed_density_is_a_reason_but_no_divergence() -> None:
    report = Report(**GOOD)
    for pruning, reason in (
        (L0(), ""),
        (Movement(), ""),
        (L0(target_density=0.1), ""),  # within 0.005
        (L0(target_density=0.2), "density 0.1040 missed its target 0.2"),
    ):
        assert judge(report, False, pruning) == (Status.COMPLETED, reason)

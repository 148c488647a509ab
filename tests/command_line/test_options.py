"""Options of studies as fields of their trials."""

import sys

import pytest

from bermo_ray.command_line.options import OneTaskOptions
from bermo_ray.command_line.shell import parse
from bermo_ray.trial import Trial


def test_the_fusions_rate_is_the_trials_unless_given() -> None:
    rates = [
        OneTaskOptions(fusion_learning_rate=given, warmup=7).base_trial("l0").optimizer
        for given in (None, 0.3)
    ]
    assert [rate.fusion_learning_rate for rate in rates] == [0.01, 0.3]
    assert {(rate.warmup, rate.score_learning_rate) for rate in rates} == {(7, 0.01)}
    assert Trial().optimizer.fusion_learning_rate == 0.01


def test_whole_dev_is_an_option_without_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, whole_dev in (([], False), (["--whole-dev"], True)):
        monkeypatch.setattr(sys, "argv", ["study.py", *arguments])
        assert parse(OneTaskOptions).base_trial("l0").data.whole_dev is whole_dev

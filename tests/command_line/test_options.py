"""Options of studies as fields of their trials."""

import sys
from pathlib import Path

import pytest
import tyro

from bermo_ray.command_line.options import ManyTasksOptions, OneTaskOptions, Subject
from bermo_ray.command_line.parsing import describe_command, parse
from bermo_ray.errors import UserError
from bermo_ray.trial import Magnitude, Trial


def test_the_fusions_rate_is_the_trials_unless_given() -> None:
    rates = [
        OneTaskOptions(fusion_learning_rate=given, warmup=7).base_trial("l0").optimizer
        for given in (None, 0.3)
    ]
    assert [rate.fusion_learning_rate for rate in rates] == [0.01, 0.3]
    assert {(rate.warmup, rate.score_learning_rate) for rate in rates} == {(7, 0.1)}
    assert Trial().optimizer.fusion_learning_rate == 0.01


def test_whole_dev_is_an_option_without_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, whole_dev in (([], False), (["--whole-dev"], True)):
        monkeypatch.setattr(sys, "argv", ["study.py", *arguments])
        assert parse(OneTaskOptions).base_trial("l0").data.whole_dev is whole_dev


def grid(*arguments: str, **changes: object) -> list[Trial]:
    """Two fusions, one of them pruned, with these options."""
    options = tyro.cli(ManyTasksOptions, args=arguments)
    dense, pruned = options.make_trial("dense", "tense", "embedded"), None
    pruned = options.make_trial("movement", "tense", "embedded", "bermo", **changes)
    return options.make_grid([dense, pruned]).trials


def test_options_and_set_are_laid_over_every_trial() -> None:
    trials = grid(
        "--seeds", "3", "4", "--epochs", "2", "--warmup", "7", "--score-learning-rate", "0.5",
        "--set", "pruning.flat_end=3", "fusion.norm=stack", "data.dev_rows=40",
        "freeze_embeddings=true", "fusion.mixed_states=[0,1]",
    )  # fmt: skip
    assert [(t.seed, t.fusion.name) for t in trials] == [
        (3, "last"), (3, "bermo"), (4, "last"), (4, "bermo"),
    ]  # fmt: skip
    for trial in trials:
        assert (trial.epochs, trial.optimizer.warmup, trial.data.dev_rows) == (2, 7, 40)
        assert trial.optimizer.score_learning_rate == 0.5
        assert (trial.fusion.norm, trial.fusion.mixed_states) == ("stack", (0, 1))
        assert trial.freeze_embeddings is True
    assert [t.pruning.flat_end if t.pruning else None for t in trials] == [None, 3, None, 3]
    assert grid("--set", "pruning.method=magnitude")[1].pruning == Magnitude()


def test_what_a_study_varies_cannot_be_set_for_all() -> None:
    trials = [Trial(epochs=epochs) for epochs in (1, 2, 3)]
    with pytest.raises(UserError) as caught:
        ManyTasksOptions(epochs=2).make_grid(trials)
    assert caught.value.problems == ("epochs: this study varies it; leave it out",)


def test_the_papers_settings_give_way_to_options() -> None:
    class Options(ManyTasksOptions):
        PAPER = Subject(("qqp", "mnli"), ("bert-base-uncased",), (7, 8))

    options = Options(paper=True)
    assert (options.tasks, options.seeds) == (("qqp", "mnli"), (7, 8))
    trial = options.make_trial("l0", "qqp", "bert-base-uncased", "bermo")
    assert (trial.epochs, trial.optimizer.warmup, trial.data.whole_dev) == (10, 11_000, True)
    given = Options(paper=True, epochs=3, seeds=(1,), tasks=("mnli",))
    assert (given.tasks, given.seeds) == (("mnli",), (1,))
    assert given.make_trial("l0", "mnli", "bert-base-uncased").epochs == 3
    given.check_paper()
    Options(paper=True, backbones=("models/bert-base-uncased",)).check_paper()
    with pytest.raises(UserError) as caught:
        Options(paper=True, tasks=("qqp", "cola"), backbones=("roberta-base",)).check_paper()
    assert caught.value.problems == (
        "task: got cola, but the paper has qqp, mnli; leave `paper` out",
        "backbone: got roberta-base, but the paper has bert-base-uncased; leave `paper` out",
    )
    with pytest.raises(UserError, match="^paper: no paper asked this question"):
        ManyTasksOptions(paper=True).check_paper()


def test_the_command_of_a_study_says_what_changes_its_numbers() -> None:
    options = ManyTasksOptions(
        seeds=(4, 5), tasks=("tense",), epochs=2, overrides=("fusion.norm=stack",), whole_dev=True,
        name="x", runs=Path("elsewhere"), concurrent=1,
    )  # fmt: skip
    assert describe_command("probing", options) == (
        "bermo-ray study probing --seeds 4 5 --whole-dev --epochs 2 --set fusion.norm=stack"
    )
    assert describe_command("probing", ManyTasksOptions()) == "bermo-ray study probing"

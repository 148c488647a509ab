"""What tells the trials of a study apart: which fields vary, and a trial's name in a few words."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

from bermo_ray.record import Report, Status
from bermo_ray.trial import Penalized, Ranked, Trial

# Sections that a trial may lack, and the field of each that says what it is.
_SECTION_FIELDS = {
    "pruning": "pruning.method",
    "layer_drop": "layer_drop.strategy",
    "distillation": "distillation.teacher",
}
_RATES = ("optimizer.learning_rate", "optimizer.score_learning_rate")
_IS_DENSE = {"pruning.method": "dense"}  # the method of a trial without pruning
_CONSEQUENCES = {"freeze_embeddings", "data.data_dir"}  # of the pruning and of the task
# Fields that a name says in words of their own.
_NAMED = {"data.task", "backbone", "fusion.name", "pruning.multiplier", "seed"}
_NAMED |= {"pruning.method", "pruning.final_density", "pruning.target_density", *_RATES}


def find_varied_fields(trials: Iterable[Trial]) -> frozenset[str]:
    """The fields, as :meth:`Trial.flat` names them, in which these trials differ by intent; and the
    names of the sections, as ``pruning``, that some of them have and some have not.

    A field of such a section is compared among the trials that have it.
    """
    values: defaultdict[str, set[object]] = defaultdict(set)
    for trial in trials:
        for field, value in trial.flat().items():
            values[field].add(value)
    varied = {field for field, different in values.items() if len(different) > 1} - _CONSEQUENCES
    # A section that a trial lacks is a field of that trial, with the value None.
    mixed = {section for section, f in _SECTION_FIELDS.items() if section in values and f in values}
    return frozenset(varied | mixed)


def pick_varied_fields(varied: Collection[str]) -> list[str]:
    """The names of the fields that :func:`pick_varied_values` gives of some trial, in order."""
    return sorted({_SECTION_FIELDS.get(name, name) for name in varied})


def pick_varied_values(trial: Trial, varied: Collection[str]) -> dict[str, object]:
    """The values of a trial in the fields that vary, in order of declaration, but for those that it
    has not; of a section that varies, the field that says what it is."""
    asked, values = pick_varied_fields(varied), _IS_DENSE | trial.flat()
    return {field: value for field, value in values.items() if field in asked and value is not None}


def describe_trial(trial: Trial, varied: Collection[str] | None = None) -> str:
    """A trial in a few words: ``bermo λ=10 seed 1``.

    Args:
        trial: Any.
        varied: The fields in which the trials of its study differ: only these are said. None, or
            fields of which none is to be said: what is usually of interest.
    """
    if varied is not None and (words := _describe_fields(trial, varied)):
        return " ".join(words)
    usual = {"fusion.name", "pruning.method", "pruning.multiplier"}
    usual |= {"layer_drop.count"} if trial.layer_drop else {_RATES[0]}
    return " ".join(_describe_fields(trial, usual | ({"seed"} if trial.seed else set())))


def name_folder(trial: Trial) -> str:
    """A short name for the folder of a trial's checkpoint, which no other trial has:
    ``tense-bermo-l0-seed1-0f3a91c2``."""
    method = trial.pruning.method if trial.pruning else "dense"
    words = [trial.data.task[-24:], trial.fusion.name, method, f"seed{trial.seed}", trial.id[:8]]
    return "-".join(re.sub(r"[^\w.]+", "_", word).strip("_") for word in words)


def describe_outcome(report: Report) -> str:
    """How a trial ended, in a few words: weights left and metric, as ``34 % 0.930``, or without
    pruning ``0.950``; of one that did not complete its status."""
    if report.status is not Status.COMPLETED:
        return str(report.status)
    pruned = report.finite("remaining") and report.remaining < 1
    words = [f"{report.remaining:.0%}".replace("%", " %")] if pruned else []
    return " ".join([*words, f"{report.metric:.3f}"] if report.finite("metric") else words)


def describe_dropping(trial: Trial) -> str:
    """Which layers are dropped, in a word: ``top −2``; empty for none."""
    drop = trial.layer_drop
    if drop is None:
        return ""
    if drop.dropped_layers is not None:
        return "−" + ",".join(map(str, drop.dropped_layers))
    if drop.threshold is not None:
        return f"{drop.strategy} >{drop.threshold:g}"
    return f"{drop.strategy} −{drop.count}"


def _describe_fields(trial: Trial, varied: Collection[str]) -> list[str]:
    words = [trial.data.task] if "data.task" in varied else []
    words += [Path(trial.backbone).name] if "backbone" in varied else []
    words += [trial.fusion.name] if "fusion.name" in varied else []
    if any(field.startswith("layer_drop") for field in varied):
        words.append(describe_dropping(trial) or "all layers")
    if any(field.startswith("pruning") for field in varied) and not trial.layer_drop:
        words += _describe_pruning(trial, varied)
    words += _describe_rates(trial, varied)
    words += _describe_others(trial, varied)
    return [*words, f"seed {trial.seed}"] if "seed" in varied else words


def _describe_pruning(trial: Trial, varied: Collection[str]) -> list[str]:
    """How much is pruned; and the method, where it varies or is all there is to say."""
    pruning = trial.pruning
    if pruning is None:
        return ["dense"]
    amount = []
    if isinstance(pruning, Penalized) and pruning.target_density is not None:
        amount = [f"to {pruning.target_density:.3g}"]
    elif isinstance(pruning, Penalized) and "pruning.multiplier" in varied:
        amount = [f"λ={pruning.multiplier:.3g}"]
    elif isinstance(pruning, Ranked):
        amount = [f"to {pruning.final_density:.3g}"]
    method = pruning.method.removesuffix("_movement")
    return amount if amount and "pruning.method" not in varied else [method, *amount]


def _describe_rates(trial: Trial, varied: Collection[str]) -> list[str]:
    """The learning rates, where no λ tells trials apart: a search varies it along with them."""
    if trial.pruning is not None and "pruning.multiplier" in varied:
        return []
    rates = trial.optimizer
    words = [f"rate {rates.learning_rate:.1e}"] if _RATES[0] in varied else []
    if trial.pruning is not None and _RATES[1] in varied:
        words.append(f"score rate {rates.score_learning_rate:.1e}")
    return words


def _describe_others(trial: Trial, varied: Collection[str]) -> list[str]:
    """All else that varies, as ``batch_size=8``, but for defaults; a path by its last part."""
    words, defaults = [], Trial().flat()
    for field, value in pick_varied_values(trial, varied).items():
        is_default = field in defaults and defaults[field] == value
        if field in _NAMED or field.startswith("layer_drop") or is_default:
            continue
        shown = Path(value).name if isinstance(value, str) else value
        words.append(f"{field.rpartition('.')[2]}={shown}")
    return words

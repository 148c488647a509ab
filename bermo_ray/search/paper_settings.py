"""The hyperparameters of the papers' appendices, as Trials: what ``--paper`` runs.

Where a paper gives no value, the comment says what stands in for it. All of them measure on the
complete dev set, so ``whole_dev``; embeddings are frozen while pruning, as in the reference.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bermo_ray.errors import UserError, listed, unknown
from bermo_ray.trial import Trial

# Of the papers' encoders, so that a plan can be made before one is loaded.
DEPTHS = {
    "bert-base-uncased": 12,
    "roberta-base": 12,
    "xlnet-base-cased": 12,
    "albert-base-v2": 12,
    "distilbert-base-uncased": 6,
    "roberta-large": 24,
    "xlm-roberta-base": 12,
    "xlm-roberta-large": 24,
}
# The values of Tables 7 to 11 stand in columns of these tasks.
_COLUMNS = ("mnli", "qqp", "squad")
# Warm-up steps, and the flat ends in multiples of them: Tables 7, 8, 10 and 11.
_WARMUP = {"mnli": 12_000, "qqp": 11_000, "squad": 5_400}
_FLAT_START, _FLAT_END = {"mnli": 1, "qqp": 2, "squad": 1}, {"mnli": 1, "qqp": 3, "squad": 2}
# Table 8 has epochs for each task; the text says nothing else of movement pruning's (Table 7).
_EPOCHS = {"mnli": 6, "qqp": 10, "squad": 10}
# Tables 7, 10 and 11; in Tables 8 and 9 it is 3e-5 for all three.
_SMALL_QQP_RATE = {"mnli": 3e-5, "qqp": 3e-6, "squad": 3e-5}


def paper_trial(question: str, task: str, backbone: str, fusion: str = "last") -> Trial:
    """The Trial that a paper ran for a question, but for its task, encoder and seed.

    >>> paper_trial("l0", "qqp", "bert-base-uncased", "bermo").pruning.multiplier
    50.0

    Raises:
        UserError: no paper has it.
    """
    if question not in _QUESTIONS:
        raise UserError(unknown("question", question, _QUESTIONS))
    return (
        Trial()
        .replace(data={"whole_dev": True})
        .replace(_QUESTIONS[question](task, backbone, fusion))
    )


Settings = dict[str, Any]  # by the keys of Trial.replace


def _dense(task: str, backbone: str, fusion: str) -> Settings:
    """BERMo A.1.1: probing, SST-2, MNLI and QQP alike; SQuAD longer, on two cards of 8."""
    is_squad = task == "squad"
    return {
        "epochs": 3,
        "batch_size": 16 if is_squad else 32,
        "data.max_length": 384 if is_squad else 128,
        "optimizer.learning_rate": 5e-5,
        "optimizer.warmup": 0,  # not given
    }


def _pruning_shape(task: str, question: str) -> Settings:
    """What Tables 7 to 11 share."""
    if task not in _COLUMNS:
        raise UserError(f"task: got {task}, but {question} was run on {listed(_COLUMNS)}")
    return {
        "epochs": _EPOCHS[task],
        "batch_size": 16 if task == "squad" else 32,
        "data.max_length": 384 if task == "squad" else 128,
        "optimizer.learning_rate": 3e-5,
        "optimizer.score_learning_rate": 1e-2,
        "optimizer.warmup": _WARMUP[task],
    }


def _flat_ends(task: str) -> Settings:
    return {"flat_start": _FLAT_START[task], "flat_end": _FLAT_END[task]}


def _movement(task: str, backbone: str, fusion: str) -> Settings:
    """BERMo, Table 6 (SST-2) and Table 7."""
    if task == "sst2":
        return {
            "epochs": 25,
            "batch_size": 32,
            "data.max_length": 128,
            "optimizer.learning_rate": 3e-5,
            "optimizer.score_learning_rate": 1e-2,
            "optimizer.warmup": 2_100,
            "pruning": {
                "method": "movement", "initial_density": 1.0, "final_density": 0.1,
                "flat_start": 1, "flat_end": 1,
            },
        }  # fmt: skip
    pruning = {"method": "movement", "initial_density": 1.0, "final_density": 0.1}
    return _pruning_shape(task, "movement pruning") | {
        "optimizer.learning_rate": _SMALL_QQP_RATE[task],
        "pruning": pruning | _flat_ends(task),
    }


def _magnitude(task: str, backbone: str, fusion: str) -> Settings:
    """BERMo, Table 8."""
    pruning = {"method": "magnitude", "initial_density": 1.0, "final_density": 0.1}
    shape = _pruning_shape(task, "magnitude pruning")
    return shape | {"pruning": pruning | _flat_ends(task)}


def _l0(task: str, backbone: str, fusion: str) -> Settings:
    """BERMo, Table 9."""
    shape = _pruning_shape(task, "L0 pruning")
    multiplier = {"mnli": 45.0 if fusion == "bermo" else 50.0, "qqp": 50.0, "squad": 175.0}[task]
    return shape | {
        "optimizer.score_learning_rate": {"mnli": 1e-1, "qqp": 1e-2, "squad": 1e-1}[task],
        "pruning": {
            "method": "l0", "multiplier": multiplier, "initial_score": 2.197,
            "flat_start": 1, "flat_end": 1,
        },
    }  # fmt: skip


def _soft_movement(task: str, backbone: str, fusion: str) -> Settings:
    """BERMo, Table 10; it gives BERT's λ twice and BERMo's never, so both have that one."""
    shape = _pruning_shape(task, "soft movement pruning")
    pruning = {
        "method": "soft_movement", "initial_threshold": 0.0, "final_threshold": 0.1,
        "multiplier": {"mnli": 200.0, "qqp": 150.0, "squad": 500.0}[task],
    }  # fmt: skip
    return shape | {
        "optimizer.learning_rate": _SMALL_QQP_RATE[task],
        "pruning": pruning | _flat_ends(task),
    }


def _few_shot(task: str, backbone: str, fusion: str) -> Settings:
    """DWAtt §5.2 and §9.1 (Table 4 has a learning rate of 1e-5; §9.1 names the data, so it is
    followed): from its largest value the rate falls to 0. The best dev score counts. 100 epochs are
    the most of Figure 3."""
    return {
        "epochs": 100,
        "batch_size": 16,
        "mode": "features",
        "optimizer.learning_rate": 5e-5,
        "optimizer.warmup": 0,
        "final_checkpoint": "best",
    }


def _masked(task: str, backbone: str, fusion: str) -> Settings:
    """DWAtt §6.6 and §9.1; the number of epochs is not given."""
    return {
        "epochs": 3,
        "batch_size": 8,
        "optimizer.learning_rate": 5e-5,
        "optimizer.warmup": 0,
        "final_checkpoint": "best_loss",
    }


def _layer_drop(task: str, backbone: str, fusion: str) -> Settings:
    """Layer dropping §4: three epochs; batches of 32 and 2e-5 stand in for "default settings"."""
    return {
        "epochs": 3,
        "batch_size": 32,
        "optimizer.learning_rate": 2e-5,
        "optimizer.warmup": 0,
    }


_QUESTIONS: Mapping[str, Callable[[str, str, str], Settings]] = {
    "dense": _dense,
    "movement": _movement,
    "magnitude": _magnitude,
    "l0": _l0,
    "soft_movement": _soft_movement,
    "few_shot": _few_shot,
    "masked": _masked,
    "layer_drop": _layer_drop,
}

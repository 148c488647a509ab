"""The options by which a study is run on the user's own data."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import tyro

from bermo_ray.data_section import UserData
from bermo_ray.tasks.user_data import describe_user_data, name_user_task


def default(hint: str) -> Any:
    """What ``--help`` says of an option that is None until the study decides."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {hint})")


@dataclass(frozen=True)
class UserDataOptions:
    """Own data as the task of a study: files, or a dataset by name, and what their columns are."""

    train: Annotated[str | None, default("a --task of ours")] = None
    """Your own rows to train on: a .csv, .tsv, .jsonl, .parquet, .conll or SQuAD .json file. With
    --dataset, the name of its split."""
    dev: Annotated[str | None, default("split off from --train")] = None
    """Rows to measure on, as --train."""
    test: Annotated[str | None, default("none")] = None
    """Rows that are measured once, at the end, as --train."""
    dataset: Annotated[str | None, default("none")] = None
    """A dataset in place of files: NAME or NAME:CONFIG, on the hub or a folder."""
    text: Annotated[tuple[str, ...], default("by their usual names")] = ()
    """Column of the text; two columns for pairs (question and context of --kind span)."""
    label: Annotated[str | None, default("by its usual name")] = None
    """Column of the class, number, tags or answers."""
    kind: Annotated[
        Literal["classification", "regression", "tags", "span", "masked"] | None,
        default("by the columns' types"),
    ] = None
    """What is learned of each row; masked: words of plain text."""
    metric: Annotated[str | None, default("by --kind, the usual one")] = None
    """What judges: accuracy, f1 or matthews of classes, spearman or pearson of numbers."""
    dev_share: float = 0.2
    """Share of --train that is split off where there is no --dev, of each class alike."""
    split_seed: int = 0
    """Which rows are split off."""

    @property
    def has_user_data(self) -> bool:
        """Whether the study is run on own data."""
        return bool(self.train or self.dev or self.test or self.dataset or self.text or self.label)

    @property
    def user_task_name(self) -> str | None:
        """What the task of own data is called where no option says; None without own data."""
        return name_user_task(self.train, self.dataset) if self.has_user_data else None

    @cached_property
    def user_data(self) -> UserData | None:
        """What the options say of own data, looked at once; None without it.

        Raises:
            UserError: files, columns or rows that are not there or wrong.
        """
        if not self.has_user_data:
            return None
        return describe_user_data(
            self.train,
            self.dev,
            self.test,
            text=self.text,
            label=self.label,
            kind=self.kind,
            metric=self.metric,
            dataset=self.dataset,
            dev_share=self.dev_share,
            split_seed=self.split_seed,
        )

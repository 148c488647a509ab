"""The ``data`` section of a Trial: which rows are learned and measured, and whose they are."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from bermo_ray.validation import Section

Kind = Literal["classification", "regression", "tags", "span", "masked"]


# Metrics that may judge a user's own task, the usual one first. F1 is that of the second of two
# classes.
USER_METRICS: dict[str, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "matthews"),
    "regression": ("spearman", "pearson"),
    "tags": ("entity_f1", "tag_accuracy"),
    "span": ("span_f1", "exact_match"),
    "masked": ("masked_accuracy",),
}


class UserData(Section):
    """A task of the user's own: files, or a dataset of `datasets`, and what their columns are.

    :func:`bermo_ray.tasks.user_data.describe_user_data` makes one of it, and guesses what is clear.
    """

    kind: Kind = Field(description="what is learned of a row")
    text: tuple[str, ...] = Field(
        min_length=1, max_length=2, description="columns of the text, or of a pair of texts"
    )
    label: str | None = Field(None, description="column of the answer; None for masked words")
    train: str = Field(description="file to train on, or the dataset's split")
    dev: str | None = Field(None, description="as train; None: split off from train")
    test: str | None = Field(None, description="as train; None: there is none")
    dataset: str | None = Field(None, description="name or folder that `datasets` loads")
    config: str | None = Field(None, description="which configuration of the dataset")
    dev_share: float = Field(0.2, gt=0, lt=1, description="share of train that is split off as dev")
    split_seed: int = Field(0, ge=0, lt=2**31, description="which rows are split off")
    metric: str = Field(description="what judges; one of USER_METRICS of the kind")
    digest: str = Field(description="of the rows' contents: other contents are another trial")

    @model_validator(mode="after")
    def _columns_fit_the_kind(self) -> Self:
        wanted = {"tags": (1,), "span": (2,), "masked": (1,)}.get(self.kind, (1, 2))
        if len(self.text) not in wanted:
            raise ValueError(f"text: got {len(self.text)} columns, {self.kind} has {wanted[0]}")
        if (self.label is None) != (self.kind == "masked"):
            raise ValueError(f"label: got {self.label}, which does not go with {self.kind}")
        columns = [*self.text, *([self.label] if self.label else [])]
        if len(set(columns)) < len(columns):
            raise ValueError(f"label: a column is named twice in {', '.join(columns)}")
        if self.metric not in USER_METRICS[self.kind]:
            known = ", ".join(USER_METRICS[self.kind])
            raise ValueError(f"metric: got {self.metric!r}, {self.kind} has {known}")
        return self


# Where a user's rows lie; what they are is in the digest.
_PLACES = ("train", "dev", "test", "dataset", "config")


class Data(Section):
    """Which rows are learned and measured."""

    task: str = "tense"
    train_rows: int | float | None = Field(
        None, gt=0, description="rows if whole, a share if below 1; None: all there are"
    )
    dev_rows: int | float | None = Field(None, gt=0, description="as train_rows")
    max_length: int = Field(128, ge=4, description="word pieces per row; longer rows are cut")
    data_dir: str | None = Field(
        None, description="folder of parquet or original files; None: the hub (not embedded)"
    )
    shots: int | None = Field(
        None, ge=1, description="few-shot: so many rows per class (tags: entity type), of all alike"
    )
    whole_dev: bool = Field(
        False, description="choose and report on the same rows, all of the dev set, as papers did"
    )

    user: UserData | None = Field(
        None, description="a task of the user's own, which `task` then gives a name"
    )

    @model_validator(mode="after")
    def _subsets_are_whole_or_shares(self) -> Self:
        for name in ("train_rows", "dev_rows"):
            value = getattr(self, name)
            if isinstance(value, float) and value >= 1:
                raise ValueError(f"{name}: got {value}, expected whole rows, or a share below 1")
        if self.shots is not None and self.train_rows is not None:
            raise ValueError("shots: train_rows says too how many rows to train on; give one")
        return self

    def content(self, values: dict[str, Any]) -> dict[str, Any]:
        """Of a dump of this section, what decides the numbers: not where the data lies."""
        values = {key: value for key, value in values.items() if key != "data_dir"}
        if self.user is not None:
            user = values["user"].items()
            values["user"] = {key: value for key, value in user if key not in _PLACES}
        return values

    def has_source_of(self, other: "Data") -> bool:
        """Whether the rows of both are taken from the same data of the same task."""
        digests = [data.user and data.user.digest for data in (self, other)]
        folders = [data.data_dir for data in (self, other)]
        return self.task == other.task and folders[0] == folders[1] and digests[0] == digests[1]

"""What studies take on the command line."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from bermo_ray.errors import UserError
from bermo_ray.search.recommended import Recommended, recommend
from bermo_ray.tasks.sources import DATA_VARIABLE
from bermo_ray.tracking.store import RUNS, SQLITE, Store, find_trial
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import Optimizer, Trial


def default(hint: str) -> Any:
    """What ``--help`` says of an option that is None until the study decides."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {hint})")


by_backbone = default("by backbone")  # an option that a study decides by the encoder


@dataclass(frozen=True)
class StudyOptions:
    """What every study takes."""

    # Fields of a Trial that an option of another name sets.
    FIELD_OPTIONS: ClassVar[dict[str, str]] = {"seed": "seeds"}

    data_dir: Annotated[str | None, default("$BERMO_DATA, else the hub")] = None
    """Folder of real tasks' parquet or original files."""
    train_rows: Annotated[int | float | None, default("all there are")] = None
    """Rows to train on: a number, or a share below 1."""
    dev_rows: Annotated[int | float | None, default("all there are")] = None
    """Rows to measure on: a number, or a share below 1."""
    shots: Annotated[int | None, default("no few-shot")] = None
    """Few-shot: train on so many rows per class (for tags, per entity type), of all rows alike."""
    whole_dev: bool = False
    """Choose and report on the same rows, all of the dev set, as papers did."""
    max_length: int = 128
    """Word pieces per row; longer rows are cut."""
    epochs: Annotated[int | None, by_backbone] = None
    """Passes over the training rows, each trial."""
    batch_size: Annotated[int | None, by_backbone] = None
    """Rows per step, over all workers of a trial."""
    teacher: Annotated[str | None, default("none")] = None
    """Distil from it: folder of a fine-tuned model, or the id of an earlier trial."""
    warm_start: Annotated[str | None, default("the pretrained encoder")] = None
    """Start from a fine-tuned model: id of an earlier trial, or folder of its checkpoint."""
    fusion_learning_rate: Annotated[
        float | None, default(f"{Optimizer().fusion_learning_rate:g}")
    ] = None
    """Learning rate of the fusion's scalars: α and γ of BERMo."""
    warmup: float = 0.1
    """Warm-up of the learning rates: steps if 1 or more, else a share of all steps."""
    final_checkpoint: Literal["last", "best"] = "last"
    """Whose model a trial ends with: the last evaluation's, or the best one's at full sparsity."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the trials."""
    plugin: tuple[str, ...] = ()
    """Modules of your own that define fusions, pruning methods or tasks."""
    workers: int = 1
    """Data-parallel workers of each trial."""
    gpus: bool = False
    """One GPU for each worker."""
    cpus_per_worker: int = 1
    """CPUs (and torch threads) of each worker."""
    concurrent: Annotated[int | None, default("as many as fit")] = None
    """Trials at once."""
    backend: Literal["ray", "process"] = "ray"
    """Where trials run: on Ray, or in this process one after the other."""
    name: Annotated[str | None, default("kind, date and time")] = None
    """Name of the study."""
    runs: Path = Path(RUNS)
    """Folder for the records: MLflow's store, checkpoints, tables."""
    storage: Annotated[str | None, default("below --runs")] = None
    """Where checkpoints go: on a cluster, a shared folder or URI."""
    tracking_uri: Annotated[str | None, default("SQLite in --runs")] = None
    """An MLflow server or store."""
    resume: bool = False
    """Go on with the study of that name or, without one, with the newest of this kind."""
    dry_run: bool = False
    """Check everything and print the trials; run none."""

    @property
    def store(self) -> Store:
        """Where records go."""
        return Store(self.runs, self.tracking_uri, self.storage)

    @property
    def resources(self) -> Resources:
        """What one trial takes."""
        return Resources(self.workers, self.gpus, self.cpus_per_worker)

    def make_trial(self, task: str, backbone: str, recommended: Recommended) -> Trial:
        """The Trial that these options describe; recommended numbers where none are given."""
        # Ray's workers run in other directories and with other variables: all paths are resolved.
        data_dir = self.data_dir or os.environ.get(DATA_VARIABLE)
        data = {
            "task": task,
            "train_rows": self.train_rows,
            "dev_rows": self.dev_rows,
            "shots": self.shots,
            "whole_dev": self.whole_dev,
            "max_length": self.max_length,
            "data_dir": str(Path(data_dir).expanduser().resolve()) if data_dir else None,
        }
        folder = Path(backbone).expanduser()
        optimizer: dict[str, float] = {
            "warmup": int(self.warmup) if self.warmup >= 1 else self.warmup
        }
        if self.fusion_learning_rate is not None:
            optimizer["fusion_learning_rate"] = self.fusion_learning_rate
        return Trial().replace(
            data=data,
            distillation={"teacher": self._find_folder("teacher")} if self.teacher else None,
            warm_start=self._find_folder("warm_start") if self.warm_start else None,
            backbone=str(folder.resolve()) if folder.is_dir() else backbone,
            epochs=recommended.epochs if self.epochs is None else self.epochs,
            batch_size=recommended.batch_size if self.batch_size is None else self.batch_size,
            optimizer=optimizer,
            final_checkpoint=self.final_checkpoint,
            seed=self.seeds[0],
        )

    def _find_folder(self, option: str) -> str:
        """The folder of the weights that an option names, by itself or by a trial's id."""
        asked = str(getattr(self, option))
        folder = Path(asked).expanduser()
        if folder.is_dir():
            return str(folder.resolve())
        uri = self.store.uri
        no_store = uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).is_file()
        if "/" in asked or no_store:
            raise UserError(f"{option}: no folder {asked!r}, and no trial of that id")
        path = find_trial(uri, asked).data.tags.get("bermo.checkpoint", "")
        if not path or not Path(path).is_dir():
            raise UserError(
                f"{option}: the checkpoint of {asked} is not a folder here: {path!r}; "
                "copy it to one that every node sees and give that"
            )
        return path


@dataclass(frozen=True)
class OneTaskOptions(StudyOptions):
    """Options of a study of one task and one encoder."""

    task: str = "tense"
    """What is learned: a task of the embedded language, GLUE (sst2, qqp, ...), senteval/NAME,
    conll2003, wikiann/LANGUAGE, squad, wikitext2 or text."""
    backbone: str = "embedded"
    """The encoder: 'embedded', a folder, or a name on the hub."""

    def base_trial(self, question: str) -> Trial:
        """The Trial that these options describe, with what is recommended for the question."""
        return self.make_trial(self.task, self.backbone, recommend(question, self.backbone))


@dataclass(frozen=True)
class ManyTasksOptions(StudyOptions):
    """Options of a study over tasks and encoders."""

    tasks: tuple[str, ...] = ("tense",)
    """What is learned, one after the other: as --task of other studies."""
    backbones: tuple[str, ...] = ("embedded",)
    """The encoders: 'embedded', folders, or names on the hub."""

    learning_rate: Annotated[float | None, by_backbone] = None
    """Of every trial."""

    def base_trials(self, question: str) -> list[Trial]:
        """A Trial for each encoder and task, with what is recommended for the question."""
        trials = []
        for backbone in self.backbones:
            recommended = recommend(question, backbone)
            rate = self.learning_rate
            rate = recommended.learning_rate if rate is None else rate
            for task in self.tasks:
                base = self.make_trial(task, backbone, recommended)
                trials.append(base.replace(optimizer__learning_rate=rate))
        if not trials:
            raise UserError("`tasks` and `backbones`: each needs a name")
        return trials

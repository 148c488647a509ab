"""What studies take on the command line, all of it, and how it becomes trials.

A study starts from a Trial that is recommended for its question or, with ``--paper``, from the
paper's own; options that were given, and ``--set``, are laid over every trial of the study last.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from bermo_ray.command_line.data_options import UserDataOptions
from bermo_ray.command_line.data_options import default as default
from bermo_ray.errors import UserError, listed
from bermo_ray.models.fine_tuned import is_stock_folder
from bermo_ray.search.grid import Grid
from bermo_ray.search.paper_settings import paper_trial
from bermo_ray.search.recommended import recommended_trial
from bermo_ray.tasks.sources import DATA_VARIABLE
from bermo_ray.tracking.store import RUNS, SQLITE, Store, find_checkpoint, find_trial
from bermo_ray.training.model import is_checkpoint, read_trial
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import Trial

by_backbone = default("by backbone")  # an option that a study decides by the encoder
by_study = default("by study, see above")


@dataclass(frozen=True)
class Subject:
    """What a study is run on where its options do not say."""

    tasks: tuple[str, ...] = ("tense",)
    backbones: tuple[str, ...] = ("embedded",)
    seeds: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        parts = {
            "tasks": self.tasks,
            "encoders": self.backbones,
            "seeds": tuple(map(str, self.seeds)),
        }
        return "; ".join(f"{name} {' '.join(values)}" for name, values in parts.items())


# Option -> the key of Trial.replace that it sets, where it was given.
_TRIAL_KEYS = {
    "train_rows": "data.train_rows",
    "dev_rows": "data.dev_rows",
    "shots": "data.shots",
    "max_length": "data.max_length",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "learning_rate": "optimizer.learning_rate",
    "score_learning_rate": "optimizer.score_learning_rate",
    "fusion_learning_rate": "optimizer.fusion_learning_rate",
    "warmup": "optimizer.warmup",
    "final_checkpoint": "final_checkpoint",
}


@dataclass(frozen=True)
class StudyOptions(UserDataOptions):
    """What every study takes."""

    # Fields of a Trial that an option of another name sets.
    FIELD_OPTIONS: ClassVar[dict[str, str]] = {"seed": "seeds", "warm_start": "start"}
    DEFAULT: ClassVar[Subject] = Subject()
    PAPER: ClassVar[Subject | None] = None  # what the paper ran, where one asked the question

    paper: bool = False
    """The paper's own settings: its tasks, encoders, seeds and hyperparameters."""
    seeds: Annotated[tuple[int, ...], by_study] = ()
    """Seeds of the trials."""
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
    max_length: Annotated[int | None, default("128, or the paper's")] = None
    """Word pieces per row; longer rows are cut."""
    epochs: Annotated[int | None, by_backbone] = None
    """Passes over the training rows, each trial."""
    batch_size: Annotated[int | None, by_backbone] = None
    """Rows per step, over all workers of a trial."""
    learning_rate: Annotated[float | None, by_backbone] = None
    """Learning rate of the weights."""
    score_learning_rate: Annotated[float | None, by_backbone] = None
    """Learning rate of the mask scores."""
    fusion_learning_rate: Annotated[float | None, default("0.01")] = None
    """Learning rate of the fusion's scalars: α and γ of BERMo."""
    warmup: Annotated[float | None, default("0.1, or the paper's")] = None
    """Warm-up of the learning rates: steps if 1 or more, else a share of all steps."""
    final_checkpoint: Annotated[Literal["last", "best"] | None, default("last")] = None
    """Whose model a trial ends with: the last evaluation's, or the best one's at full sparsity."""
    teacher: Annotated[str | None, default("none")] = None
    """Distil from it: folder of a fine-tuned model, or the id of an earlier trial."""
    start: Annotated[str | None, default("the pretrained encoder")] = None
    """Start from a fine-tuned model with its head: any folder, or the id of an earlier trial."""
    overrides: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="FIELD=VALUE")] = ()
    """Any other fields of the trials: --set pruning.flat_end=3 fusion.norm=stack."""
    plugin: tuple[str, ...] = ()
    """Modules of your own that define fusions, pruning methods or tasks."""
    workers: int = 1
    """Data-parallel workers of each trial."""
    gpus: bool = False
    """One GPU for each worker."""
    gpus_per_worker: float = 1.0
    """With --gpus: less than 1 lets small trials of one worker share a GPU, 0.25 four of them."""
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
    verbose: bool = False
    """Show what Ray itself says."""
    register: Annotated[str | None, default("no registered model")] = None
    """Register the study's smallest model that keeps 99 % of the dense metric under this name."""
    system_metrics: bool = False
    """Record the use of this machine (processors, memory, disk, GPUs) with the study."""
    fresh: bool = False
    """Take nothing from earlier studies in the store: run every trial, learn from none."""
    resume: bool = False
    """Go on with the study of that name or, without one, with the newest of this kind."""
    dry_run: bool = False
    """Check everything, print the trials and what disk and time they need; run none."""

    def __post_init__(self) -> None:
        """Fills in what the study is run on, where no option says it."""
        self._fill_in(seeds=self._subject.seeds)

    def _fill_in(self, **values: Any) -> None:
        for name, value in values.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)

    @property
    def _subject(self) -> Subject:
        return self.PAPER if self.paper and self.PAPER is not None else self.DEFAULT

    @property
    def _default_backbone(self) -> str:
        """The encoder where no option says it: that of the folder that is started from."""
        folder = Path(self.start or "").expanduser()
        if self.start and is_checkpoint(folder):
            return read_trial(folder).backbone
        is_stock = self.start and is_stock_folder(folder)
        return str(folder) if is_stock else self._subject.backbones[0]

    @property
    def store(self) -> Store:
        """Where records go."""
        return Store(self.runs, self.tracking_uri, self.storage)

    @property
    def resources(self) -> Resources:
        """What one trial takes."""
        return Resources(self.workers, self.gpus, self.cpus_per_worker, self.gpus_per_worker)

    @property
    def asked_subject(self) -> Subject:
        """What the study is run on."""
        return self._subject

    def check_paper(self) -> None:
        """Whether the paper ran what ``paper`` is asked with.

        Raises:
            UserError: no paper asked this question, or not of these tasks or encoders.
        """
        if not self.paper:
            return
        if self.PAPER is None:
            raise UserError("paper: no paper asked this question; leave it out")
        asked, paper = self.asked_subject, self.PAPER
        # A folder stands for the encoder that it is named after.
        encoders = [Path(name).name for name in asked.backbones]
        problems = [
            f"{option}: got {odd[0]}, but the paper has {listed(known)}; leave `paper` out"
            for option, names, known in (
                ("task", asked.tasks, paper.tasks),
                ("backbone", encoders, paper.backbones),
            )
            if (odd := [name for name in names if name not in known])
        ]
        if problems:
            raise UserError(*problems)

    def make_trial(
        self, question: str, task: str, backbone: str, fusion: str = "last", **changes: Any
    ) -> Trial:
        """The Trial that a study starts from: what is recommended for its question on that encoder
        or, with ``paper``, the paper's; then ``changes``, as for :meth:`Trial.replace`; then the
        options that were given."""
        if self.paper:
            trial = paper_trial(question, task, Path(backbone).name, fusion)
        else:
            trial = recommended_trial(question, backbone, fusion)
        # Ray's workers run in other directories and with other variables: all paths are resolved.
        user = self.user_data
        data_dir = None if user else self.data_dir or os.environ.get(DATA_VARIABLE)
        folder = Path(backbone).expanduser()
        trial = trial.replace(
            data={
                "task": task,
                "data_dir": str(Path(data_dir).expanduser().resolve()) if data_dir else None,
                "user": user,
            },
            backbone=str(folder.resolve()) if folder.is_dir() else backbone,
            fusion=fusion,
            seed=self.seeds[0],
        )
        (trial,) = self.lay_over([trial.replace(changes)], strict=False)
        return trial

    def make_grid(self, trials: Iterable[Trial]) -> Grid:
        """All of these trials with every seed, and the options laid over them.

        Raises:
            UserError: an option that the study varies itself, or that fits none of its trials.
        """
        trials = list(trials)
        seeded = [trial.replace(seed=seed) for seed in self.seeds for trial in trials]
        return Grid(self.lay_over(seeded))

    def lay_over(self, trials: Sequence[Trial], strict: bool = True) -> list[Trial]:
        """The trials with what was given on the command line.

        ``--set`` of a field in a section that not all trials have (pruning, layer_drop,
        distillation) is for those that have it.

        Args:
            trials: Those of a study.
            strict: Whether they are all of them, so that a field that none has is a mistake.
        """
        options, overrides = self._given_options(), parse_overrides(self.overrides)
        changed = [trial.replace(options) for trial in trials]
        for field, value in overrides.items():
            concerned = [_has_field(trial, field) for trial in changed]
            if strict and not any(concerned):
                raise UserError(_explain_unused(changed[0], field, value))
            changed = [
                trial.replace({field: value}) if has else trial
                for trial, has in zip(changed, concerned, strict=True)
            ]
        given = {*options, *overrides}
        _check_still_distinct(trials, changed, given)
        return changed

    def _given_options(self) -> dict[str, Any]:
        """What was given, by the keys of :meth:`Trial.replace`."""
        given = {key: getattr(self, option) for option, key in _TRIAL_KEYS.items()}
        given = {key: value for key, value in given.items() if value is not None}
        if self.warmup is not None and self.warmup >= 1:
            given["optimizer.warmup"] = int(self.warmup)
        if self.whole_dev:
            given["data.whole_dev"] = True
        if self.teacher:
            given["distillation.teacher"] = self._find_folder("teacher")
        if self.start:
            given["warm_start"] = self._find_folder("start")
        return given

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
        path = find_checkpoint(find_trial(uri, asked))
        if not path or not Path(path).is_dir():
            raise UserError(
                f"{option}: the checkpoint of {asked} is not a folder here: {path!r}; "
                "copy it to one that every node sees and give that"
            )
        return path


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Values by field, from ``FIELD=VALUE``: numbers, true, false, null and lists as JSON has them,
    all else as text.

    >>> parse_overrides(["pruning.flat_end=3", "fusion.norm=stack"])
    {'pruning.flat_end': 3, 'fusion.norm': 'stack'}

    Raises:
        UserError: no ``=``, or a field is given twice.
    """
    values: dict[str, Any] = {}
    for text in overrides:
        field, equals, value = text.partition("=")
        if not equals or not field:
            raise UserError(f"set: got {text!r}, expected FIELD=VALUE, as in pruning.flat_end=3")
        if field in values:
            raise UserError(f"set: {field} is given twice")
        try:
            values[field] = json.loads(value)
        except ValueError:
            values[field] = value
    return values


def _has_field(trial: Trial, field: str) -> bool:
    section: Any = trial
    for name in field.split(".")[:-1]:
        section = getattr(section, name, None)
    return section is not None and field.rpartition(".")[2] in type(section).model_fields


def _explain_unused(trial: Trial, field: str, value: Any) -> str:
    """Why a field of ``--set`` fits no trial: it does not exist, or its section does not here."""
    section = field.split(".")[0]
    if "." in field and getattr(trial, section, ...) is None:
        return f"set: no trial of this study has a section {section!r}, so {field} changes nothing"
    try:
        trial.replace({field: value})
    except UserError as error:
        return f"set: {error.problems[0]}"
    return f"set: no trial of this study has {field}"


def _check_still_distinct(before: Sequence[Trial], after: Sequence[Trial], given: set[str]) -> None:
    """One value for all of what a study varies would leave fewer trials than it needs."""
    if len({trial.id for trial in after}) == len({trial.id for trial in before}):
        return
    values: Mapping[str, set[str]] = {
        field: {json.dumps(trial.flat().get(field)) for trial in before} for field in given
    }
    varied = sorted(field for field, different in values.items() if len(different) > 1)
    raise UserError(*(f"{field}: this study varies it; leave it out" for field in varied))


@dataclass(frozen=True)
class OneTaskOptions(StudyOptions):
    """Options of a study of one task and one encoder."""

    task: Annotated[str, by_study] = ""
    """What is learned: a task of the embedded language, GLUE (sst2, qqp, ...), senteval/NAME,
    conll2003, wikiann/LANGUAGE, squad, wikitext2 or text."""
    backbone: Annotated[str, by_study] = ""
    """The encoder: 'embedded', a folder, or a name on the hub."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fill_in(
            task=self.user_task_name or self._subject.tasks[0], backbone=self._default_backbone
        )

    @property
    def asked_subject(self) -> Subject:
        return Subject((self.task,), (self.backbone,), self.seeds)

    def base_trial(self, question: str, fusion: str = "last", **changes: Any) -> Trial:
        """The Trial that the study starts from; see :meth:`make_trial`."""
        return self.make_trial(question, self.task, self.backbone, fusion, **changes)


@dataclass(frozen=True)
class ManyTasksOptions(StudyOptions):
    """Options of a study over tasks and encoders."""

    FIELD_OPTIONS = StudyOptions.FIELD_OPTIONS | {"task": "tasks", "backbone": "backbones"}

    tasks: Annotated[tuple[str, ...], by_study] = ()
    """What is learned, one after the other: as --task of other studies."""
    backbones: Annotated[tuple[str, ...], by_study] = ()
    """The encoders: 'embedded', folders, or names on the hub."""

    def __post_init__(self) -> None:
        super().__post_init__()
        tasks = (self.user_task_name,) if self.user_task_name else self._subject.tasks
        backbones = (self._default_backbone,) if self.start else self._subject.backbones
        self._fill_in(tasks=tasks, backbones=backbones)

    @property
    def asked_subject(self) -> Subject:
        return Subject(self.tasks, self.backbones, self.seeds)

    def base_trials(
        self, question: str, fusions: Sequence[str] = ("last",), **changes: Any
    ) -> list[Trial]:
        """A Trial for each encoder, task and fusion; see :meth:`make_trial`."""
        if self.has_user_data and len(self.tasks) > 1:
            raise UserError(f"tasks: your own data is one task; got {listed(self.tasks)}")
        return [
            self.make_trial(question, task, backbone, fusion, **changes)
            for backbone in self.backbones
            for task in self.tasks
            for fusion in fusions
        ]

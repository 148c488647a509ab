"""What MLflow has of a study as a whole: its files, its report, its description. And sending what
MLflow was not there to take."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.results import figures
from bermo_ray.results.frontier import frontier
from bermo_ray.results.report import (
    FIGURE_FOLDER,
    REPORT_FILE,
    NothingToReportError,
    save_drawings,
    write_report,
)
from bermo_ray.results.study_note import StudyNote, measure_study
from bermo_ray.results.table import load
from bermo_ray.results.verdicts import VERDICT_FILE, Verdict, parse_verdicts
from bermo_ray.tracking import store, study_page
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.study_run import add_files

_PUBLISHED = (".parquet", ".png", ".svg", VERDICT_FILE, "report.json")


def publish_study(
    name: str, uri: str, run_id: str, folder: Path, files: Sequence[Path]
) -> list[Path]:
    """Keeps files with a study's MLflow run, writes the report and keeps that too; gives the
    report's file, or none where no trial has finished.

    Args:
        name: Of the study.
        uri: MLflow's store.
        run_id: Of the study's own run.
        folder: The study's.
        files: That are kept.
    """
    add_files(uri, run_id, files)
    try:
        page = write_report(name, uri, folder / REPORT_FILE)
    except NothingToReportError:  # the study itself has said so
        return []
    pngs = save_drawings(page, folder / FIGURE_FOLDER)
    drawn = [file for png in pngs for file in figures.figure_files(png)]
    add_files(uri, run_id, drawn, FIGURE_FOLDER)
    add_files(uri, run_id, [folder / REPORT_FILE])
    return [folder / REPORT_FILE]


def describe_study(
    name: str,
    uri: str,
    run_id: str,
    question: str,
    files: Sequence[Path] = (),
    verdicts: Sequence[Verdict] = (),
) -> None:
    """Writes the description of a study's run, and of its experiment.

    Args:
        name: Of the study.
        uri: MLflow's store.
        run_id: Of the study's own run.
        question: What the study asks.
        files: That the run has.
        verdicts: What the study concluded.
    """
    table = load(name, uri)
    others = [row["run_id"] for row in frontier(table).to_pylist() if row["study"] != name]
    experiments = study_page.find_experiments(uri, [run_id, *others])
    images = [file for file in files if file.suffix == ".png"]
    paths = study_page.add_images(uri, run_id, images)
    note = StudyNote(
        question,
        table,
        verdicts,
        {Path(path).stem: study_page.link_to_file(run_id, path) for path in paths},
        {file.name: study_page.link_to_file(run_id, file.name) for file in files},
        lambda trial: study_page.link_to_run(experiments.get(trial, experiments[run_id]), trial),
    )
    text = note.to_markdown(study_page.LONGEST_NOTE)
    study_page.describe_study(uri, run_id, text, note.headline, measure_study(table))
    study_page.describe_experiment(uri, run_id, question)


def sync_study(name: str, uri: str, folder: Path) -> tuple[int, list[str]]:
    """Sends MLflow what it was not there to take while a study ran; gives the number of records,
    and what it has refused, as :attr:`Recorder.refused`.

    Args:
        name: Of the study.
        uri: MLflow's store.
        folder: The study's.

    Raises:
        UserError: no such study, it is running, or MLflow is still away.
    """
    question = read_study_file(folder)["question"]
    store.connect(uri)  # away: one line
    recorder = Recorder.reopen(uri, name, folder, figures.trial_figures)
    count = recorder.unsent_before
    try:
        recorder.wait()
    finally:
        recorder.stop()
    if recorder.unsent:
        raise UserError(
            f"tracking_uri: {recorder.unsent} of {count} records could not be written to {uri} "
            f"({recorder.outage}); they are kept, try again later"
        )
    files = [f for f in sorted(folder.iterdir()) if f.name.endswith(_PUBLISHED)]
    run = store.find_study(uri, name)
    if files and run is not None:
        run_id, verdict_file = str(run.info.run_id), folder / VERDICT_FILE
        verdicts = parse_verdicts(verdict_file.read_text()) if verdict_file.is_file() else []
        files += publish_study(name, uri, run_id, folder, files)
        describe_study(name, uri, run_id, question, files, verdicts)
    return count, recorder.refused


def describe_refusals(refused: Sequence[str], uri: str, folder: Path) -> str:
    """In a line, what MLflow did not take of a study's records, as :attr:`Recorder.refused`."""
    others = f"; {len(refused) - 1} more" if len(refused) > 1 else ""
    return f"MLflow at {uri} refused records, which are in {folder}/ alone: {refused[0]}{others}"


def read_study_file(folder: Path) -> dict[str, Any]:
    """What a study's folder says of it: its kind, question and settings.

    Raises:
        UserError: there is no study.
    """
    if not (folder / store.STUDY_FILE).is_file():
        raise UserError(f"study: no study {folder.name!r} in {folder.parent}")
    content: dict[str, Any] = json.loads((folder / store.STUDY_FILE).read_text())
    return content

"""Studies that make BERT-like encoders smaller: run them, and look at what they left behind."""

import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import tyro

from bermo_ray.command_line.compare_command import compare
from bermo_ray.command_line.disk_commands import clean, disk
from bermo_ray.command_line.doctor import doctor
from bermo_ray.command_line.existing_store import existing_store
from bermo_ray.command_line.output import show_table
from bermo_ray.command_line.program import run_command
from bermo_ray.command_line.report_command import report
from bermo_ray.command_line.study_command import describe_studies, run_study_script
from bermo_ray.command_line.ui_command import ui
from bermo_ray.errors import UserError
from bermo_ray.plugins import add_working_directory, load_plugins
from bermo_ray.tracking.store import RUNS

_OPTIONS = {
    name: name
    for name in (
        "runs", "host", "port", "study", "out", "parquet", "tracking_uri", "plugin", "figures",
        "ui_url", "storage",
    )
}  # fmt: skip


def list_studies(
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    json: bool = False,
    parquet: Path | None = None,
) -> None:
    """List the studies of a store: how they ended, and how many of their trials completed.

    Args:
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        json: Print JSON, with all there is to say.
        parquet: File to write instead.
    """
    from bermo_ray.results.overview import list_studies as read_studies
    from bermo_ray.results.text import studies_table

    rows = read_studies(existing_store(runs, tracking_uri))
    show_table(rows, lambda: studies_table(rows), json, parquet)


def table(
    study: Annotated[str, tyro.conf.Positional],
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    frontier: bool = False,
    json: bool = False,
    parquet: Path | None = None,
) -> None:
    """Show a study's trials: what varies among them, what came out, and how they ended.

    Args:
        study: Name of the study.
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        frontier: Only the trials on the frontier.
        json: Print JSON, with every column.
        parquet: File to write instead, with every column.
    """
    from bermo_ray import results
    from bermo_ray.results.text import trials_table
    from bermo_ray.results.varying import summarize_trials

    rows = results.load(study, existing_store(runs, tracking_uri))
    rows = results.frontier(rows) if frontier else rows
    show_table(rows, lambda: trials_table(rows), json, parquet, lambda: summarize_trials(rows))


def query(
    sql: Annotated[str, tyro.conf.Positional],
    study: str | None = None,
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    json: bool = False,
    parquet: Path | None = None,
) -> None:
    """Ask SQL of the trials of all studies, or of one.

    Args:
        sql: A query of DuckDB's over the table `trials`: "SELECT fusion, min(remaining) FROM trials
            WHERE metric >= 0.9 GROUP BY fusion".
        study: Only the trials of this study.
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        json: Print JSON.
        parquet: File to write instead.
    """
    from bermo_ray import results
    from bermo_ray.results.text import any_table

    uri = existing_store(runs, tracking_uri)
    trials = results.load_all(uri) if study is None else results.load(study, uri)
    rows = results.query(sql, trials=trials)
    show_table(rows, lambda: any_table(rows), json, parquet)


def verdicts(
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    markdown: bool = False,
    json: bool = False,
    parquet: Path | None = None,
) -> None:
    """List what studies concluded of the papers' claims.

    Args:
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        markdown: Print a table in Markdown: claims, numbers and commands.
        json: Print JSON.
        parquet: File to write instead.
    """
    from bermo_ray.results.arm_text import verdicts_markdown, verdicts_overview
    from bermo_ray.results.verdict_store import load_verdicts
    from bermo_ray.results.verdicts import verdicts_table

    concluded = load_verdicts(existing_store(runs, tracking_uri))
    if not concluded:
        raise UserError(f"no study in {runs} has a verdict yet")
    if markdown:
        print(verdicts_markdown(concluded), end="")
        return
    show_table(verdicts_table(concluded), lambda: verdicts_overview(concluded), json, parquet)


def sync(
    study: Annotated[str, tyro.conf.Positional],
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
) -> None:
    """Send MLflow the records that it was not there to take while a study ran.

    Args:
        study: Name of the study.
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one that the study was started with.
    """
    from bermo_ray.results.study_records import describe_refusals, read_study_file, sync_study
    from bermo_ray.tracking.store import store_uri

    folder = runs.expanduser() / study
    saved = read_study_file(folder)["settings"].get("tracking_uri")
    uri = store_uri(runs.expanduser(), tracking_uri or saved)
    count, refused = sync_study(study, uri, folder)
    if count or not refused:
        sent = f"{count} records sent" if count else "MLflow has all of its records"
        print(f"{study}: {sent}")
    if refused:
        print(describe_refusals(refused, uri, folder))


def export(
    trial: Annotated[str, tyro.conf.Positional],
    folder: Annotated[Path, tyro.conf.Positional],
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    plugin: tuple[str, ...] = (),
) -> None:
    """Write a trial's model as a stock checkpoint, with a recipe and a model card.

    Args:
        trial: Its trial_id, or its MLflow run's; the first digits are enough.
        folder: A new folder.
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        plugin: Modules of your own that the trial was trained with.
    """
    from rich.console import Console
    from rich.table import Table

    from bermo_ray.export import CARD, export_trial, measurement_rows

    add_working_directory()
    load_plugins(plugin)
    before, after = export_trial(trial, folder, existing_store(runs, tracking_uri))
    shown = Table(box=None)
    for name in ("", "started from", "exported", "ratio"):
        shown.add_column(name, justify="right" if name else "left")
    for row in measurement_rows(before, after):
        shown.add_row(*row)
    Console(highlight=False).print(shown)
    print(f"{folder}: {CARD} says what got smaller and what got faster")


def unpack(folder: Annotated[Path, tyro.conf.Positional]) -> None:
    """Make the stock weights of an exported folder from its compressed ones.

    Args:
        folder: What `bermo-ray export` wrote, without its model.safetensors.
    """
    from bermo_ray.export import unpack as unpack_folder

    print(unpack_folder(folder))


def main() -> None:
    """Entry point of ``bermo-ray``."""
    words = sys.argv[1:]
    if words[:1] == ["--version"]:
        print(f"bermo-ray {version('bermo-ray')}")
    elif words[:1] == ["study"]:
        run_command(lambda: run_study_script(words[1:]))
    else:
        run_command(_dispatch, _OPTIONS)


def study() -> None:
    """Run a study: `bermo-ray study NAME --help` tells its options, `bermo-ray study` the names."""
    print(describe_studies())


_COMMANDS: dict[str, Callable[..., None]] = {
    "study": study,
    "list": list_studies,
    "table": table,
    "query": query,
    "report": report,
    "compare": compare,
    "verdicts": verdicts,
    "sync": sync,
    "export": export,
    "unpack": unpack,
    "ui": ui,
    "disk": disk,
    "clean": clean,
    "doctor": doctor,
}


def _dispatch() -> None:
    tyro.extras.subcommand_cli_from_dict(
        _COMMANDS,
        prog="bermo-ray",
        description=__doc__,
        config=(tyro.conf.FlagCreatePairsOff,),
    )

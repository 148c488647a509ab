"""``bermo-ray``: look at what studies left behind."""

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bermo_ray.command_line.program import run_command
from bermo_ray.errors import UserError
from bermo_ray.plugins import add_working_directory, load_plugins
from bermo_ray.tracking.store import RUNS, SQLITE, store_uri

if TYPE_CHECKING:
    import pyarrow as pa

_OPTIONS = {name: name for name in ("runs", "port", "out", "sql", "tracking_uri", "plugin")}


def _existing_store(runs: Path, tracking_uri: str | None) -> str:
    uri = store_uri(runs, tracking_uri)
    file = Path(uri.removeprefix(SQLITE))
    if uri.startswith(SQLITE) and not file.is_file():
        raise UserError(f"no studies in {file.parent} (no {file.name}); give `runs`")
    return uri


def ui(
    study: Annotated[str | None, tyro.conf.Positional] = None,
    runs: Path = Path(RUNS),
    port: int = 5000,
    tracking_uri: str | None = None,
) -> None:
    """Serve the MLflow UI on this machine only, on the store of the studies in --runs, and say at
    which address it shows a study.

    Args:
        study: Name of the study; without one, the newest are listed.
        runs: Folder of the studies' records.
        port: Port on 127.0.0.1.
        tracking_uri: An MLflow server, or another store than the one in --runs.
    """
    uri = _existing_store(runs, tracking_uri)
    if uri.startswith(("http://", "https://")):
        print(f"that store is a server with its own UI: {uri}")
        _print_addresses(uri, uri, study)
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"port: {port} is taken on 127.0.0.1; give another") from error
    # The job runner would start seven processes of 235 MB that nothing here uses.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    artifacts = (runs / "artifacts").absolute().as_uri()
    _print_addresses(uri, f"http://127.0.0.1:{port}", study)
    print("Ctrl-C stops it", flush=True)
    call = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    call += ["--backend-store-uri", uri, "--default-artifact-root", artifacts, "--workers", "1"]
    os.execve(sys.executable, call, environment)  # signals then reach the server itself


_LISTED_STUDIES = 5  # whose addresses `ui` prints


def _print_addresses(uri: str, server: str, study: str | None) -> None:
    """Where the server shows a study: its trials, and what came out; without a name, the newest.

    Raises:
        UserError: no study of that name.
    """
    from bermo_ray.tracking.store import all_study_runs, connect
    from bermo_ray.tracking.study_page import link_to_run, link_to_study

    studies = all_study_runs(connect(uri))
    if study is not None:
        studies = [run for run in studies if run.data.tags["bermo.study"] == study][-1:]
        if not studies:
            raise UserError(f"no study {study!r} in {uri}")
    for run in studies[: -_LISTED_STUDIES - 1 : -1]:
        name, info = run.data.tags["bermo.study"], run.info
        print(f"{name}: {server}/{link_to_study(info.experiment_id, name)}")
    if study is not None:
        about = link_to_run(studies[0].info.experiment_id, studies[0].info.run_id)
        print(f"what came out: {server}/{about}")


def table(
    study: Annotated[str, tyro.conf.Positional],
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    out: Path | None = None,
    frontier: bool = False,
    sql: str | None = None,
) -> None:
    """Print a study's trials, or what SQL makes of them, or write either as a file.

    Args:
        study: Name of the study.
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        out: File to write: .parquet, or .csv.
        frontier: Only the trials on the frontier.
        sql: A query of DuckDB's over the table `trials`: "SELECT fusion, min(remaining) FROM trials
            WHERE metric >= 0.9 GROUP BY fusion".
    """
    from rich.console import Console

    from bermo_ray import results
    from bermo_ray.results.text import any_table, trials_table

    if out is not None and out.suffix not in _writers():
        raise UserError(f"out: got {out.name}, expected a name ending in .parquet or .csv")
    rows = results.load(study, _existing_store(runs, tracking_uri))
    rows = results.frontier(rows) if frontier else rows
    if sql is not None:
        rows = results.query(sql, trials=rows)
    if out is None:
        shown = trials_table(rows) if sql is None else any_table(rows)
        Console(highlight=False).print(shown)
        return
    if out.suffix == ".csv" and sql is None:
        rows = _nested_to_json(rows)
    _write_whole(out, lambda file: _writers()[out.suffix](rows, file))


def _nested_to_json(rows: "pa.Table") -> "pa.Table":
    """Lists and maps as JSON text, which is all that a cell of a CSV file can hold."""
    import pyarrow as pa

    for index, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            convert = dict if pa.types.is_map(field.type) else list
            cells = [None if v is None else json.dumps(convert(v)) for v in rows[index].to_pylist()]
            rows = rows.set_column(index, field.name, pa.array(cells, pa.string()))
    return rows


def verdicts(
    runs: Path = Path(RUNS), tracking_uri: str | None = None, out: Path | None = None
) -> None:
    """List what studies concluded of the papers' claims, or write it as a file.

    Args:
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        out: File to write: .parquet, .csv, or .md for a table of claims, numbers and commands.
    """
    from rich.console import Console

    from bermo_ray.results.arm_text import verdicts_markdown, verdicts_overview
    from bermo_ray.results.verdict_store import load_verdicts
    from bermo_ray.results.verdicts import verdicts_table

    if out is not None and out.suffix not in {*_writers(), ".md"}:
        raise UserError(f"out: got {out.name}, expected a name ending in .parquet, .csv or .md")
    concluded = load_verdicts(_existing_store(runs, tracking_uri))
    if not concluded:
        raise UserError(f"no study in {runs} has a verdict yet")
    if out is None:
        Console(highlight=False).print(verdicts_overview(concluded))
    elif out.suffix == ".md":
        _write_whole(out, lambda file: file.write_text(verdicts_markdown(concluded)))
    else:
        rows = verdicts_table(concluded)
        _write_whole(out, lambda file: _writers()[out.suffix](rows, file))


def _writers() -> dict[str, Callable[..., Any]]:
    import pyarrow.csv
    import pyarrow.parquet

    return {".parquet": pyarrow.parquet.write_table, ".csv": pyarrow.csv.write_csv}


def _write_whole(out: Path, write: Callable[[Path], Any]) -> None:
    """Writes a file under another name first, so that none is left half-written."""
    import pyarrow

    partial_file = out.with_name(out.name + ".partial")
    try:
        write(partial_file)
        partial_file.replace(out)
    except (OSError, pyarrow.ArrowException) as error:
        partial_file.unlink(missing_ok=True)
        raise UserError(f"out: {str(error).splitlines()[0]}") from None


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
    before, after = export_trial(trial, folder, _existing_store(runs, tracking_uri))
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
    run_command(_dispatch, _OPTIONS)


def _dispatch() -> None:
    tyro.extras.subcommand_cli_from_dict(
        {"ui": ui, "table": table, "verdicts": verdicts, "export": export, "unpack": unpack},
        prog="bermo-ray",
        description=__doc__,
        config=(tyro.conf.FlagCreatePairsOff,),
    )

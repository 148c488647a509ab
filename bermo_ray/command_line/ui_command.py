"""``bermo-ray ui``: MLflow's pages of a store, for this machine or, if asked, for others."""

import errno
import os
import socket
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import tyro

from bermo_ray.command_line.existing_store import existing_store
from bermo_ray.errors import UserError
from bermo_ray.tracking.addresses import full_address
from bermo_ray.tracking.store import RUNS

LOOPBACK = "127.0.0.1"
_LISTED_STUDIES = 5  # whose addresses are printed


def ui(
    study: Annotated[str | None, tyro.conf.Positional] = None,
    runs: Path = Path(RUNS),
    host: str = LOOPBACK,
    port: int = 5000,
    tracking_uri: str | None = None,
) -> None:
    """Serve the MLflow UI on this machine only, on the store of the studies in --runs, and say at
    which address it shows a study.

    Args:
        study: Name of the study; without one, the newest are listed.
        runs: Folder of the studies' records.
        host: Address to listen on. MLflow has no login: any but 127.0.0.1 lets others in, who can
            read and change the records; 0.0.0.0 is all addresses of this machine.
        port: Port on --host.
        tracking_uri: An MLflow server, or another store than the one in --runs.
    """
    uri = existing_store(runs, tracking_uri)
    if uri.startswith(("http://", "https://")):
        print(f"that store is a server with its own UI: {uri}")
        print_addresses(uri, uri, study)
        return
    check_port(host, port)
    # The job runner would start seven processes of 235 MB that nothing here uses. The store is no
    # argument, because all users of a machine see arguments, and it may have a password.
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_BACKEND_STORE_URI": full_address(uri),
    }
    names = [host]
    if not is_loopback(host):
        names = find_names(host)
        for name, value in allow_names(names, port).items():
            environment.setdefault(name, value)
        print(
            f"warning: everyone who reaches {host}, port {port}, can read and change the records: "
            "MLflow has no login",
            file=sys.stderr,
        )
    print_addresses(uri, f"http://{in_address(names[0])}:{port}", study)
    print("Ctrl-C stops it", flush=True)
    call = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port)]
    artifacts = (runs / "artifacts").absolute().as_uri()
    call += ["--default-artifact-root", artifacts, "--workers", "1"]
    os.execve(sys.executable, call, environment)  # signals then reach the server itself


def check_port(host: str, port: int) -> None:
    """Whether a server can listen there.

    Raises:
        UserError: the port is taken, or this machine has no such address.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port: {port} is taken on {host}; give another") from error
        raise UserError(f"host: can't listen on {host}, port {port}: {error.strerror}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def find_names(host: str) -> list[str]:
    """By what others may call a server that listens on that address: by the address, or by all
    names and addresses of this machine where it listens on all of them."""
    try:
        is_everywhere = ip_address(host).is_unspecified
    except ValueError:
        is_everywhere = False
    if not is_everywhere:
        return [host]
    names = [socket.gethostname(), socket.getfqdn()]
    for family, beyond in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((beyond, 9))  # picks our own address on the way out; sends nothing
            except OSError:
                continue
            names.append(probe.getsockname()[0])
    return list(dict.fromkeys(name.lower() for name in names))


def in_address(name: str) -> str:
    """A name as it stands in a web address."""
    return f"[{name}]" if ":" in name else name


def allow_names(names: list[str], port: int) -> dict[str, str]:
    """MLflow's settings for a server that is called by those names: it refuses requests to others,
    so that no page of another site reaches it through the reader's browser."""
    hosts = [in_address(name) for name in ("localhost", LOOPBACK, "::1", *names)]
    return {
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(f"{h},{h}:{port}" for h in hosts),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(
            f"http://{in_address(name)}:{port}" for name in names
        ),
    }


def print_addresses(uri: str, server: str, study: str | None) -> None:
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

"""A study with secrets in its environment and in its store's address leaves them nowhere."""

import base64
import io
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.record import Status
from tests.support.servers import serve_mlflow
from tests.support.studies import ENVIRONMENT, small_study, start_study, wait_for

pytestmark = pytest.mark.ray

# Each is a word that nothing else has.
SECRETS = {
    name: f"{number}q7z-{name.lower().replace('_', '-')}"
    for number, name in enumerate((
        "MLFLOW_TRACKING_TOKEN",
        "MLFLOW_TRACKING_PASSWORD",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "RAY_AUTH_TOKEN",
    ))
}  # fmt: skip
IN_ADDRESS = "9q7z/in-the-address"


def all_forms() -> list[bytes]:
    """The secrets as they may be written."""
    login = base64.b64encode(f"me:{IN_ADDRESS}".encode()).decode()
    words = [*SECRETS.values(), IN_ADDRESS, quote(IN_ADDRESS, safe=""), login]
    return [word.encode() for word in words]


def find_secrets(name: str, content: bytes) -> list[tuple[str, str]]:
    """Which secrets a content has; of compressed tables, of what they hold."""
    if name.endswith(".parquet"):
        content += str(pq.read_table(io.BytesIO(content)).to_pylist()).encode()
    return [(name, secret.decode()) for secret in all_forms() if secret in content]


def read_files(*folders: Path) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        for file in folder.rglob("*"):
            if file.is_file() and not file.is_symlink():
                yield str(file.relative_to(folder.parent)), file.read_bytes()


def call(*words: str, variables: dict[str, str], code: int) -> bytes:
    """What a ``bermo-ray`` command that ends with that code prints to both streams."""
    program = "from bermo_ray.command_line.commands import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=ENVIRONMENT | variables, capture_output=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
    return done.stdout + done.stderr


def test_secrets_are_found_where_they_are(tmp_path: Path) -> None:
    """The search itself: without it the test below would say nothing."""
    table = results.SCHEMA.empty_table().select(["study", "reason"])
    secret = SECRETS["HF_TOKEN"]
    rows = [{"study": "s", "reason": secret}] * 9
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), tmp_path / "a.parquet")
    (tmp_path / "b.txt").write_text(f"http://me:{quote(IN_ADDRESS, safe='')}@host")
    found = [hit for name, content in read_files(tmp_path) for hit in find_secrets(name, content)]
    assert {Path(name).name for name, _ in found} == {"a.parquet", "b.txt"}


def test_a_study_leaves_no_secret_anywhere(tiny: str, tmp_path: Path) -> None:
    runs, server = tmp_path / "runs", tmp_path / "server"
    ray_folder = Path(tempfile.mkdtemp(prefix="b-"))  # Ray's sockets need a short path
    variables = {**SECRETS, "RAY_TMPDIR": str(ray_folder)}
    printed: list[bytes] = []
    try:
        with serve_mlflow(server) as host:
            uri = f"http://me:{quote(IN_ADDRESS, safe='')}@{host}"
            options = (*small_study(tiny), "--trials", "1", "--tracking-uri", uri)

            def has_ended_trial() -> bool:
                if not (runs / "s" / "study.json").is_file():
                    return False
                statuses = results.load("s", f"http://{host}")["status"].to_pylist()
                return any(Status(status).ended for status in statuses)

            stopped = start_study(runs, *options, "--verbose", variables=variables)
            wait_for(has_ended_trial, stopped)
            stopped.send_signal(signal.SIGINT)
            out, err = stopped.communicate(timeout=300)
            assert stopped.returncode == 130, out + err
            printed += [out.encode(), err.encode()]

            again = start_study(
                runs, "--resume", "--name", "s", "--tracking-uri", uri, variables=variables
            )
            out, err = again.communicate(timeout=300)
            assert again.returncode == 0, out + err
            assert f"--tracking-uri http://{host}" in out  # where to browse it
            printed += [out.encode(), err.encode()]

            by_variable = variables | {"MLFLOW_TRACKING_URI": uri}
            parquet = ("table", "s", "--parquet", str(runs / "s.parquet"))
            for words in (parquet, ("list", "--json"), ("report", "s"), ("ui", "s"), ("doctor",)):
                printed.append(call(*words, "--runs", str(runs), variables=by_variable, code=0))
            typo = ("table", "s", "--tracking-ur", uri)
            printed.append(call(*typo, variables=variables, code=2))
        away = ("table", "s", "--tracking-uri", uri)
        printed.append(call(*away, variables=variables, code=2))
        assert f"no MLflow server answers at http://{host} (".encode() in printed[-1]

        contents = [*enumerate(printed), *read_files(runs, server, ray_folder)]
        found = [hit for name, content in contents for hit in find_secrets(str(name), content)]
        assert found == []
        names = [str(name) for name, _ in contents]
        for expected in ("study.json", "report.html", "s.parquet", "mlflow.db", "raylet.out",
                         "gcs_server.out", "server.log", "records.jsonl"):  # fmt: skip
            assert any(name.endswith(expected) for name in names), expected
    finally:
        shutil.rmtree(ray_folder, ignore_errors=True)

"""Programs of the system that tests need: installed where root has apt-get, else skipped."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest


def find_program(name: str) -> str | None:
    """Its path; sshd lies in a folder that users do not search."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def install_programs(packages: Mapping[str, str]) -> None:
    """Installs what is not there; skips the test where that can't be done.

    Args:
        packages: Program -> the Debian package that has it.
    """
    absent = [name for name in packages if find_program(name) is None]
    if not absent:
        return
    what = " and ".join(absent)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"no {what} here; only root with apt-get could install it")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    wanted = sorted({packages[name] for name in absent})
    install = ["install", "--yes", "--no-install-recommends", *wanted]
    with _no_services():
        for call in (["update"], install):
            done = subprocess.run(
                ["apt-get", "--quiet", *call], env=environment, capture_output=True, text=True
            )
            if done.returncode:
                pytest.skip(f"no {what} here, and apt-get {call[0]} failed: {done.stderr[-300:]}")


@contextmanager
def _no_services() -> Iterator[None]:
    """Packages that are installed now start no server of their own, open to the network."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()

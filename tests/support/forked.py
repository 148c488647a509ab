"""Study scripts in processes that are forked from one in which all of it is imported: killed and
started again, a study is back within a second."""

import multiprocessing
import os
import runpy
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

# What a study imports, some of it only once it runs.
_PRELOADED = [
    "bermo_ray.command_line.frontier_study",
    "bermo_ray.command_line.shell",
    "bermo_ray.search.in_process",
    "bermo_ray.study",
    "bermo_ray.tracking.trial_writer",
    "matplotlib.pyplot",
    "mlflow.store.tracking.sqlalchemy_store",
    "optuna",
    "torch.optim",
    "transformers.models.bert.modeling_bert",
]


def start_forked(script: Path, words: list[str], output: Path) -> BaseProcess:
    """Starts a script with these options; what it prints is added to ``output``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    process = context.Process(target=_run, args=(str(script), words, str(output)))
    process.start()
    return process


def _run(script: str, words: list[str], output: str) -> None:
    stream = os.open(output, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for number in (1, 2):
        os.dup2(stream, number)
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")

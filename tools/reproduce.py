"""Runs every study on the embedded default and writes what came of the papers' claims.

    python tools/reproduce.py                          # all studies, then docs/reproduction.md
    python tools/reproduce.py --only stability         # one of them, into the same store

A study that has its verdicts in the store already is not run again; one that was cut off goes on.
Checkpoints of a study go once it has ended, for together they would fill a disk.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from bermo_ray.results.arm_text import verdicts_markdown
from bermo_ray.results.verdict_store import load_verdicts
from bermo_ray.results.verdicts import VERDICT_FILE, Outcome, Verdict
from bermo_ray.tracking.store import store_uri
from bermo_ray.tracking.study_run import environment_tags

ROOT = Path(__file__).parents[1]
# Cheap ones whose trials others share come first.
STUDIES = (
    "probing", "standalone", "stability", "convergence", "pruning_methods", "distillation",
    "l0_frontier", "soft_movement_frontier", "combine_ablation", "few_shot_fusion",
    "features_vs_finetune", "languages", "mlm_fusion", "layer_drop", "optimal_layers", "everything",
)  # fmt: skip
DURATIONS = "durations.json"


@dataclass(frozen=True)
class Options:
    """Every table and figure of the papers on the embedded default."""

    only: tuple[str, ...] = STUDIES
    """Studies to run."""
    runs: Path = Path("runs/reproduction")
    """Folder for the records of all of them."""
    out: Path = ROOT / "docs" / "reproduction.md"
    """The document that is written."""


def main(options: Options) -> None:
    """Runs what is missing, then writes the document."""
    options.runs.mkdir(parents=True, exist_ok=True)
    failed = [name for name in options.only if not run_study(name, options.runs)]
    verdicts = load_verdicts(store_uri(options.runs))
    options.out.write_text(write_document(verdicts, read_durations(options.runs)))
    print(f"{len(verdicts)} verdicts in {options.out}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run_study(name: str, runs: Path) -> bool:
    """Runs a study, or goes on with it; whether it has come to its end."""
    if (runs / name / VERDICT_FILE).is_file():
        return True
    resume = ["--resume"] if (runs / name).is_dir() else []
    print(f"== {name}", flush=True)
    started = time.monotonic()
    script = ROOT / "studies" / f"{name}.py"
    call = [sys.executable, str(script), "--runs", str(runs), "--name", name, *resume]
    ended = subprocess.run(call, env=os.environ | {"COLUMNS": "100"}, check=False)
    seconds = read_durations(runs)
    seconds[name] = seconds.get(name, 0.0) + time.monotonic() - started
    (runs / DURATIONS).write_text(json.dumps(seconds))
    if ended.returncode:
        return False
    for study in (name, f"{name}-teachers"):
        shutil.rmtree(runs / "checkpoints" / study, ignore_errors=True)
    return True


def read_durations(runs: Path) -> dict[str, float]:
    """Seconds that each study took."""
    file = runs / DURATIONS
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def write_document(verdicts: list[Verdict], seconds: dict[str, float]) -> str:
    """The document: what was run, a table of all claims, and how many of them came out how."""
    outcomes = [verdict.outcome for verdict in verdicts]
    counts = ", ".join(f"{outcomes.count(o)} {o}" for o in Outcome if o in outcomes)
    ran = {verdict.study for verdict in verdicts}
    others = ", ".join(f"`{name}`" for name in STUDIES if name not in ran)
    missing = f" Not run yet: {others}." if others else ""
    tags = environment_tags()
    commit = tags.get("commit", "unknown")[:12]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {tags['version.python']}"
    return f"""# The papers' claims, looked at on the embedded language

Written by `make reproduce`: {len(ran)} of the {len(STUDIES)} studies, with their defaults
({machine}, torch {tags["version.torch"]}, commit {commit}).{missing}

The embedded language is artificial and its encoder has six layers of width 128, so **nothing here
says that a paper is right or wrong about English**: it says whether its claim holds in this small
world, with how many seeds, and how sure that is. For the papers' own settings add `--paper` to a
command (real data, real encoders, GPUs).

- *agrees*, *contradicts*: the 95 % interval lies on one side of no effect (or, for a claim that two
  things are the same, within or beyond the margin that the study names).
- *not settled*: the interval holds both. *no answer*: nothing could be estimated, and why.
- Intervals are over seeds (Welch's or Student's t; shares: exact or Newcombe's), one by one: of
  {len(verdicts)} at 95 %, about {0.05 * len(verdicts):.0f} miss what they estimate by chance.

Of {len(verdicts)} claims: {counts}.

{verdicts_markdown(verdicts)}{write_durations(seconds)}"""


def write_durations(seconds: dict[str, float]) -> str:
    """How long each study took, where that was measured."""
    if not seconds:
        return ""
    rows = [f"| `studies/{name}.py` | {value / 60:.1f} |" for name, value in seconds.items()]
    total = f"| all | {sum(seconds.values()) / 60:.0f} |"
    return "\n".join(["", "| study | minutes |", "|---|---|", *rows, total, ""])


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))

"""How many trials a search needs until it has all but the fewest weights that meet a target.

The surface is made of real trials (``surface.parquet``, by ``tools/record_surface.py``: L0 on
`tense` with the shipped encoder, both fusions, a Sobol sequence over λ and both rates). Between
them log remaining weights and accuracy are local quadratic regressions (LOESS, the 40 nearest,
tricube weights), which of linear and quadratic ones and two kinds of forests foretell held-out
trials best. A search is there when a trial of it meets the target with at most 1 % more remaining
weights than the fewest anywhere on the surface. Targets are 0.95x and 0.98x of each fusion's dense
baseline; five repetitions each: 20 in all. What is not there after 150 trials counts as 150, which
favours whatever is slow. The table also has what the best trial of the first 20 leaves, relative to
those fewest: few people run 150.

Against Optuna's random search, TPE (with the target as a constraint, and with two objectives) and
NSGA-II (the same two ways), all with their defaults. The ratio is to the best of them.
"""

from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pyarrow.parquet as pq
from _measure import show
from optuna.distributions import FloatDistribution
from optuna.samplers import NSGAIISampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from scipy.stats import qmc
from threadpoolctl import threadpool_limits

from bermo_ray.search.sampler import CONSTRAINT, TargetSampler

NEAREST, MOST, FEW, REPETITIONS, SHARES, CLOSE = 40, 150, 20, 5, (0.95, 0.98), 1.01
NAMES = ("multiplier", "learning_rate", "score_learning_rate")
LOW, HIGH = np.log([1.0, 1.5e-4, 1e-2]), np.log([60.0, 3e-3, 2e-1])  # of tools/record_surface.py
SPACE = {
    name: FloatDistribution(float(np.exp(low)), float(np.exp(high)), log=True)
    for name, low, high in zip(NAMES, LOW, HIGH, strict=True)
}


class Surface:
    """Remaining weights and accuracy anywhere in the box."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.points = (np.log([[row[n] for n in NAMES] for row in rows]) - LOW) / (HIGH - LOW)
        self.values = np.array([[np.log(row["remaining"]), row["metric"]] for row in rows])

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """(n, 3) places in the unit cube -> (n, 2)."""
        found = np.empty((len(points), 2))
        for start in range(0, len(points), 1024):
            part = points[start : start + 1024]
            far = np.linalg.norm(part[:, None] - self.points[None], axis=-1)
            near = np.argsort(far, axis=1)[:, :NEAREST]
            far = np.take_along_axis(far, near, 1)
            weight = (1 - (far / (far[:, -1:] * 1.0001)) ** 3) ** 3
            gaps = self.points[near] - part[:, None]
            one, other = np.triu_indices(3)
            squares = gaps[..., one] * gaps[..., other]
            terms = np.concatenate([np.ones((*near.shape, 1)), gaps, squares], -1)
            weighted = terms * weight[..., None]
            ridge = 1e-3 * np.diag([0.0, *[1.0] * 9])
            left = np.einsum("nki,nkj->nij", weighted, terms) + ridge
            right = np.einsum("nki,nkj->nij", weighted, self.values[near])
            found[start : start + 1024] = np.linalg.solve(left, right)[:, 0]
        found[:, 0] = np.exp(np.minimum(found[:, 0], 0.0))
        return found

    def fewest(self, target: float) -> float:
        """The fewest remaining weights that meet the target: a fine cover, then finer ones around
        the best of it."""
        random = np.random.default_rng(0)
        points = qmc.Sobol(3, rng=random).random(2**14)
        for scale in (0.05, 0.02, 0.007, 0.002, 0.0007, 0.0):
            values = self(points)
            sizes = np.where(values[:, 1] >= target, values[:, 0], np.inf)
            best = points[np.argsort(sizes)[:20]]
            near = best[:, None] + scale * random.standard_normal((20, 200, 3))
            points = np.concatenate([best, np.clip(near, 0, 1).reshape(-1, 3)])
        return float(sizes.min())


def needed(study: optuna.Study, surface: Surface, target: float, goal: float) -> tuple[int, float]:
    """Trials until one meets the target and the goal; and the fewest weights that met the target
    among the first few."""
    fewest = few = 1.0
    for number in range(1, MOST + 1):
        trial = study.ask(dict(SPACE))
        place = (np.log([trial.params[n] for n in NAMES]) - LOW) / (HIGH - LOW)
        remaining, metric = map(float, surface(place[None])[0])
        if metric >= target:
            fewest = min(fewest, remaining)
        if number <= FEW:
            few = fewest
        if fewest <= goal:
            return number, few
        trial.set_constraint(CONSTRAINT, target - metric)
        study.tell(trial, [remaining, metric] if len(study.directions) == 2 else remaining)
    return MOST, few


def study(sampler: optuna.samplers.BaseSampler, objectives: int = 1) -> optuna.Study:
    """Fewest weights; or also the highest accuracy."""
    both = (StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE)
    return optuna.create_study(sampler=sampler, directions=both[:objectives])


SEARCHES: dict[str, Callable[[int], optuna.Study]] = {
    "ours": lambda seed: study(TargetSampler(seed, SPACE, NAMES[0])),
    "random": lambda seed: study(RandomSampler(seed=seed)),
    "TPE, constrained": lambda seed: study(TPESampler(seed=seed)),
    "TPE, two objectives": lambda seed: study(TPESampler(seed=seed), 2),
    "NSGA-II, constrained": lambda seed: study(NSGAIISampler(seed=seed)),
    "NSGA-II, two objectives": lambda seed: study(NSGAIISampler(seed=seed), 2),
}
Problem = tuple[Surface, float, float]  # target, goal


def problems() -> dict[str, Problem]:
    """Both fusions, each with both targets."""
    found = {}
    recorded = pq.read_table(Path(__file__).with_name("surface.parquet")).to_pylist()
    for fusion in ("last", "bermo"):
        own = [r for r in recorded if r["fusion"] == fusion]
        surface = Surface([r for r in own if r["method"] == "l0"])
        dense = next(r["metric"] for r in own if r["method"] == "dense")
        for share in SHARES:
            fewest = surface.fewest(share * dense)
            found[f"{fusion} {share}x: {fewest:.1%}"] = (surface, share * dense, CLOSE * fewest)
    return found


def repeat(job: tuple[str, Problem, int]) -> tuple[int, float]:
    """One repetition, in a process of its own: trials, and weights after few relative to the
    fewest."""
    name, (surface, target, goal), seed = job
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with threadpool_limits(1):  # of matrices this small, threads make nothing faster
        trials, few = needed(SEARCHES[name](seed), surface, target, goal)
    return trials, few / (goal / CLOSE)


def main() -> None:
    """Runs every search on every problem."""
    given = problems()
    runs = [(problem, seed) for problem in given.values() for seed in range(REPETITIONS)]
    jobs = [(name, *run) for name in SEARCHES for run in runs]
    with get_context("spawn").Pool(2) as pool:
        found = np.array(pool.map(repeat, jobs, chunksize=1)).reshape(len(SEARCHES), -1, 2)
    counts, few = found[..., 0], np.exp(np.log(found[..., 1]).mean(axis=1))
    means = dict(zip(SEARCHES, counts.mean(axis=1), strict=True))
    best = min(mean for name, mean in means.items() if name != "ours")
    rows = [
        [name, f"{own.mean():.1f}", f"{np.median(own):.0f}", f"{own.min():.0f}–{own.max():.0f}",
         f"{int((own == MOST).sum())} of {len(own)}", f"{own.mean() / best:.2f}", f"{left:.2f}"]
        for name, own, left in zip(SEARCHES, counts, few, strict=True)
    ]  # fmt: skip
    print(f"fewest weights: {', '.join(given)}")
    columns = ["search", "trials, mean", "median", "range", "not there", "ratio", f"after {FEW}"]
    ratios = {"trials_ratio": float(means["ours"] / best)}
    show("Trials to 1 % of the fewest weights", columns, rows, ratios)


if __name__ == "__main__":
    main()

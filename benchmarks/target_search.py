"""How many trials a search needs for the fewest weights that meet a target, beside its rivals.

Searches run on a surface made of recorded trials (``_surface.py``), one trial after another: on the
surface as it is, and once more with the noise of a seed on every trial's metric and size. Targets
are shares of each fusion's dense baseline: 0.95x and 0.98x, which our sampler's settings were tuned
on, and 0.90x, 0.93x and 0.965x, held out.

Without noise a search is there when a trial of it meets the target with at most 1 % more remaining
weights than the fewest anywhere on the surface; what is not there after 60 trials counts as 60,
which favours whatever is slow. ``after 20`` is what the best of the first 20 trials leaves,
relative to those fewest (geometric mean): few people run more.

With noise a search chooses, of what it observed, the fewest weights whose metric meets the target.
What counts is the chosen trial without the noise: its weights relative to the fewest, whether it
truly meets the target (``met``), and by how much it is short of it on average (in points of 0.01, 0
if met). Trials chosen for their luck do not meet it, and may have less than the fewest weights that
would. With nothing to choose, all weights stay and the target counts as missed.

Rivals are Optuna's, with their defaults: random search; TPE, NSGA-II and GPSampler (``GP``) with
remaining weights as the objective and the target as a constraint, or with remaining weights and the
metric as two objectives and no constraint; GPSampler also with 4 start-up trials instead of 10. All
have the same seeds and the same noise. GPSampler with two objectives takes twenty times as long as
ours: with 4 start-up trials it has one run where others have two, with 10 one where others have
four, and so none by default.

``ours / it`` compares the runs that both have, with a 90 % interval (bootstrap over runs). Ratios
of the last line are ours to the rival's that is best in it, whose name is beside it as
``…_rival``; above 1 the rival wins. With ``_held_out`` they are over the held-out targets, else
over the others:

- ``trials_ratio``: mean trials until there;
- ``weights_after_20_ratio``: geometric mean of what the best of the first 20 trials leaves;
- ``weights_after_20_ratio_noise``, ``weights_after_40_ratio_noise``: the same with noise, of the
  true weights of the chosen trial; ``met_after_20_noise``, ``met_after_40_noise``: the share of our
  runs whose chosen trial truly meets the target, and ``…_rival`` that of the rival named there.

    python benchmarks/target_search.py                   # under five minutes on two cores
    python benchmarks/target_search.py --repetitions 8   # those runs and more, a quarter of an hour
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import optuna
import tyro
from _measure import print_ratios, print_table
from _surface import (
    LOG_REMAINING_NOISE,
    METRIC_NOISE,
    NAMES,
    SPACE,
    Problem,
    load_problems,
    to_unit_cube,
)
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import StudyDirection

from bermo_ray.search.sampler import CONSTRAINT, TargetSampler

SHARES = {"": (0.95, 0.98), "_held_out": (0.90, 0.93, 0.965)}  # by what ratios' names end in
CLOSE = 1.01  # times the fewest weights: there
MOST, MOST_NOISY, FEW = 60, 40, 20  # trials
OURS = "ours"


@dataclass(frozen=True)
class Search:
    """A sampler by seed, what it is told, and in how many runs."""

    sampler: Callable[[int], BaseSampler]
    objectives: int = 1  # remaining weights under the constraint; 2: and the metric, without it
    every: int = 1  # one run where others have so many

    def new_study(self, seed: int) -> optuna.Study:
        """Fewest weights; or also the highest accuracy."""
        both = (StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE)
        return optuna.create_study(sampler=self.sampler(seed), directions=both[: self.objectives])


def gp(seed: int) -> GPSampler:
    """With its own ten start-up trials."""
    return GPSampler(seed=seed)


def gp_after_4(seed: int) -> GPSampler:
    """With four start-up trials; ours has three."""
    return GPSampler(seed=seed, n_startup_trials=4)


SEARCHES = {
    OURS: Search(lambda seed: TargetSampler(seed, SPACE, NAMES[0])),
    "random": Search(lambda seed: RandomSampler(seed=seed)),
    "TPE, constrained": Search(lambda seed: TPESampler(seed=seed)),
    "TPE, two objectives": Search(lambda seed: TPESampler(seed=seed), objectives=2),
    "NSGA-II, constrained": Search(lambda seed: NSGAIISampler(seed=seed)),
    "NSGA-II, two objectives": Search(lambda seed: NSGAIISampler(seed=seed), objectives=2),
    "GP, constrained": Search(gp),
    "GP, constrained, 4 start-up": Search(gp_after_4),
    "GP, two objectives": Search(gp, objectives=2, every=4),
    "GP, two objectives, 4 start-up": Search(gp_after_4, objectives=2, every=2),
}


class Run(NamedTuple):
    """One search on one problem."""

    search: str
    problem: Problem
    seed: int
    noisy: bool


class Choice(NamedTuple):
    """What a search would choose of its trials so far, as it truly is."""

    weights: float  # remaining, over the fewest
    shortfall: float  # target − metric; infinite: there is nothing to choose


class Outcome(NamedTuple):
    """Of a run."""

    trials: int  # until there, or all
    there: bool
    after_few: Choice
    at_end: Choice


def execute(run: Run) -> Outcome:
    """One run, in a process of the pool."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problem, search = run.problem, SEARCHES[run.search]
    study = search.new_study(run.seed)
    random = np.random.default_rng([run.seed, 1])  # not the sampler's own numbers
    truth: list[np.ndarray] = []  # of each trial: remaining weights, metric
    observed: list[np.ndarray] = []
    there = False
    while not there and len(truth) < (MOST_NOISY if run.noisy else MOST):
        trial = study.ask(dict(SPACE))
        truth.append(problem.surface(to_unit_cube(trial.params)[None])[0])
        observed.append(add_noise(truth[-1], random) if run.noisy else truth[-1])
        remaining, metric = map(float, observed[-1])
        if search.objectives == 1:
            trial.set_constraint(CONSTRAINT, problem.target - metric)
        study.tell(trial, [remaining, metric][: search.objectives])
        close = metric >= problem.target and remaining <= CLOSE * problem.fewest
        there = close and not run.noisy
    after_few = choose(truth[:FEW], observed[:FEW], problem)
    return Outcome(len(truth), there, after_few, choose(truth, observed, problem))


def add_noise(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Remaining weights and metric as one seed would have them."""
    log_remaining, metric = random.normal(0.0, [LOG_REMAINING_NOISE, METRIC_NOISE])
    return np.array([min(values[0] * np.exp(log_remaining), 1.0), values[1] + metric])


def choose(truth: list[np.ndarray], observed: list[np.ndarray], problem: Problem) -> Choice:
    """The fewest remaining weights that meet the target, by what was observed."""
    met = [i for i, (_, metric) in enumerate(observed) if metric >= problem.target]
    if not met:
        return Choice(1 / problem.fewest, np.inf)
    remaining, metric = truth[min(met, key=lambda i: float(observed[i][0]))]
    return Choice(float(remaining) / problem.fewest, problem.target - float(metric))


def mean(values: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    return np.asarray(values.mean(axis=-1))


def geometric_mean(values: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    return np.asarray(np.exp(mean(np.log(values))))


class Ratio(NamedTuple):
    """Ours to a rival's, and its interval."""

    value: float
    low: float
    high: float


class Comparison:
    """One number of every run of every search, averaged, and ours to the rivals'.

    Args:
        values: Of each search (runs,): the same runs in the same order, in some fewer of them.
        average: Of the last axis.
    """

    def __init__(
        self, values: dict[str, list[float]], average: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        self._average = average
        arrays = {name: np.array(v, dtype=float) for name, v in values.items()}
        self.means = {name: float(average(v)) for name, v in arrays.items()}
        self.ratios = {n: self._ratio(arrays[OURS], v) for n, v in arrays.items() if n != OURS}
        self.best_rival = max(self.ratios, key=lambda name: self.ratios[name].value)

    def _ratio(self, ours: np.ndarray, rival: np.ndarray) -> Ratio:
        ours = ours[: len(rival)]
        picks = np.random.default_rng(0).integers(0, len(rival), (4000, len(rival)))
        resampled = self._average(ours[picks]) / self._average(rival[picks])
        low, high = np.quantile(resampled, [0.05, 0.95])
        return Ratio(float(self._average(ours) / self._average(rival)), float(low), float(high))

    def cells(self, name: str) -> list[str]:
        """Of a search: the mean, and ours to it."""
        if name == OURS:
            return [f"{self.means[name]:.2f}", ""]
        ratio = self.ratios[name]
        return [f"{self.means[name]:.2f}", f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"]

    def summary(self, key: str) -> dict[str, float | str]:
        """For the last line."""
        return {key: self.ratios[self.best_rival].value, f"{key}_rival": self.best_rival}


Outcomes = dict[str, list[Outcome]]  # of every search


def report_exact(title: str, ending: str, outcomes: Outcomes) -> dict[str, float | str]:
    """Prints the table without noise; what of it goes to the last line."""
    trials = Comparison({n: [o.trials for o in ended] for n, ended in outcomes.items()}, mean)
    weights = Comparison(
        {n: [o.after_few.weights for o in ended] for n, ended in outcomes.items()}, geometric_mean
    )
    rows = []
    for name, ended in outcomes.items():
        counts = [o.trials for o in ended]
        average, ratio = trials.cells(name)
        late = f"{sum(not o.there for o in ended)} of {len(ended)}"
        spread = [f"{np.median(counts):.0f}", f"{min(counts)}–{max(counts)}", late]
        rows.append([name, average, *spread, ratio, *weights.cells(name)])
    columns = ["search", "mean", "median", "range", "not there", "ours / it"]
    columns += [f"after {FEW}", "ours / it"]
    print_table(f"Trials to 1 % of the fewest weights, {title}", columns, rows)
    summary = trials.summary(f"trials_ratio{ending}")
    return summary | weights.summary(f"weights_after_{FEW}_ratio{ending}")


def report_noisy(title: str, ending: str, outcomes: Outcomes) -> dict[str, float | str]:
    """Prints the table with noise; what of it goes to the last line."""
    columns, rows = ["search", "runs"], {n: [n, str(len(ended))] for n, ended in outcomes.items()}
    summary: dict[str, float | str] = {}
    for number in (FEW, MOST_NOISY):
        choices = {
            name: [o.after_few if number == FEW else o.at_end for o in ended]
            for name, ended in outcomes.items()
        }
        weights = Comparison(
            {n: [c.weights for c in cs] for n, cs in choices.items()}, geometric_mean
        )
        met = {n: float(np.mean([c.shortfall <= 0 for c in cs])) for n, cs in choices.items()}
        columns += [f"after {number}", "ours / it", "met", "short"]
        for name, chosen in choices.items():
            short = [max(c.shortfall, 0.0) for c in chosen if np.isfinite(c.shortfall)]
            points = f"{100 * np.mean(short):.2f}" if short else ""
            rows[name] += [*weights.cells(name), f"{met[name]:.0%}", points]
        summary |= weights.summary(f"weights_after_{number}_ratio_noise{ending}")
        summary[f"met_after_{number}_noise{ending}"] = met[OURS]
        summary[f"met_after_{number}_noise{ending}_rival"] = met[weights.best_rival]
    print_table(f"True weights of the chosen trial, {title}", columns, list(rows.values()))
    return summary


def main(repetitions: int = 2) -> None:
    """Runs every search on every problem.

    Args:
        repetitions: Runs on each problem.
    """
    problems = load_problems([share for shares in SHARES.values() for share in shares])
    for problem in problems:
        print(f"{problem.fusion} {problem.share}x: {problem.fewest:.1%} at the fewest")
    runs = [
        Run(name, problem, 1000 * index + repetition, noisy)
        for noisy in (False, True)
        for name, search in SEARCHES.items()
        for repetition in range(repetitions // search.every)
        for index, problem in enumerate(problems)
    ]
    runs.sort(key=lambda run: -SEARCHES[run.search].every)  # the slow ones first
    os.environ["OMP_NUM_THREADS"] = "1"  # of matrices this small, threads make nothing faster
    with get_context("spawn").Pool(2) as pool:
        outcomes = dict(zip(runs, pool.map(execute, runs, chunksize=1), strict=True))
    summary: dict[str, float | str] = {}
    for noisy, report in ((False, report_exact), (True, report_noisy)):
        for ending, shares in SHARES.items():
            title = "held-out targets" if ending else "targets tuned on"
            of_searches: Outcomes = {name: [] for name in SEARCHES}
            for run, outcome in outcomes.items():
                if run.noisy == noisy and run.problem.share in shares:
                    of_searches[run.search].append(outcome)
            of_searches = {name: ended for name, ended in of_searches.items() if ended}
            summary |= report(title + (", with noise" if noisy else ""), ending, of_searches)
    print_ratios(summary)


if __name__ == "__main__":
    tyro.cli(main)

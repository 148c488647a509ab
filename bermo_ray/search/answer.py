"""The answer of a search for a target: which recipe, and how sure it is that it meets it."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from scipy.special import ndtr
from scipy.stats import t

from bermo_ray.search.gaussian_process import GaussianProcess, on_one_thread
from bermo_ray.search.sampler import SIZE_UNKNOWN, shortfall, size_scale, to_unit_cube


@dataclass(frozen=True)
class Choice:
    """A recipe that a search chose, and what the search believes of its margin: by how much its
    mean over seeds is above the target, on the rows that chose it.

    Attributes:
        params: The recipe's numbers, as Optuna has them.
        margin: What is expected of its margin.
        deviation: How far off that may be.
        noise: Standard deviation of a single trial's metric around the mean of its recipe.
    """

    params: dict[str, float]
    margin: float
    deviation: float
    noise: float


@on_one_thread
def choose_recipe(study: optuna.Study, confidence: float = 0.8) -> Choice | None:
    """Of the recipes that a search tried, the one expected to have the fewest remaining weights of
    those that meet the target with that chance; if there is none, the likeliest to meet it.

    A trial that met the target may have been lucky, so not what single trials reached decides but a
    model of them all. None where no trial completed.
    """
    trials = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]
    is_sized = np.array([SIZE_UNKNOWN not in t.user_attrs for t in trials], dtype=bool)
    if not is_sized.any():
        return None
    spans = cast(dict[str, FloatDistribution], trials[0].distributions)
    points = to_unit_cube(trials, list(spans), list(spans.values()))
    misses = GaussianProcess(points, np.array([shortfall(t) for t in trials]))
    sizes = GaussianProcess(
        points[is_sized], size_scale([float(t.values[0]) for t in trials if t.values])[is_sized]
    )
    miss, deviation = misses.predict(points)
    chance = np.where(is_sized, ndtr(-miss / deviation), -1.0)
    likely = np.flatnonzero(chance >= confidence)
    if len(likely):
        best = int(likely[np.argmin(sizes.predict(points[likely])[0])])
    else:
        best = int(np.argmax(chance))
    return Choice(trials[best].params, -float(miss[best]), float(deviation[best]), misses.noise)


@dataclass(frozen=True)
class Sureness:
    """The chance that a recipe's mean over seeds meets a target, from two sources that know
    nothing of each other: what the search believed when it chose the recipe (on the selection half
    of dev, by a seed of its own), and what the reported seeds reached (on the other half).

    The first is a normal prior for the margin, moved by ``offset``: how much more the dense
    baseline's margin is on the other half. The second is a mean of n seeds, whose variance is
    estimated from the seeds themselves and from the search's noise, which counts as
    ``noise_degrees`` degrees of freedom: few, for it is of all recipes together, and noise grows as
    the metric falls. The margin then has a Student distribution. What the search believed counts at
    most as ``most_seeds_worth`` seeds do: it saw no other seed, and where one of those reported
    failed, its belief rests on too few trials to know.
    """

    noise_degrees: int = 1
    most_seeds_worth: int = 6

    def chance(
        self, choice: Choice, margins: Sequence[float], offsets: Sequence[float] = ()
    ) -> float:
        """The chance that the margin is at least 0.

        Args:
            choice: What the search believed.
            margins: By how much each reported seed is above the target; at least one.
            offsets: Of each seed of the dense baseline, its margin on the rows that are reported
                less its margin on those that chose.
        """
        n = len(margins)
        spread = statistics.variance(margins) if n > 1 else 0.0
        degrees = self.noise_degrees + n - 1
        pooled = (self.noise_degrees * choice.noise**2 + (n - 1) * spread) / degrees
        prior = choice.margin + (statistics.fmean(offsets) if offsets else 0.0)
        doubt = max(choice.deviation**2, pooled / self.most_seeds_worth)
        if len(offsets) > 1:
            doubt += statistics.variance(offsets) * (1 + 1 / len(offsets))
        precision = 1 / max(doubt, 1e-12), n / max(pooled, 1e-12)
        mean = (precision[0] * prior + precision[1] * statistics.fmean(margins)) / sum(precision)
        return float(t.cdf(mean * math.sqrt(sum(precision)), degrees))

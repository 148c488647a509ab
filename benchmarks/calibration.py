"""Whether the numbers of a report mean what they say: simulated studies with a known truth, through
the real plans and the real report functions.

Trials are drawn from the surfaces of recorded trials (``_surface.py``) with the noise that repeats
of real trials showed (``Noise``): a seed's luck, which both halves of dev share and which grows as
the metric falls; the luck of a half's rows, for each trial and for all trials of a study together;
and a seed's luck in size.

- Two identical arms, whose true ratio of remaining weights is 1, each with its own search per seed
  (`FrontierSearch`, then `compare_arms` at its default levels): how often is an interval printed,
  what is the median ratio, how often does the 95 % interval hold 1?
- An arm whose log remaining weights are 1.3 times the other's: its intervals must hold the mean log
  ratio over all simulated studies.
- A target of 0.93 and 0.97 of the dense baseline (`TargetSearch`): is what is said to be p % sure
  right in p % of the studies (five bins of equal count), and how far is the reported metric of an
  answer from the recipe's true mean? And once more where half of what a recipe's mean lost is due
  to seeds that fail altogether, which three seeds often do not show.

Last line: ``match_ratio_identical`` (median ratio of identical arms), ``coverage_95_seeds3``,
``coverage_95_seeds5`` (both kinds of arms), ``sure_error`` (the largest difference over the bins
between what was said and how often it was right), ``reported_bias_points``.
"""

import math
from collections.abc import Sequence
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import optuna
import pyarrow as pa
from _measure import print_table, show
from _surface import Surface, load_surfaces, to_unit_cube
from threadpoolctl import threadpool_limits

from bermo_ray.record import SCHEMA, Report, Status, pick_reported_metric
from bermo_ray.results import compare_arms
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.plan import Plan
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.search.target import Target
from bermo_ray.search.target_search import TargetSearch
from bermo_ray.trial import L0, Penalized, Trial

RANGES = {  # of tools/record_surface.py
    "pruning.multiplier": LogUniform(1.0, 60.0),
    "optimizer.learning_rate": LogUniform(1.5e-4, 3e-3),
    "optimizer.score_learning_rate": LogUniform(1e-2, 2e-1),
}
REPETITIONS, TARGET_REPETITIONS = 200, 200  # of each kind of study
FRONTIER_TRIALS, TARGET_TRIALS = 8, 16
TARGETS = (0.93, 0.97)
CONSTANT = 0.5  # two classes
UNEQUAL = 1.3  # times the log remaining weights of the other arm
BINS = 5
COLLAPSE = 0.5  # in the studies with failing seeds


class Noise(NamedTuple):
    """Standard deviations. Five seeds of each of eight recipes on `tense` (dense, and three λ, of
    both fusions) had 0.007 to 0.017 in the metric near the dense baseline and 0.03 at five points
    below it; 0.06 to 0.2 in log remaining weights at 75 % to 30 %; and differences between the
    halves of dev of 0.014. Of the two sparsest recipes one seed in five ended as a constant
    answer."""

    metric: float = 0.012  # of a seed, at the dense baseline's metric
    metric_slope: float = 0.25  # and how it grows for each unit below that
    rows: float = 0.010  # of a half's rows, for each trial
    half: float = 0.010  # of a half's rows, for all trials alike
    log_remaining: float = 0.2  # of a seed, where nothing remains; 0 where all does


NOISE = Noise()
SURFACES = load_surfaces()


class World:
    """Outcomes of trials, with the truth beside them.

    Args:
        arms: The surface and the dense metric that each arm's trials are drawn from, and what their
            log remaining weights are multiplied by.
        seed: Of all luck.
        collapse: Share of what a recipe's mean lost that is due to seeds that fail altogether.
    """

    def __init__(
        self,
        arms: dict[str, tuple[Surface, float, float]],
        seed: Sequence[int],
        collapse: float = 0.0,
    ) -> None:
        self.arms, self.random, self.collapse = arms, np.random.default_rng(seed), collapse
        self.half_luck = self.random.normal(0, NOISE.half, 2)  # of choosing and verifying rows

    def truth(self, trial: Trial) -> tuple[float, float]:
        """Remaining weights, and the mean metric over seeds and rows."""
        surface, dense, power = self.arms[trial.fusion.name]
        if not isinstance(trial.pruning, Penalized):
            return 1.0, dense
        point = to_unit_cube(
            {
                "multiplier": trial.pruning.multiplier,
                "learning_rate": trial.optimizer.learning_rate,
                "score_learning_rate": trial.optimizer.score_learning_rate,
            }
        )
        remaining, metric = surface(point[None])[0]
        return float(remaining) ** power, float(max(metric, CONSTANT))

    def run(self, trial: Trial) -> Report:
        """One trial."""
        (remaining, metric), dense = self.truth(trial), self.arms[trial.fusion.name][1]
        power, draw = self.arms[trial.fusion.name][2], self.random.normal
        metric = self._draw_collapse(metric, dense)
        seed_luck = draw(0, NOISE.metric + NOISE.metric_slope * max(0.0, dense - metric))
        if metric == CONSTANT:
            seed_luck = 0.0
        halves = metric + seed_luck + self.half_luck + draw(0, NOISE.rows, 2)
        log_size = draw(0, power * NOISE.log_remaining * (1 - remaining)) if trial.pruning else 0.0
        status = Status.COMPLETED if halves.mean() > CONSTANT else Status.DIVERGED
        return Report(
            status=status,
            metric=float(halves.mean()),
            metric_selection=float(halves[0]),
            metric_verification=float(halves[1]),
            constant_metric=CONSTANT,
            remaining=min(1.0, remaining * math.exp(log_size)),
            density=remaining,
        )

    def _draw_collapse(self, mean: float, dense: float) -> float:
        """A constant answer's metric, or what the other seeds then have, so that the mean stays."""
        chance = self.collapse * max(0.0, dense - mean) / (dense - CONSTANT)
        if self.random.random() < chance:
            return CONSTANT
        return (mean - chance * CONSTANT) / (1 - chance)


def run_plan(plan: Plan, world: World) -> pa.Table:
    """The results table of a plan that is run in a world."""
    rows = []
    while (trial := plan.ask()) is not None:
        report = world.run(trial)
        plan.tell(trial, [report])
        rows.append(to_row(trial, report))
    assert plan.finished
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def to_row(trial: Trial, report: Report) -> dict[str, Any]:
    """A row as the store would give it."""
    row: dict[str, Any] = {
        "task": trial.data.task, "backbone": trial.backbone, "fusion": trial.fusion.name,
        "method": trial.pruning.method if trial.pruning else "dense", "seed": trial.seed,
        "trial_id": trial.id, "recipe": trial.recipe,
    }  # fmt: skip
    row |= report.to_dict()
    return row | {"metric_reported": pick_reported_metric(row)}


def make_space(*arms: str) -> Space:
    """The box that the surfaces were recorded in."""
    base = Trial(pruning=L0())
    named = {name: base.replace(fusion=name) for name in arms}
    return Space(named, RANGES, "pruning.multiplier")


class Comparison(NamedTuple):
    """One simulated comparison of two arms at one level; NaN where no ratio was printed."""

    log_ratio: float
    low: float
    high: float


def compare(job: tuple[str, float, int, int]) -> list[Comparison]:
    """Two arms of one fusion's surface, the second with its log remaining weights times a power."""
    fusion, power, n_seeds, repetition = job
    surface, dense = SURFACES[fusion]
    arms = {"last": (surface, dense, 1.0), "bermo": (surface, dense, power)}
    world = World(arms, (repetition, n_seeds, round(10 * power), list(SURFACES).index(fusion)))
    seeds = tuple(int(s) for s in world.random.choice(10**6, n_seeds, replace=False))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    table = run_plan(FrontierSearch(make_space(*arms), FRONTIER_TRIALS, seeds), world)
    rows = compare_arms(table, arms=list(arms)).to_pylist()
    return [Comparison(*(_log(row[name]) for name in ("ratio", "low", "high"))) for row in rows]


def _log(ratio: float | None) -> float:
    return math.nan if ratio is None else math.log(ratio)


class Answer(NamedTuple):
    """One simulated search for a target."""

    sureness: float
    is_right: bool  # the recipe's true mean meets what was asked for
    bias: float  # of the reported metric
    is_covered: bool  # by the interval of the reported metric


def answer(job: tuple[str, float, int, float]) -> Answer:
    """One search for a share of the dense baseline, reported by three seeds."""
    fusion, share, repetition, collapse = job
    arms = {fusion: (*SURFACES[fusion], 1.0)}
    world = World(arms, (repetition, round(1000 * share), 7), collapse)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    plan = TargetSearch(
        make_space(fusion), Target(share, relative=True), TARGET_TRIALS, (0, 1, 2), 3 + repetition
    )
    with threadpool_limits(1):
        run_plan(plan, world)
    (row,) = plan.answers()
    recipe = plan.arms[0].recipe
    assert recipe is not None
    true_mean = world.truth(recipe)[1] + world.half_luck[1]
    bias = row["metric"] - true_mean
    is_covered = abs(bias) <= row["metric_interval"]
    return Answer(row["sureness"], true_mean >= row["target_metric"], bias, is_covered)


def coverage(studies: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """How many of the printed intervals hold the truth, and how many studies print one: of
    (study, level, log ratio and both ends)."""
    printed = np.isfinite(studies[..., 0])
    holds = (studies[..., 1] <= truth) & (truth <= studies[..., 2])
    return float(holds[printed].mean()), float(printed.mean())


def measure_comparisons(pool: Any) -> tuple[list[list[str]], dict[str, float]]:
    """Rows of the table, and ratios."""
    rows, ratios, held = [], {}, {3: [], 5: []}  # type: ignore[var-annotated]
    for n_seeds in (3, 5):
        for power in (1.0, UNEQUAL):
            jobs = [(f, power, n_seeds, r) for r in range(REPETITIONS // 2) for f in SURFACES]
            studies = np.array(pool.map(compare, jobs, chunksize=4))
            is_first = np.array([fusion == jobs[0][0] for fusion, *_ in jobs])
            truth = np.zeros(studies.shape[:2])
            if power != 1.0:  # of each surface and level, the mean over all studies
                for part in (is_first, ~is_first):
                    truth[part] = np.nanmean(studies[part, :, 0], axis=0)
            covered, printed = coverage(studies, truth)
            held[n_seeds].append(covered)
            median = math.exp(float(np.nanmedian(studies[..., 0])))
            if power == 1.0:
                ratios[f"median_{n_seeds}"] = median
            name = f"two arms, {'identical' if power == 1.0 else 'unequal'}, {n_seeds} seeds"
            rows.append([name, f"{median:.3f}", f"{covered:.1%}", f"{printed:.0%}"])
    ratios = {
        "match_ratio_identical": math.sqrt(ratios["median_3"] * ratios["median_5"]),
        "coverage_95_seeds3": float(np.mean(held[3])),
        "coverage_95_seeds5": float(np.mean(held[5])),
    }
    return rows, ratios


def measure_answers(pool: Any) -> tuple[list[list[str]], dict[str, float]]:
    """Rows of the table, and ratios."""
    each = TARGET_REPETITIONS
    answers = simulate_answers(pool, each, collapse=0.0)
    rows, errors = describe_bins(answers)
    rows.append(["all answers", f"{answers[:, 1].mean():.0%} right"])
    rows.append(["interval of the reported metric", f"holds {answers[:, 3].mean():.1%}"])
    bias = 100 * float(answers[:, 2].mean())
    error = 100 * float(answers[:, 2].std()) / math.sqrt(len(answers))
    rows.append(["reported metric", f"{bias:+.3f} ± {error:.3f} points off"])
    stressed = simulate_answers(pool, each // 4, COLLAPSE)
    rows += [[f"with failing seeds: {name}", right] for name, right in describe_bins(stressed)[0]]
    return rows, {"sure_error": max(errors), "reported_bias_points": bias}


def simulate_answers(pool: Any, each: int, collapse: float) -> np.ndarray:
    """(search, fields of Answer), for all fusions and targets."""
    jobs = [(f, share, r, collapse) for r in range(each) for f in SURFACES for share in TARGETS]
    return np.array(pool.map(answer, jobs, chunksize=4))


def describe_bins(answers: np.ndarray) -> tuple[list[list[str]], list[float]]:
    """What was said and how often it was right, by bins of equal count; and the differences."""
    rows, errors = [], []
    for part in np.array_split(np.argsort(answers[:, 0], kind="stable"), BINS):
        said, right = answers[part, 0].mean(), answers[part, 1].mean()
        errors.append(float(abs(said - right)))
        rows.append([f"{len(part)} answers, {said:.0%} sure", f"{right:.0%} right"])
    return rows, errors


def main() -> None:
    """Simulates all studies."""
    with get_context("spawn").Pool(2) as pool:
        comparison_rows, ratios = measure_comparisons(pool)
        answer_rows, more = measure_answers(pool)
    columns = ["studies", "median ratio", "95 % holds", "printed"]
    print_table("Arms compared", columns, comparison_rows)
    show("Answers of target searches", ["", ""], answer_rows, ratios | more)


if __name__ == "__main__":
    main()

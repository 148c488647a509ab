"""What the paper on layer dropping claims, and what trials say of it."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.intervals import mean_half_width
from bermo_ray.results.inference_times import estimate_time_saved
from bermo_ray.results.layer_counts import FINE_TUNED, UNDROPPED, compare_at_half, with_dropping
from bermo_ray.results.published import published_values
from bermo_ray.results.verdicts import Claim, Estimate, Verdict, judge
from bermo_ray.search.layer_count_search import is_within

BEST = Claim(
    "of all strategies the top layers are best to drop",
    source="Layer dropping, Figure 2",
    quantity="without half of the layers, dropping the top ones beats the mean of others by",
)
WORST = Claim(
    "the bottom layers are worst to drop",
    source="Layer dropping, Figure 2",
    quantity="without half of the layers, dropping the top ones beats dropping the bottom ones by",
)
LOSS = Claim(
    "BERT without its top half is a little worse",
    source="Layer dropping, Table 3",
    quantity="without its top half a model loses",
    published=2.91,
)
TIME = Claim(
    "half of the layers take half of the time",
    source="Layer dropping, Table 3",
    quantity="of the time of inference half of the layers save",
    unit=" %",
    published=50.0,
    expects="same",
    no_effect=50.0,
    margin=5.0,
)
AGAIN = Claim(
    "dropping layers of a fine-tuned model is comparable",
    source="Layer dropping, Table 7",
    quantity="without its top half, a model that was fine-tuned before is better by",
    published=-0.16,  # mean of ten differences, with Table 2's 90.25 for SST-2
    expects="same",
    margin=1.0,
)


def judge_dropping(
    table: pa.Table, times: pa.Table, strategies: Sequence[str], where: str
) -> list[Verdict]:
    """The paper's claims on strategies, loss and time and, where models were fine-tuned before
    their layers went, on that.

    Args:
        table: Trials with half of the layers dropped, and undropped.
        times: :data:`bermo_ray.training.inference_time.INFERENCE_TIMES`.
        strategies: That are compared by the number of layers.
        where: Tasks and encoders, in words.
    """
    others = [strategy for strategy in strategies if strategy != "top"]
    sides = [
        (BEST, others, ["top"]),
        (WORST, ["bottom"], ["top"]),
        (LOSS, ["top"], [UNDROPPED[0]]),
    ]
    if any(FINE_TUNED in name for name in with_dropping(table)["dropping"].to_pylist()):
        sides.append((AGAIN, ["top"], [f"top{FINE_TUNED}"]))
    verdicts = [
        judge(claim, where, compare_at_half, table, first, second) for claim, first, second in sides
    ]
    return [*verdicts, judge(TIME, where, estimate_time_saved, times, 0.5)]


def _published_excesses() -> list[float]:
    """Of every count in Table 4, what it loses on the other half beyond its threshold."""
    losses = published_values(
        "layer_dropping", "T4", ("threshold", "backbone", "task"), quantity="loss"
    )
    return [loss - threshold for (threshold, *_), loss in losses.items()]


CARRIED = Claim(
    "counts found on one half of dev hold on the other",
    source="Layer dropping, Table 4",
    quantity="on the other half of dev, the counts lose beyond their thresholds",
    published=round(fmean(_published_excesses()), 2),
    expects="less",
)


def judge_counts(table: pa.Table, counts: pa.Table, where: str) -> Verdict:
    """Whether counts that were found on one half of dev are within their thresholds on the other.

    Args:
        table: The trials that they were found with.
        counts: From :func:`bermo_ray.results.layer_counts`.
        where: Tasks and encoders, in words.
    """
    return judge(CARRIED, where, estimate_excess, table, counts)


def estimate_excess(table: pa.Table, counts: pa.Table) -> Estimate:
    """Points lost on the verification half beyond the threshold: of each seed the mean over all
    counts, against the undropped model of that seed; the mean over seeds, with Student's interval.
    A count of no layers loses nothing on any half, so it is no evidence and left out.

    Raises:
        UserError: there is no count above 0, or no seed that has them all.
    """
    metrics, undropped = {}, {}
    for row in table.to_pylist():
        name, seed = (row["task"], row["backbone"]), row["seed"]
        if row["metric_verification"] is not None:
            metrics[*name, tuple(row["dropped_layers"]), seed] = row["metric_verification"]
            if row["strategy"] is None:
                undropped[*name, seed] = row["metric_verification"]
    chosen = [
        ((row["task"], row["backbone"]), tuple(row["dropped_layers"]), row["threshold"])
        for row in counts.to_pylist()
        if row["layers_dropped"]
    ]
    if not chosen:
        raise UserError("counts: no layer can be spared, so there is nothing to verify")
    by_seed = [
        fmean(
            100 * (undropped[*name, seed] - metrics[*name, layers, seed]) - threshold
            for name, layers, threshold in chosen
        )
        for seed in sorted(set(table["seed"].to_pylist()))
        if all((*name, layers, seed) in metrics for name, layers, _ in chosen)
    ]
    if not by_seed:
        raise UserError("seeds: none has a training of every count")
    values = np.array(by_seed)
    mean, half_width = float(values.mean()), float(mean_half_width(values))
    if len(values) == 1:
        return Estimate(mean, None, None, 1)
    return Estimate(mean, mean - half_width, mean + half_width, len(values))


def describe_carried(counts: pa.Table) -> str:
    """How many counts above 0 are within their thresholds on the other half, here and in Table
    4."""
    ours = [
        is_within(row["loss_verification"], row["threshold"])
        for row in counts.to_pylist()
        if row["layers_dropped"]
    ]
    paper = [is_within(excess, 0.0) for excess in _published_excesses()]
    return (
        f"{sum(ours)} of {len(ours)} counts above 0 are within their threshold on the other half "
        f"too; in the paper {sum(paper)} of {len(paper)}"
    )

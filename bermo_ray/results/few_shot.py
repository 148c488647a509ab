"""What depth-wise attention's paper says of few rows (Figures 2, 3 and 5), and who leads here."""

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.means import REPORTED, select
from bermo_ray.results.published import published
from bermo_ray.results.verdicts import Claim, Verdict, compare_by_seed, judge

FUSION_NAMES = {"extra_layers": "extra layers", "concat": "Concat", "dwatt": "DWAtt"}
# The fusion that is compared with, the one that is compared, and by how much it is said to lead.
Lead = tuple[str, str, Claim]


def early_leads(task: str) -> list[Lead]:
    """What is said of the fewest shots and epochs. On CoNLL-2003 it is 58 %, and not whether of
    points or of F1, so that there is no number to compare with."""
    figure, by = ("5", "") if task.startswith("wikiann/") else ("3", ", by 58 %")
    text = f"Concat beats extra layers at the fewest shots and epochs{by}"
    quantity = "Concat is better than extra layers by"
    return [("extra_layers", "concat", Claim(text, f"DWAtt, Figure {figure}", quantity))]


def late_leads(task: str) -> list[Lead]:
    """What is said of the most shots and epochs: of WikiAnn by Figure 5, of other tasks by Figure
    2, which is CoNLL-2003's."""
    figure = "F5" if task.startswith("wikiann/") else "F2"
    leads = []
    for row in published("dwatt", figure).to_pylist():
        second, first = row["fusion"], row["note"].split(";")[0].removeprefix("over ")
        name, other = FUSION_NAMES[second], FUSION_NAMES[first]
        claim = Claim(
            f"{name} beats {other} at the most shots and epochs",
            source=f"DWAtt, Figure {figure[1:]}",
            quantity=f"{name} is better than {other} by",
            published=row["value"],
        )
        leads.append((first, second, claim))
    return leads


def judge_leads(
    table: pa.Table, task: str, where: str, value: str = REPORTED
) -> tuple[Verdict, ...]:
    """Who leads at both ends of a grid of shots and epochs.

    Args:
        table: Trials of the task, with a column ``shots``.
        task: Says which figure it is held against.
        where: As of :func:`bermo_ray.results.verdicts.judge`.
        value: What is compared.
    """
    verdicts = []
    for pick, leads in ((pc.min, early_leads(task)), (pc.max, late_leads(task))):
        shots, epochs = (pick(table[name]).as_py() for name in ("shots", "epochs"))
        corner = select(table, shots=shots, epochs=epochs)
        for first, second, claim in leads:
            corner_name = f"{where}, {shots} shots, {epochs} epochs"
            arms = ("fusion", first, second)
            verdicts.append(judge(claim, corner_name, compare_by_seed, corner, *arms, value))
    return tuple(verdicts)

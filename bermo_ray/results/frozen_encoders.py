"""What depth-wise attention's paper says of frozen encoders: against fine-tuning (Figure 6), and
against larger ones (Figure 7).

Tables are of trials with :func:`with_encoders`. Where nothing else is said, a seed counts with its
mean over shots.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.few_shot import FUSION_NAMES
from bermo_ray.results.gain_shares import estimate_gain_share
from bermo_ray.results.means import REPORTED, select, values_by_seed, with_settings
from bermo_ray.results.verdicts import Claim, Verdict, compare_means, judge

SHARE_MARGIN = 0.2  # how far from one half is still "nearly half"
SIZE_MARGIN = 1.0  # points that a smaller encoder may lose and still match the larger


FROZEN, TUNED, SMALLER = ENCODERS = ("frozen", "fine-tuned", "smaller, frozen")


def with_encoders(table: pa.Table, backbone: str) -> pa.Table:
    """The trials with columns ``shots`` and ``encoder``: one of :data:`ENCODERS`, and ``setting``,
    which names both.

    Args:
        table: Trials of the larger encoder and of a smaller one, which is another or has fewer
            layers.
        backbone: The larger one.
    """
    table = with_settings(table, shots="data.shots", layer_drop="layer_drop")
    columns = (table[name].to_pylist() for name in ("backbone", "layer_drop", "mode"))
    encoders = [
        SMALLER if name != backbone or drop else TUNED if mode == "finetune" else FROZEN
        for name, drop, mode in zip(*columns, strict=True)
    ]
    settings = [
        f"{shots} shots, {encoder}"
        for shots, encoder in zip(table["shots"].to_pylist(), encoders, strict=True)
    ]
    table = table.drop_columns("layer_drop").append_column("encoder", pa.array(encoders))
    return table.append_column("setting", pa.array(settings))


def _find_values(table: pa.Table, fusion: str, encoder: str, value: str) -> Mapping[int, float]:
    arm = select(table, fusion=fusion, encoder=encoder)
    return values_by_seed(arm, value, over=("shots",))


def judge_tuning(table: pa.Table, fusion: str, where: str, value: str = REPORTED) -> Verdict:
    """Whether fine-tuning beats a fusion on the frozen encoder; the arguments of all are those of
    :func:`bermo_ray.results.verdicts.judge` and the column that is compared."""
    name = FUSION_NAMES.get(fusion, fusion)
    claim = Claim(
        f"fine-tuning beats the frozen encoder with {name}",
        source="DWAtt, Figure 6",
        quantity=f"with {name} fine-tuning is better than the frozen encoder by",
    )
    frozen, tuned = (_find_values(table, fusion, encoder, value) for encoder in (FROZEN, TUNED))
    return judge(claim, where, compare_means, frozen, tuned, scale=100)


def judge_share(table: pa.Table, where: str, value: str = REPORTED) -> Verdict:
    """How much of what fine-tuning gains over extra layers on the frozen encoder DWAtt gains
    without it, at the most shots."""
    most = pc.max(table["shots"]).as_py()
    rows = select(table, shots=most)
    claim = Claim(
        "of what fine-tuning gains over frozen extra layers, frozen DWAtt gives nearly half",
        source="DWAtt, Figure 6",
        quantity="the share of fine-tuning's gain that frozen DWAtt gives is",
        unit="",
        published=0.5,
        expects="same",
        no_effect=0.5,
        margin=SHARE_MARGIN,
    )
    arms = [
        _find_values(rows, fusion, encoder, value)
        for fusion, encoder in (
            ("extra_layers", FROZEN),
            ("dwatt", FROZEN),
            ("extra_layers", TUNED),
        )
    ]
    return judge(claim, f"{where}, {most} shots", estimate_gain_share, *arms)


def judge_size(table: pa.Table, fusion: str, where: str, value: str = REPORTED) -> Verdict:
    """Whether a fusion on the smaller encoder matches or beats extra layers on the larger, both
    frozen: it may lose :data:`SIZE_MARGIN`."""
    name = FUSION_NAMES.get(fusion, fusion)
    claim = Claim(
        f"{name} on the smaller encoder matches or beats extra layers on the larger "
        f"(here: loses less than {SIZE_MARGIN:g} point)",
        source="DWAtt, Figure 7",
        quantity=f"{name} on the smaller encoder is better than extra layers on the larger by",
        no_effect=-SIZE_MARGIN,
    )
    large = _find_values(table, "extra_layers", FROZEN, value)
    small = _find_values(table, fusion, SMALLER, value)
    return judge(claim, where, compare_means, large, small, scale=100)

"""On the Effect of Dropping Layers of Pre-trained Transformer Models: its tables, and what the text
says of Figures 2 and 3, which are lost."""

from typing import Any

from bermo_ray.results.published_tables import (
    Paper,
    Row,
    annotate,
    fact,
    read_block,
    select,
)

_BERT: Row = {"backbone": "bert-base-uncased"}
_ROBERTA: Row = {"backbone": "roberta-base"}
_XLNET: Row = {"backbone": "xlnet-base-cased"}
_ALBERT: Row = {"backbone": "albert-base"}  # which version is not said
_DISTILBERT: Row = {"backbone": "distilbert-base-uncased"}
_TRAINED: Row = {"fusion": "last", "method": "dense", "epochs": 3, "mode": "finetune"}
_TOP: Row = _TRAINED | {"strategy": "top"}
_FIVE = "SST-2:accuracy MNLI:accuracy QNLI:accuracy QQP:accuracy STS-B:spearman"
_CORRELATION = "which correlation is not said"


def _name_undropped(rows: list[Row]) -> list[Row]:
    for row in select(rows, layers_dropped=0):
        row["strategy"] = "none"
    return rows


def _table_1() -> list[Row]:
    rows = read_block(
        """
task  | train_rows dev_rows
SST-2 | 67349      872
MRPC  | 3668       408
MNLI  | 392702     9815
QNLI  | 104743     5463
QQP   | 363846     40430
RTE   | 2490       277
STS-B | 5749       1500
""",
        over="quantity",
        table="T1",
    )
    annotate(rows, "said to be binary; MNLI has three classes", task="mnli")
    return rows


def _table_2() -> list[Row]:
    tasks = ("SST-2", "MNLI", "QNLI", "QQP", "STS-B", "RTE", "MRPC")
    heads = [f"{task}:{'spearman' if task == 'STS-B' else 'accuracy'}/loss" for task in tasks]
    rows = read_block(
        f"""
layers_dropped | {" ".join(heads)}
backbone = BERT
0 | 92.43        84.04        91.12        91.07        88.79        67.87        87.99
2 | 92.20(0.23↓) 83.26(0.78↓) 89.84(1.28↓) 90.92(0.15↓) 88.70(0.09↓) 62.82(5.05↓) 86.27(1.72↓)
4 | 90.60(1.83↓) 82.51(1.53↓) 89.68(1.44↓) 90.63(0.44↓) 88.64(0.15↓) 67.87(0.00)  79.41(8.58↓)
6 | 90.25(2.18↓) 81.13(2.91↓) 87.63(3.49↓) 90.35(0.72↓) 88.45(0.34↓) 64.98(2.89↓) 80.15(7.84↓)
backbone = RoBERTa
0 | 92.20        86.44        91.73        90.48        89.87        68.95        88.48
2 | 93.46(1.26↑) 86.53(0.09↑) 91.23(0.50↓) 91.02(0.54↑) 90.21(0.34↑) 71.84(2.89↑) 89.71(1.23↑)
4 | 93.00(0.80↑) 86.20(0.24↓) 90.57(1.16↓) 91.12(0.64↑) 89.77(0.10↓) 70.40(1.45↑) 87.50(0.98↓)
6 | 91.97(0.23↓) 84.44(2.00↓) 90.00(1.73↓) 90.91(0.43↑) 88.92(0.95↓) 64.62(4.33↓) 85.78(2.70↓)
backbone = XLNet
0 | 93.92        85.97        90.35        90.55        88.01        65.70        88.48
2 | 93.35(0.57↓) 85.67(0.30↓) 89.35(1.00↓) 90.69(0.14↑) 87.59(0.42↓) 66.06(0.36↑) 86.52(1.96↓)
4 | 92.78(1.14↓) 85.46(0.51↓) 89.51(0.84↓) 90.75(0.20↑) 87.74(0.27↓) 67.87(2.17↑) 87.25(1.23↓)
6 | 92.20(1.72↓) 83.48(2.49↓) 88.03(2.32↓) 90.62(0.07↑) 87.45(0.56↓) 65.70(0.00)  82.84(5.64↓)
backbone = DistilBERT
0 | 90.37        81.78        88.98        90.40        87.14        60.29        85.05
1 | 90.37(0.00)  80.41(1.37↓) 88.50(0.48↓) 90.33(0.07↓) 86.21(0.93↓) 59.93(0.36↓) 84.80(0.25↓)
2 | 90.25(0.12↓) 79.41(2.37↓) 86.60(2.38↓) 90.19(0.21↓) 86.91(0.23↓) 62.82(2.53↑) 82.60(2.45↓)
3 | 87.50(2.87↓) 77.07(4.71↓) 85.78(3.20↓) 89.59(0.81↓) 85.19(1.95↓) 58.48(1.81↓) 77.45(7.60↓)
""",
        table="T2",
        **_TOP,
    )
    annotate(rows, _CORRELATION, quantity="spearman")
    insignificant = "not significant by McNemar's test at p = 0.05"
    annotate(rows, insignificant, task="rte", layers_dropped=2, quantity="loss", **_BERT)
    contradicted = "Table 7 has 92.25"
    annotate(rows, contradicted, task="sst2", layers_dropped=6, quantity="accuracy", **_BERT)
    return _name_undropped(rows)


def _table_3() -> list[Row]:
    rows = read_block(
        """
layers_dropped | loss  parameters speedup inference_time_saved
backbone = BERT
0              | 0.00  110M       1.00    -
2              | 1.33   94M       1.24    17%↓
4              | 2.00   80M       1.48    33%↓
6              | 2.91   66M       1.94    50%↓
backbone = RoBERTa
0              | 0.00  110M       1.00    -
2              | -0.42  94M       1.24    17%↓
4              | 0.01   80M       1.48    33%↓
6              | 0.89   66M       1.94    50%↓
backbone = XLNet
0              | 0.00  116M       1.00    -
2              | 0.54  101M       1.20    16%↓
4              | 0.23   86M       1.49    32%↓
6              | 1.81   71M       1.96    49%↓
""",
        over="quantity",
        table="T3",
        **_TOP,
    )
    annotate(rows, "mean over the seven tasks of Table 2", quantity="loss")
    annotate(rows, "of fine-tuning", quantity="speedup")
    annotate(rows, "QQP's dev set, batches of 32", quantity="inference_time_saved")
    for quantity in ("parameters", "speedup", "inference_time_saved"):
        annotate(rows, "printed once for BERT and RoBERTa", quantity=quantity, **_ROBERTA)
    annotate(rows, "BERT's; RoBERTa has 125M", quantity="parameters", layers_dropped=0, **_ROBERTA)
    for dropped, mean in ((2, "-0.84"), (4, "-0.06"), (6, "1.64")):
        disagrees = f"but Table 2's losses give {mean}"
        annotate(rows, disagrees, quantity="loss", layers_dropped=dropped, **_ROBERTA)
    return _name_undropped(rows)


def _table_4() -> list[Row]:
    tasks = ("SST-2", "MNLI", "QNLI", "QQP", "STS-B")
    rows = read_block(
        f"""
backbone | {" ".join(f"{task}:layers_dropped/loss" for task in tasks)}
threshold = 1
BERT     | 7(1.6)  3(1.04) 1(0.84) 6(0.75) 7(1.16)
RoBERTa  | 4(0.00) 4(0.20) 5(0.87) 8(0.77) 5(1.22)
XLNet    | 8(1.38) 5(1.22) 4(0.51) 9(0.60) 7(0.05)
threshold = 2
BERT     | 7(1.60) 5(1.26) 3(1.68) 8(1.60) 7(1.16)
RoBERTa  | 4(0.00) 5(1.26) 6(1.42) 9(1.51) 6(2.31)
XLNet    | 8(1.38) 5(1.22) 6(1.46) 9(0.60) 8(1.22)
threshold = 3
BERT     | 8(2.06) 6(2.42) 5(2.60) 9(2.27)  8(2.61)
RoBERTa  | 5(0.69) 6(2.73) 7(2.37) 10(3.21) 7(3.00)
XLNet    | 8(1.38) 6(1.55) 7(1.61) 9(0.60)  9(2.46)
""",
        table="T4",
        **_TOP,
    )
    for count, loss in zip(rows[::2], rows[1::2], strict=True):
        count["layers_dropped"] = loss["layers_dropped"] = int(count["value"])
    annotate(rows, "found on one half of dev", quantity="layers_dropped")
    annotate(rows, "on the other half of dev", quantity="loss")
    early: Row = {"task": "sst2", "threshold": 1.0, "quantity": "layers_dropped"}
    other = "but Table 2 loses 1.83 with 4 dropped and 2.18 with 6"
    annotate(rows, other, **_BERT, **early)
    return rows


def _table_5() -> list[Row]:
    rows = read_block(
        f"""
layers_dropped | {_FIVE}
0              | 89.79 83.39 90.24 90.29 89.61
2              | 91.40 83.82 89.55 89.64 89.54
4              | 91.63 82.73 90.24 88.51 87.00
6              | 90.14 81.64 89.11 90.08 88.21
""",
        table="T5",
        **_ALBERT,
        **_TOP,
    )
    annotate(rows, _CORRELATION, quantity="spearman")
    return _name_undropped(rows)


def _table_6() -> list[Row]:
    rows = read_block(
        f"""
backbone      method                   strategy layers_dropped | {_FIVE}
BERT          vanilla_distillation     -        -              | 90.50 80.10 88.00 88.10 84.90
BERT          patient_distillation     -        -              | 91.30 81.30 88.40 88.40 86.20
BERT          theseus                  -        -              | 91.80 82.10 88.80 88.80 87.80
BERT          greedy_layer_pruning     -        6              | 91.20 81.30 87.60 86.80 87.60
DistilBERT    dense                    none     0              | 90.37 81.78 88.98 90.40 87.14
BERT          dense                    top      6              | 90.25 81.13 87.63 90.35 88.45
RoBERTa       layer_dropout_pretrained top      6              | 92.50 82.90 89.40 -     -
RoBERTa       greedy_layer_pruning     -        6              | 92.00 85.60 90.80 87.80 86.60
DistilRoBERTa dense                    none     0              | 92.50 84.00 90.80 89.40 88.30
RoBERTa       dense                    top      6              | 91.97 84.44 90.00 90.91 88.92
""",
        table="T6",
        fusion="last",
        mode="finetune",
    )
    annotate(rows, _CORRELATION, quantity="spearman")
    others = {
        "vanilla_distillation": "Vanilla-KD, from Xu et al.",
        "patient_distillation": "BERT-PKD, from Xu et al.",
        "theseus": "BERT-TH, from Xu et al.",
        "greedy_layer_pruning": "GLP6, from Peer et al.",
        "layer_dropout_pretrained": "LayerDrop, from Fan et al.",
    }
    for method, source in others.items():
        annotate(rows, source, method=method)
    for row in select(rows, method="dense"):
        row["epochs"] = 3
    return rows


def _table_7() -> list[Row]:
    rows = read_block(
        f"""
backbone method     | {_FIVE}
BERT     dense      | 92.25 81.13 87.63 90.35 88.45
BERT     warm_start | 90.02 80.85 87.24 90.34 88.16
XLNet    dense      | 92.20 83.48 88.03 90.62 87.45
XLNet    warm_start | 92.43 83.75 86.80 90.77 87.60
""",
        table="T7",
        layers_dropped=6,
        **{key: value for key, value in _TOP.items() if key != "method"},
    )
    annotate(rows, _CORRELATION, quantity="spearman")
    annotate(rows, "fine-tuned, then dropped, then fine-tuned again", method="warm_start")
    meant = "contradicts Tables 2 and 6, 90.25 is meant"
    annotate(rows, meant, method="dense", task="sst2", **_BERT)
    return rows


def _figure_2() -> list[Row]:
    """Means over GLUE's tasks by strategy, and which layers the weights and activations name."""
    bert, roberta, xlnet = _TRAINED | _BERT, _TRAINED | _ROBERTA, _TRAINED | _XLNET
    top: Row = {"strategy": "top", "layers_dropped": 6}
    variance: Row = {"strategy": "variance", "layers_dropped": 6}
    mean = "mean over GLUE's tasks"
    rows = [
        fact("F2", "loss", 2.91, mean, **bert, **top),
        fact("F2", "loss", 1.81, mean, **xlnet, **top),
        fact("F2", "difference", -0.73, f"{mean}, over strategy top", **roberta, **variance),
        fact("F2", "loss", 0.97, mean, **bert, strategy="symmetric", layers_dropped=2),
    ]
    by_variance = ((bert, "1 12 8 9 11 2"), (roberta, "11 12 6 7 5 10"), (xlnet, "11 12 7 8 9 10"))
    for columns, layers in by_variance:
        rows += _dropped(layers, "in this order, the first to go first", **columns, **variance)
    by_contribution = (
        (bert, 0.95, "3 5"),
        (bert, 0.925, "3 5 8 9"),
        (xlnet, 0.925, "9 10 11"),
        (xlnet, 0.9, "8 9 10 11"),
    )
    for columns, threshold, layers in by_contribution:
        chosen: Row = {"strategy": "contribution", "layers_dropped": len(layers.split())}
        rows += _dropped(layers, "of a set", threshold=threshold, **columns, **chosen)
    return rows


def _dropped(layers: str, note: str, **columns: Any) -> list[Row]:
    numbers = [int(layer) for layer in layers.split()]
    return [fact("F2", "dropped_layer", n, note, about=False, **columns) for n in numbers]


def _figure_3() -> list[Row]:
    depths = ((_BERT, 11), (_ROBERTA, 7), (_XLNET, 7))
    note = "layer up to which the mean over tasks rises, from 1"
    return [
        fact("F3", "mature_layer", layer, note, **_TRAINED, **backbone)
        for backbone, layer in depths
    ]


def _text() -> list[Row]:
    xlnet: Row = _TOP | _XLNET | {"layers_dropped": 9}
    half: Row = _TOP | {"layers_dropped": 6}
    distilled: Row = _TOP | _DISTILBERT | {"layers_dropped": 2}
    albert: Row = half | _ALBERT | {"task": "sst2"}
    return [
        fact("text", "parameters_saved", 0.40, "of 12 layers", **half),
        fact("text", "performance_kept", 0.982, "share of the full model's, up to", **half),
        fact("text", "inference_time_saved", 0.50, "and of fine-tuning", **half),
        fact("text", "loss", 0.75, "mean over the seven tasks of Table 2", **distilled),
        fact("text", "difference", 0.35, "over the undropped model, Table 5", **albert),
        fact("text", "parameters_saved", 0.60, "within 1 point, Table 4", task="qqp", **xlnet),
        fact("text", "inference_time_saved", 0.80, "within 1 point, Table 4", task="qqp", **xlnet),
    ]


def _settings() -> list[Row]:
    rows: list[Row] = [
        {"table": "4", "setting": "epochs", "value": 3, "note": "more brought nothing"}
    ]
    for setting, values, note in (
        ("layer_drop.count", (2, 4, 6), "of 12 layers"),
        ("layer_drop.count", (1, 2, 3), "of DistilBERT's 6 layers"),
        ("layer_drop.threshold", (0.95, 0.925, 0.9), "strategy contribution"),
    ):
        rows += [{"table": "5", "setting": setting, "value": v, "note": note} for v in values]
    rows.append({"table": "5.2", "setting": "significance_level", "value": 0.05, "note": "McNemar"})
    note = "points that may be lost, on one half of dev"
    rows += [{"table": "6.1", "setting": "loss", "value": v, "note": note} for v in (1, 2, 3)]
    gradual = "gradual dropping, no better than at once"
    layer: Row = {"table": "6.5", "setting": "layer_drop.epochs_per_layer", "value": 2}
    return [row | {"method": "dense"} for row in [*rows, layer | {"note": gradual}]]


LAYER_DROPPING = Paper(
    [
        *_table_1(),
        *_table_2(),
        *_table_3(),
        *_table_4(),
        *_table_5(),
        *_table_6(),
        *_table_7(),
        *_figure_2(),
        *_figure_3(),
        *_text(),
    ],
    _settings(),
)

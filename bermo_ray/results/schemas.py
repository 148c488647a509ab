"""The schemas of tables that are derived from the trials, every column with its meaning."""

import pyarrow as pa

TEXT, INTEGER, NUMBER, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
LAYERS = pa.list_(pa.int64())
SIGNIFICANCE_LEVEL = 0.05  # of McNemar's test


def make_schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    """A schema from (name, type, meaning) of each column; the meaning is the field's metadata."""
    return pa.schema(
        [pa.field(name, kind, metadata={"meaning": meaning}) for name, kind, meaning in columns]
    )


LOSSES = make_schema(
    ("task", TEXT, ""),
    ("backbone", TEXT, ""),
    (
        "strategy",
        TEXT,
        "'none' for the undropped model; 'contribution > 0.95' by threshold; 'top, fine-tuned "
        "before' where a fine-tuned model lost its layers and was fine-tuned again",
    ),
    ("layers_dropped", INTEGER, "how many"),
    ("dropped_layers", LAYERS, "which, counted from 1; of the first seed"),
    ("layers_left", INTEGER, ""),
    ("seeds", INTEGER, "trainings behind the means"),
    ("metric_reported", NUMBER, "mean over seeds"),
    ("loss", NUMBER, "points of that below the undropped model, mean over seeds"),
    ("loss_low", NUMBER, "lower end of its 95 % interval over pairs of seeds; null of one seed"),
    ("loss_high", NUMBER, "upper end of that"),
    (
        "p_value",
        NUMBER,
        "McNemar against the undropped model of the same seed, verification half; null: the "
        "undropped model itself, or regression",
    ),
    ("p_seed", INTEGER, "that seed, the first that both have"),
    ("significant", FLAG, f"p < {SIGNIFICANCE_LEVEL}"),
    ("parameters", INTEGER, "of the model with its head"),
    ("saved", NUMBER, "share of the undropped model's parameters that was dropped"),
    ("train_speedup", NUMBER, "rows per second over the undropped model's; medians by depth"),
    (
        "time_saved",
        NUMBER,
        "share of the undropped model's inference time that is saved; medians by depth",
    ),
)
COUNTS = make_schema(
    ("task", TEXT, ""),
    ("backbone", TEXT, ""),
    ("strategy", TEXT, "'none' where nothing but the undropped model was trained"),
    ("threshold", NUMBER, "points that may be lost"),
    ("layers_dropped", INTEGER, "the most whose loss on the selection half of dev is within it"),
    ("dropped_layers", LAYERS, "which, counted from 1"),
    ("layers_left", INTEGER, ""),
    ("metric", NUMBER, "the undropped model's on the verification half of dev"),
    ("loss_selection", NUMBER, "points lost on the half that the count was found on"),
    ("loss_verification", NUMBER, "points lost on the other half"),
    ("loss_low", NUMBER, "lower end of its 95 % interval over pairs of seeds; null of one seed"),
    ("loss_high", NUMBER, "upper end of that"),
    (
        "certain",
        FLAG,
        "whether that interval is within the threshold, and the next larger count's beyond it; "
        "null of one seed",
    ),
    (
        "p_value",
        NUMBER,
        "McNemar, verification half, first seed; null: none dropped, or regression",
    ),
    ("significant", FLAG, f"p < {SIGNIFICANCE_LEVEL}"),
    ("saved", NUMBER, "share of the undropped model's parameters that was dropped"),
    ("trainings", INTEGER, "trainings of this task and encoder, for all thresholds together"),
    ("grid", INTEGER, "trainings that trying every count would have taken"),
    ("monotone", FLAG, "whether more layers dropped never lost less, where it was tried"),
)
MIXES = make_schema(
    ("size", NUMBER, "share of the encoder's prunable weights asked for"),
    ("fusion", TEXT, ""),
    ("distilled", FLAG, "whether a teacher was learned from"),
    ("layers_dropped", INTEGER, "how many"),
    ("target_density", NUMBER, "density asked for in the layers left; null: not pruned"),
    ("remaining", NUMBER, "share of the encoder's parameters left, mean over seeds"),
    ("metric_selection", NUMBER, "mean over seeds; what mixes are chosen by"),
    ("metric_reported", NUMBER, "mean over seeds; of rows that chose nothing"),
    ("reported_interval", NUMBER, "half of that mean's 95 % interval; null of one seed"),
    (
        "latency",
        NUMBER,
        "seconds of a dense forward; median over trials of that depth and fusion",
    ),
    ("seeds", INTEGER, ""),
    ("best", FLAG, "the highest mean metric_selection of its size"),
    (
        "p_value",
        NUMBER,
        "McNemar against the best of its size, verification half, first seed; null: regression",
    ),
    ("on_frontier", FLAG, "no mix is smaller, better by metric_selection and faster at once"),
    ("run_id", TEXT, "of the first seed"),
)
SIZES = make_schema(
    ("task", TEXT, ""),
    ("backbone", TEXT, ""),
    ("fusion", TEXT, ""),
    ("size", NUMBER, "most remaining weights, as a share"),
    (
        "metric_reported",
        NUMBER,
        "mean over seeds, each with its own best trial by metric_selection of that size; null "
        "where a seed has none",
    ),
    ("interval", NUMBER, "half the width of the mean's 95 % interval; null of one seed"),
    ("seeds", INTEGER, "how many"),
    ("unreached", INTEGER, "seeds that have no point of a frontier that small"),
)
_LEVEL = (
    ("share", NUMBER, "of the reference, the better dense baseline's metric_reported"),
    ("level", NUMBER, "share of the reference: the metric_reported that is asked for"),
)
LEVELS = make_schema(
    ("arm", TEXT, "such as a fusion"),
    *_LEVEL,
    (
        "remaining",
        NUMBER,
        "weights at the level along each seed's own frontier, geometric mean over seeds; null "
        "where a seed does not reach it",
    ),
    ("low", NUMBER, "lower end of its 95 % interval; null of one seed"),
    ("high", NUMBER, "upper end of that"),
    ("seeds", INTEGER, "how many"),
    ("unreached", INTEGER, "seeds that do not reach the level"),
)
_PAIR = (
    ("first", TEXT, "the arm that is compared with"),
    ("second", TEXT, "the arm that is compared"),
)
_PAIR_SEEDS = (
    ("seeds", INTEGER, "of each arm"),
    ("unreached_first", INTEGER, "seeds of the first arm that do not get there"),
    ("unreached_second", INTEGER, "seeds of the second arm that do not"),
)
RATIOS = make_schema(
    *_PAIR,
    *_LEVEL,
    (
        "ratio",
        NUMBER,
        "remaining weights of the first over those of the second: above 1 the second is smaller; "
        "null where a seed does not reach the level",
    ),
    ("low", NUMBER, "lower end of its 95 % interval (Welch, on logs)"),
    ("high", NUMBER, "upper end of that"),
    *_PAIR_SEEDS,
)
AREAS = make_schema(
    *_PAIR,
    ("sparsest", NUMBER, "remaining weights where the range begins that all curves share"),
    ("reference", NUMBER, "the better dense baseline's metric_reported: an area of 1"),
    (
        "area_first",
        NUMBER,
        "mean over log remaining, from there to 1, of the way from a constant answer (0) to the "
        "reference (1), mean over seeds",
    ),
    ("area_second", NUMBER, "the same of the second arm"),
    (
        "difference",
        NUMBER,
        "area_second - area_first: above 0 the second is better; null where the curves share no "
        "range",
    ),
    ("low", NUMBER, "lower end of its 95 % interval (Welch)"),
    ("high", NUMBER, "upper end of that"),
    *_PAIR_SEEDS,
)

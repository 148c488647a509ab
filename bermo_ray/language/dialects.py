"""Dialects of the embedded language, which fit its encoder's pretraining less than the language.

They stand in for languages of which an encoder has read little: there is one embedded language, and
its encoder has read it alone. In a dialect some words have changed places in the vocabulary, so
that what the encoder knows of them is true of other words; grammar and all other words are the
same. That is no model of a real language with little text: its words would be known less, not
wrongly.
"""

import random
from typing import Final

import pyarrow as pa

from bermo_ray.language import lexicon as lex
from bermo_ray.language.tasks import generate

TASK: Final = "entities"  # what dialects are made of
# Name -> percent of the words, as types, that have changed places.
DIALECTS: Final = {f"{TASK}/dialect{percent}": percent for percent in (30, 60)}


def exchanged_words(percent: int) -> dict[str, str]:
    """Each word that a dialect exchanges, and what stands in its place: one cycle through all of
    them, drawn once and for all. A dialect with more of them exchanges those of one with fewer too;
    punctuation stays."""
    words = [word for word in lex.VOCABULARY if word.isalpha()]
    random.Random("dialects").shuffle(words)
    chosen = words[: round(percent / 100 * len(words))]
    return dict(zip(chosen, chosen[1:] + chosen[:1], strict=True))


def generate_dialect(name: str, split: str, count: int, seed: int) -> pa.Table:
    """The rows of ``entities``, each in the dialect of that name; arguments as of
    :func:`bermo_ray.language.tasks.generate`."""
    rows = generate(TASK, split, count, seed)
    exchanged = exchanged_words(DIALECTS[name])
    texts = [[exchanged.get(word, word) for word in row] for row in rows["words"].to_pylist()]
    return rows.set_column(0, rows.schema.field("words"), pa.array(texts, rows["words"].type))

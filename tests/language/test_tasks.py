"""The embedded tasks: repeatable, balanced, disjoint across splits, and without label leaks."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from bermo_ray.language import lexicon as lex
from bermo_ray.language.tasks import (
    TASKS,
    Event,
    Facts,
    draw_event,
    generate,
    opposite,
    relation,
    render,
    synonym,
)

GOLDEN = {
    "sentence_length": "ba07d6c069e4",
    "word_content": "3c4af0a28fb1",
    "tree_depth": "8e822c1bcede",
    "top_constituents": "4d169ac111a1",
    "bigram_shift": "7979690c6d9b",
    "tense": "f784aabd9911",
    "subject_number": "01592f7dd44d",
    "object_number": "84b416cb88b4",
    "odd_word_out": "db15ce0925be",
    "coordination_inversion": "adf72fb9c972",
    "paraphrase": "ac9a38eeeb10",
    "entailment": "fdbf032d330d",
    "similarity": "a1cdd611d19e",
    "entities": "f28b25a403ce",
    "answer_span": "bbd5f2b36bb5",
    "masked_words": "56a2dbfb7790",
}
PROBES = tuple(TASKS)[:10]
SEQUENCE = tuple(name for name, spec in TASKS.items() if spec.head == "sequence")


def digest(table: pa.Table) -> str:
    text = json.dumps(table.to_pylist(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def column(table: pa.Table, name: str) -> list[str]:
    values: list[str] = table[name].to_pylist()
    return values


def labels(table: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(table["label"].to_pylist())


def words_alone(name: str, source: str, rows: int = 2000) -> float:
    """Accuracy on test rows of a bag-of-words classifier of one column."""
    train, test = generate(name, "train", rows, 0), generate(name, "test", 1000, 0)
    counter = CountVectorizer(token_pattern=r"\S+")
    seen = counter.fit_transform(column(train, source))
    model = LogisticRegression(C=0.1, max_iter=300).fit(seen, labels(train))
    return float(model.score(counter.transform(column(test, source)), labels(test)))


def test_the_tasks_are_these() -> None:
    assert PROBES == (
        "sentence_length",
        "word_content",
        "tree_depth",
        "top_constituents",
        "bigram_shift",
        "tense",
        "subject_number",
        "object_number",
        "odd_word_out",
        "coordination_inversion",
    )
    heads = {name: spec.head for name, spec in TASKS.items() if name not in SEQUENCE}
    assert heads == {
        "similarity": "regression",
        "entities": "token",
        "answer_span": "span",
        "masked_words": "masked",
    }
    pairs = [name for name, spec in TASKS.items() if spec.pair]
    assert pairs == ["paraphrase", "entailment", "similarity", "answer_span"]
    assert [len(TASKS[name].labels) for name in PROBES] == [6, 50, 3, 10, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("name", TASKS)
def test_rows_are_those_of_the_golden_hash(name: str) -> None:
    """A changed hash means a changed generator: numbers from before are no longer comparable."""
    table = generate(name, "train", 60, 7)
    assert table.equals(generate(name, "train", 60, 7))
    assert digest(table) != digest(generate(name, "train", 60, 8))
    assert digest(table) == GOLDEN[name]


def test_rows_do_not_depend_on_the_process() -> None:
    code = (
        "from tests.language.test_tasks import *\n"
        "print(json.dumps({n: digest(generate(n, 'train', 60, 7)) for n in TASKS}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert json.loads(done.stdout) == GOLDEN


@pytest.mark.parametrize("name", TASKS)
def test_splits_are_disjoint_without_duplicates(name: str) -> None:
    seen: set[str] = set()
    for split in lex.SPLITS:
        table = generate(name, split, 600, 3)
        source = "words" if TASKS[name].head == "token" else "text"
        rows = {json.dumps(row, sort_keys=True) for row in table.to_pylist()}
        assert len(rows) == table.num_rows == 600
        texts = {json.dumps(row[source]) for row in table.to_pylist()}
        if TASKS[name].head == "span":
            texts = {row["text_pair"] for row in table.to_pylist()}
        assert not seen & texts
        seen |= texts


@pytest.mark.parametrize("split", lex.SPLITS)
def test_untouched_rows_are_of_the_split_by_their_hash(split: str) -> None:
    for name in PROBES:
        table = generate(name, split, 300, 1)
        plain = name not in ("bigram_shift", "odd_word_out", "coordination_inversion")
        rows = [r["text"] for r in table.to_pylist() if plain or r["label"] == 0]
        assert {lex.split_of(text) for text in rows} == {split}


@pytest.mark.parametrize("name", ["bigram_shift", "coordination_inversion"])
def test_changed_rows_come_from_disjoint_sentences(name: str) -> None:
    bags = []
    for split in lex.SPLITS:
        rows = column(generate(name, split, 1000, 1), "text")
        bags.append({" ".join(sorted(text.split())) for text in rows})
    assert not bags[0] & (bags[1] | bags[2])
    assert not bags[1] & bags[2]


@pytest.mark.parametrize("name", SEQUENCE)
def test_classes_are_equally_frequent(name: str) -> None:
    counts = Counter(generate(name, "dev", 503, 2)["label"].to_pylist())
    assert set(counts) == set(range(len(TASKS[name].labels)))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_columns() -> None:
    assert generate("tense", "train", 5, 0).schema.types == [pa.string(), pa.int64()]
    table = generate("similarity", "train", 5, 0)
    assert table.schema.names == ["text", "text_pair", "label"]
    assert table.schema.field("label").type == pa.float32()
    assert generate("paraphrase", "train", 5, 0).schema.names == ["text", "text_pair", "label"]
    assert generate("entities", "train", 5, 0).schema.names == ["words", "tags"]
    names = ["text", "text_pair", "answer_text", "answer_start"]
    assert generate("answer_span", "train", 5, 0).schema.names == names
    assert generate("masked_words", "train", 5, 0).schema.names == ["text"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tence", "train", 5), "no embedded task 'tence'; near: tense"),
        (("tense", "valid", 5), "no split 'valid'; there are train, dev, test"),
        (("tense", "train", 0), "count must be at least 1, not 0"),
    ],
)
def test_bad_arguments(arguments: tuple[str, str, int], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message + "$"):
        generate(*arguments, seed=0)


@pytest.mark.parametrize("name", ["bigram_shift", "coordination_inversion", "odd_word_out"])
def test_words_alone_do_not_tell(name: str) -> None:
    assert words_alone(name, "text", 4000) < 0.60


def test_words_alone_do_not_tell_number_or_tense() -> None:
    assert words_alone("object_number", "text") < 0.60
    assert words_alone("subject_number", "text") < 0.70
    assert words_alone("tense", "text") < 0.75


@pytest.mark.parametrize("source", ["text", "text_pair"])
def test_one_text_alone_does_not_tell_entailment(source: str) -> None:
    assert words_alone("entailment", source, 3000) < 0.40
    assert words_alone("paraphrase", source) < 0.58


def overlap(table: pa.Table) -> list[list[float]]:
    rows = []
    for a, b in zip(column(table, "text"), column(table, "text_pair"), strict=True):
        one, two = set(a.split()), set(b.split())
        sizes = [len(one - two), len(two - one), len(a.split()), len(b.split())]
        rows.append([len(one & two) / len(one | two), *sizes, sorted(a) == sorted(b)])
    return rows


def test_overlap_does_not_tell_paraphrase() -> None:
    train, test = generate("paraphrase", "train", 3000, 0), generate("paraphrase", "test", 1000, 0)
    forest = RandomForestClassifier(50, min_samples_leaf=10, random_state=0)
    forest.fit(overlap(train), labels(train))
    assert forest.score(overlap(test), labels(test)) < 0.65


@pytest.mark.parametrize(("name", "verbs"), [("tense", True), ("subject_number", False)])
def test_targets_differ_between_splits(name: str, verbs: bool) -> None:
    for split in lex.SPLITS:
        lemmas = lex.lemmas_of(verbs, split)
        for row in generate(name, split, 200, 4).to_pylist():
            if verbs:
                own = [v for v in lex.VERB_BY_LEMMA.values() if v.lemma in lemmas]
                past = bool(row["label"])
                forms = {v.past for v in own} if past else {w for v in own for w in v[:2]}
            else:
                own_nouns = [lex.NOUN_BY_LEMMA[lemma] for lemma in lemmas]
                forms = {noun.form(bool(row["label"])) for noun in own_nouns}
            assert forms & set(row["text"].split()), row


def test_depth_is_independent_of_length() -> None:
    table = generate("tree_depth", "train", 900, 0)
    cells = Counter((len(row["text"].split()), row["label"]) for row in table.to_pylist())
    for length in {length for length, _ in cells}:
        counts = [cells[length, label] for label in range(3)]
        assert max(counts) - min(counts) <= 1, (length, counts)


def test_length_and_content_labels_are_true() -> None:
    for row in generate("sentence_length", "dev", 120, 0).to_pylist():
        low, high = map(int, TASKS["sentence_length"].labels[row["label"]].split("-"))
        assert low <= len(row["text"].split()) <= high
    targets = TASKS["word_content"].labels
    for row in generate("word_content", "dev", 200, 0).to_pylist():
        assert [w for w in row["text"].split() if w in targets] == [targets[row["label"]]]


def test_answers_are_at_their_place_once() -> None:
    kinds: Counter[str] = Counter()
    for row in generate("answer_span", "test", 300, 0).to_pylist():
        start, answer = row["answer_start"], row["answer_text"]
        assert row["text_pair"][start : start + len(answer)] == answer
        assert row["text_pair"].count(" . ") in (1, 2)
        assert f" {row['text_pair']} ".count(f" {answer} ") == 1
        kinds[row["text"].split()[0]] += 1
    assert min(kinds["who"], kinds["what"], kinds["where"]) > 60


def test_tags_are_well_formed() -> None:
    names, seen = TASKS["entities"].labels, Counter[str]()
    for row in generate("entities", "dev", 300, 0).to_pylist():
        tags = [names[tag] for tag in row["tags"]]
        assert len(tags) == len(row["words"])
        assert set(tags) != {"O"}
        for before, tag in zip(["O", *tags], tags, strict=False):
            if tag.startswith("I-"):
                assert before[2:] == tag[2:]
        seen.update(tags)
    assert set(seen) == set(names)


def test_similarity_is_spread_and_follows_shared_words() -> None:
    table = generate("similarity", "train", 1000, 0)
    scores = np.array(table["label"].to_pylist())
    assert scores.min() == 0
    assert scores.max() == 5
    assert np.histogram(scores, 5, (0, 5))[0].min() > 100
    shared = [row[0] for row in overlap(table)]
    assert 0.8 < spearmanr(shared, scores).statistic < 0.97


def event() -> Event:
    nouns, verb = lex.NOUN_BY_LEMMA, lex.VERB_BY_LEMMA["help"]
    facts: Facts = (("agent", "tall"), ("manner", "slowly"), ("time", "at dawn"))
    return Event(nouns["doctor"], False, verb, nouns["lion"], True, True, None, facts)


def test_an_event_as_text() -> None:
    one = event()
    assert render(one) == "the tall doctor helped the lions slowly at dawn ."
    assert render(one, "passive", front=True) == (
        "at dawn , the lions were helped by the tall doctor slowly ."
    )
    assert render(synonym(one, "agent"), denied=True) == (
        "it is not true that the tall physician helped the lions slowly at dawn ."
    )
    assert synonym(synonym(one, "verb"), "verb") == one
    assert synonym(one, "verb").core() == one.core()
    verbs, nouns = lex.VERB_BY_LEMMA, lex.NOUN_BY_LEMMA
    given = Event(nouns["nurse"], True, verbs["give"], nouns["letter"], False, False, nouns["boy"])
    assert render(given) == "the nurses give the letter to the boy ."
    assert render(given, "dative") == "the nurses give the boy the letter ."
    assert render(given, "passive") == "the letter is given to the boy by the nurses ."


TALL, SLOW, DAWN = event().facts


@pytest.mark.parametrize(
    ("p", "p_denied", "h", "h_denied", "expected"),
    [
        ((TALL, SLOW), False, (TALL,), False, "entailment"),
        ((TALL, SLOW), False, (DAWN,), False, "neutral"),
        ((TALL, SLOW), False, (("agent", "short"),), False, "contradiction"),
        ((TALL,), True, (TALL, SLOW), True, "entailment"),
        ((DAWN,), True, (TALL, SLOW), True, "neutral"),
        ((TALL,), True, (TALL,), False, "contradiction"),
        ((TALL, SLOW), False, (TALL, SLOW), True, "contradiction"),
        ((TALL, SLOW), True, (TALL,), True, "neutral"),
        ((TALL, SLOW), True, (TALL,), False, "neutral"),
        ((TALL,), False, (TALL, SLOW), False, "neutral"),
        ((TALL,), False, (("agent", "short"),), True, "entailment"),
    ],
)
def test_relation(p: Facts, p_denied: bool, h: Facts, h_denied: bool, expected: str) -> None:
    assert relation(p, p_denied, h, h_denied) == expected


def test_opposites_are_mutual() -> None:
    rng = random.Random(0)
    for _ in range(200):
        drawn = draw_event(rng, lex.VERBS["transitive"], "dev", [0, 1, 2, 3, 4])
        assert lex.split_of(drawn.core()) == "dev"
        for fact in drawn.facts:
            assert opposite(fact) != fact
            assert opposite(opposite(fact)) == fact

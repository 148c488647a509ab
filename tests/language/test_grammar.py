"""The generator: trees match words, agreement and restrictions hold, splits are disjoint."""

import pytest

from bermo_ray.language import lexicon as lex
from bermo_ray.language.grammar import (
    MAX_WORDS,
    MIN_WORDS,
    TEMPLATES,
    Focus,
    Grammar,
    Sentence,
    Tree,
    depth,
    entity_spans,
    top_constituents,
    words,
)

TREE: Tree = (
    "S",
    ("PP", "in", ("NP", ("LOC", "new", "haven"))),
    ",",
    ("NP", ("PER", "mary")),
    ("VP", "chased", ("NP", "the", "dog")),
    ".",
)
TOPS = {
    "plain": "NP VP",
    "passive": "NP VP",
    "front_adverb": "ADVP NP VP",
    "front_place": "PP NP VP",
    "front_clause": "SBAR NP VP",
    "coordination": "S CC S",
    "yes_no": "AUX NP VP",
    "who": "WHNP VP",
    "what": "WHNP AUX NP VP",
    "where": "WHADVP AUX NP VP",
    "imperative": "VP",
    "existential": "EX VP",
    "conjunction": "CC NP VP",
}


@pytest.fixture(scope="module")
def sentences() -> list[Sentence]:
    grammar = Grammar("train", 11)
    return [grammar.sentence() for _ in range(3000)]


def labels(tree: Tree) -> set[str]:
    inner = [labels(child) for child in tree[1:] if not isinstance(child, str)]
    return {str(tree[0])}.union(*inner)


def test_functions_on_a_tree() -> None:
    assert " ".join(words(TREE)) == "in new haven , mary chased the dog ."
    assert depth(TREE) == 4
    assert top_constituents(TREE) == ("PP", "NP", "VP")
    assert entity_spans(TREE) == [(1, 3, "LOC"), (4, 5, "PER")]


def test_trees_match_words(sentences: list[Sentence]) -> None:
    for told in sentences:
        assert tuple(words(told.tree)) == told.words
        assert MIN_WORDS <= len(told.words) <= MAX_WORDS
        assert set(told.words) <= set(lex.VOCABULARY)
        assert " ".join(top_constituents(told.tree)) == TOPS[told.template]


def test_sentences_vary(sentences: list[Sentence]) -> None:
    assert len({told.text for told in sentences}) > 2940
    assert {told.template for told in sentences} == set(TEMPLATES) == set(TOPS)
    depths = [depth(told.tree) for told in sentences]
    assert min(depths) == 2
    assert max(depths) >= 9


def test_main_verbs_agree(sentences: list[Sentence]) -> None:
    checked = 0
    for told in sentences:
        verb, form_used = told.verb, told.words[told.verb.at]
        if told.template in ("yes_no", "what", "where", "imperative"):
            assert form_used == verb.lemma, told.text
        elif verb.lemma == "be":
            assert form_used == lex.be_form(told.past, verb.plural), told.text
        elif told.template == "passive":
            assert form_used == lex.VERB_BY_LEMMA[verb.lemma].participle
            assert told.words[verb.at - 1] == lex.be_form(told.past, verb.plural), told.text
        elif "not" in told.words[verb.at - 1 : verb.at]:
            assert form_used == verb.lemma
            assert told.words[verb.at - 2] == lex.do_form(told.past, verb.plural), told.text
        else:
            form = lex.VERB_BY_LEMMA[verb.lemma].form(told.past, verb.plural)
            assert form_used == form, told.text
        checked += 1
    assert checked == 3000


def test_arguments_fit_their_verbs(sentences: list[Sentence]) -> None:
    checked = 0
    for told in sentences:
        subject, thing = (
            lex.NOUN_BY_LEMMA.get(role.lemma) if role else None
            for role in (told.subject, told.object)
        )
        if subject is not None and told.template != "passive" and told.verb.lemma != "be":
            assert subject.kind in lex.VERB_BY_LEMMA[told.verb.lemma].subjects, told.text
        if subject is not None:
            assert told.words[told.subject.at] == subject.form(told.subject.plural), told.text
        if thing is not None and told.object is not None:
            assert thing.kind in lex.VERB_BY_LEMMA[told.verb.lemma].objects, told.text
            assert told.words[told.object.at] == thing.form(told.object.plural), told.text
            checked += 1
    assert checked > 1000


def test_times_go_with_the_tense(sentences: list[Sentence]) -> None:
    checked = 0
    for told in sentences:
        if "SBAR" in labels(told.tree) or told.template == "coordination":
            continue
        text = f" {told.text} "
        past = any(f" {' '.join(time)} " in text for time in lex.PAST_TIMES)
        present = any(f" {' '.join(time)} " in text for time in lex.PRESENT_TIMES)
        assert not (past and not told.past), told.text
        assert not (present and told.past), told.text
        checked += past + present
    assert checked > 150


def test_articles_fit_the_next_word(sentences: list[Sentence]) -> None:
    for told in sentences:
        for one, following in zip(told.words, told.words[1:], strict=False):
            if one in ("a", "an"):
                assert (one == "an") == (following[0] in "aeio"), told.text


def test_entities_are_names(sentences: list[Sentence]) -> None:
    heads = {" ".join(head) for head in lex.ORGANISATION_HEADS}
    people = {*lex.MALE_NAMES, *lex.FEMALE_NAMES, *lex.SURNAMES}
    seen = dict.fromkeys(("PER", "LOC", "ORG"), 0)
    for told in sentences:
        for start, end, kind in told.entities:
            name = told.words[start:end]
            seen[kind] += 1
            if kind == "LOC":
                assert name in lex.CITIES
            elif kind == "PER":
                assert set(name) <= people
            else:
                assert any(" ".join(name).endswith(head) for head in heads)
    assert min(seen.values()) > 150
    # Some words are of more than one type, so that context has to decide.
    assert {city[0] for city in lex.CITIES} & set(lex.SURNAMES)


def test_splits_are_disjoint_and_repeatable() -> None:
    texts: dict[str, set[str]] = {}
    for split in lex.SPLITS:
        one, two = Grammar(split, 5), Grammar(split, 5)
        texts[split] = {one.sentence().text for _ in range(400)}
        assert texts[split] == {two.sentence().text for _ in range(400)}
        assert {lex.split_of(text) for text in texts[split]} == {split}
    assert not texts["train"] & (texts["dev"] | texts["test"])
    assert not texts["dev"] & texts["test"]
    assert {Grammar("train", 6).sentence().text for _ in range(9)} != texts["train"]


def test_focus_limits_its_role() -> None:
    lemmas = lex.lemmas_of(False, "test")
    grammar = Grammar("test", 1, Focus("subject", lemmas))
    told = [grammar.sentence("plain") for _ in range(200)]
    assert {one.subject.lemma for one in told} <= lemmas
    marked = {*lex.SINGULAR_DETERMINERS, *lex.PLURAL_DETERMINERS, "an"}
    assert not any(one.words[0] in marked for one in told)
    # Another noun before the end of the subject's phrase, or a clause in it, distracts.
    assert sum(one.verb.at > one.subject.at + 2 for one in told) > 120


def test_lexicon() -> None:
    assert 900 <= len(lex.VOCABULARY) <= 1200
    forms = [form for v in lex.VERB_BY_LEMMA.values() for form in {*v[:4]}]
    forms += [form for n in lex.NOUN_BY_LEMMA.values() for form in (n.lemma, n.plural)]
    forms += list({adjective for group in lex.ADJECTIVES.values() for adjective in group})
    assert len(forms) == len(set(forms))
    for verb in (False, True):
        parts = [lex.lemmas_of(verb, split) for split in lex.SPLITS]
        everything = lex.VERB_BY_LEMMA if verb else lex.NOUN_BY_LEMMA
        assert sum(map(len, parts)) == len(frozenset().union(*parts)) == len(everything)
        assert 0.55 < len(parts[0]) / len(everything) < 0.65
    for one, other in lex.SYNONYMS.items():
        if one in lex.VERB_BY_LEMMA:
            assert lex.VERB_BY_LEMMA[one][4:] == lex.VERB_BY_LEMMA[other][4:]
        else:
            assert lex.NOUN_BY_LEMMA[one].kind == lex.NOUN_BY_LEMMA[other].kind

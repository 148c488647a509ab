"""Labelled tasks made from the embedded language, deterministic by name, split, count and seed."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from bermo_ray.language import lexicon as lex
from bermo_ray.language.grammar import Focus, Grammar, Sentence, depth, top_constituents, words
from bermo_ray.language.lexicon import NOUNS, VERBS, Noun, Verb, split_of

Facts: TypeAlias = tuple[tuple[str, str], ...]  # (slot, phrase)
Row: TypeAlias = tuple[Any, ...]  # the columns of a task but its class
Rows: TypeAlias = Iterable[tuple[int, Row]]

_SLOTS: Final = ("agent", "patient", "manner", "place", "time")
_ADVERBIALS: Final = (lex.MANNER_PAIRS[:6], lex.PLACE_PAIRS, lex.TIME_PAIRS)
_ROLES: Final = ("agent", "verb", "patient")
TRANSITIVE, DITRANSITIVE = VERBS["transitive"], VERBS["ditransitive"]
_TOLD: Final = lex.ALL_VERBS["transitive", "person"]
_MUTUAL: Final = tuple(v for v in TRANSITIVE if v.subjects[0] in v.objects)
_VOICES: Final = ("active", "passive")
_LENGTHS: Final = (6, 8, 10, 12, 14, 25)  # the longest of each class
_DEPTHS: Final = (4, 5, 6)
_CLAUSES: Final = ("plain", "plain", "front_place", "front_clause", "conjunction")
_TOPS: Final = {  # the templates that give each
    **{"NP VP": "plain passive", "ADVP NP VP": "front_adverb", "PP NP VP": "front_place"},
    **{"SBAR NP VP": "front_clause", "S CC S": "coordination", "CC NP VP": "conjunction"},
    **{"AUX NP VP": "yes_no", "WHNP AUX NP VP": "what", "VP": "imperative", "EX VP": "existential"},
}
# Neighbours that are never in order the other way round.
_SHIFTS: Final = ("determiner noun", "determiner adjective", "adjective noun", "noun verb")
_ENTAILMENT: Final = ("entailment", "neutral", "contradiction")
_TAGS: Final = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")
# The role whose lemmas differ between splits.
_FOCUS: Final = {"tense": "verb", "subject_number": "subject", "object_number": "object"}


@dataclass(frozen=True, slots=True)
class Event:
    """Who did what to whom, with optional facts in the order of their slots."""

    agent: Noun
    agents: bool
    verb: Verb
    patient: Noun
    patients: bool
    past: bool
    receiver: Noun | None = None
    facts: Facts = ()

    def core(self) -> str:
        """The event without its facts, equal for synonyms: what decides the split."""
        lemmas = [self.agent.lemma, self.verb.lemma, self.patient.lemma]
        names = [min(lemma, lex.SYNONYMS.get(lemma, lemma)) for lemma in lemmas]
        marks = f"{self.agents:d}{self.patients:d}{self.past:d}"
        return " ".join([*names, self.receiver.lemma if self.receiver else "", marks])


def render(event: Event, style: str = "active", front: bool = False, denied: bool = False) -> str:
    """The event as text; ``style`` is ``active``, ``passive`` or ``dative`` (receiver first)."""
    facts = dict(event.facts)
    given = [f"{facts[slot]} " if slot in facts else "" for slot in _SLOTS[:2]]
    agent = f"the {given[0]}{event.agent.form(event.agents)}"
    patient = f"the {given[1]}{event.patient.form(event.patients)}"
    to = f"the {event.receiver.lemma}" if event.receiver else ""
    if style == "passive":
        be = lex.be_form(event.past, event.patients)
        body = [patient, be, event.verb.participle, *(["to", to] if to else []), "by", agent]
    else:
        verb = event.verb.form(event.past, event.agents)
        told = [patient, "to", to] if to else [patient]
        body = [agent, verb, *([to, patient] if to and style == "dative" else told)]
    tail = [facts[slot] for slot in _SLOTS[2:] if slot in facts]
    if front and tail and not denied:
        body = [tail.pop(), ",", *body]
    return " ".join([*(["it is not true that"] if denied else []), *body, *tail, "."])


def draw_fact(rng: random.Random, event: Event, slot: int) -> tuple[str, str]:
    """A fact for the slot of that index that fits the event."""
    if slot > 1:
        return _SLOTS[slot], rng.choice(rng.choice(_ADVERBIALS[slot - 2]))
    kind = (event.agent, event.patient)[slot].kind
    return _SLOTS[slot], rng.choice(rng.choice(lex.ADJECTIVE_PAIRS[kind]))


def opposite(fact: tuple[str, str]) -> tuple[str, str]:
    """The fact with the antonym of its phrase."""
    return fact[0], lex.ANTONYMS[fact[1]]


def draw_event(rng: random.Random, verbs: tuple[Verb, ...], split: str, slots: list[int]) -> Event:
    """An event of one of those verbs that belongs to the split, with facts for those slots."""
    while True:
        verb = rng.choice(verbs)
        agent = rng.choice(NOUNS.get(rng.choice(verb.subjects), NOUNS["person"]))
        patient = rng.choice(NOUNS[rng.choice(verb.objects)])
        receiver = rng.choice(NOUNS["person"]) if verb.frame == "ditransitive" else None
        many, several, past = (rng.random() < rate for rate in (0.5, 0.5, 0.6))
        event = Event(agent, many, verb, patient, several, past, receiver)
        distinct = len({agent.lemma, patient.lemma, receiver and receiver.lemma}) == 3
        if agent.kind in verb.subjects and distinct and split_of(event.core()) == split:
            facts = tuple(draw_fact(rng, event, slot) for slot in sorted(slots))
            return replace(event, facts=facts)


def synonym(event: Event, role: str) -> Event:
    """The event with the synonym of its agent, patient or verb, where there is one."""
    other: Any = lex.SYNONYM_OF.get(getattr(event, role).lemma)
    return replace(event, **{role: other}) if other else event


def _changed(rng: random.Random, event: Event, role: str, known: bool = False) -> Event:
    """The event with another agent, verb or patient; ``known``: only words with a synonym."""
    old: Noun | Verb = getattr(event, role)
    found: tuple[Noun | Verb, ...] = DITRANSITIVE
    if isinstance(old, Noun):
        found = NOUNS[old.kind]
    elif not event.receiver:
        found = lex.VERBS_BETWEEN[event.agent.kind, event.patient.kind]
    same = (event.agent.lemma, event.patient.lemma, old.lemma, lex.SYNONYMS.get(old.lemma))
    found = tuple(w for w in found if not known or w.lemma in lex.SYNONYMS)
    options: list[Any] = [w for w in found if w.lemma not in same]
    return replace(event, **{role: rng.choice(options)}) if options else event


def draw_scene(rng: random.Random, split: str) -> tuple[str, str, str]:
    """A question, its context of two or three sentences, and the answer, found in it once."""
    while True:
        size = 2 + (rng.random() < 0.5)
        first = rng.choice(_TOLD)
        verbs = [first, *(first if rng.random() < 0.5 else rng.choice(_TOLD) for _ in range(2))]
        told, lines = [], []
        for verb in verbs[:size]:
            noun, plural = rng.choice(NOUNS[rng.choice(verb.objects)]), rng.random() < 0.5
            who = f"{rng.choice(lex.MALE_NAMES + lex.FEMALE_NAMES)} {rng.choice(lex.SURNAMES)}"
            what = f"the {rng.choice(lex.ADJECTIVES[noun.kind])} {noun.form(plural)}"
            where = " ".join(rng.choice(lex.CITIES))
            line = f"{who} {verb.past} {what}"
            if rng.random() < 0.3:
                line = f"{what} {lex.be_form(True, plural)} {verb.participle} by {who}"
            told.append((who, verb, what, where))
            lines.append(f"{line} in {where} .")
        who, verb, what, where = rng.choice(told)
        asked = [(f"who {verb.past} {what} ?", who), (f"what did {who} {verb.lemma} ?", what)]
        asked.append((f"where did {who} {verb.lemma} {what} ?", where))
        (question, answer), context = rng.choice(asked), " ".join(lines)
        clear = len({one[0] for one in told}) == len({one[2] for one in told}) == size
        if clear and f" {context} ".count(f" {answer} ") == 1 and split_of(context) == split:
            return question, context, answer


class _Source:
    """What a maker of rows draws from."""

    def __init__(self, name: str, split: str, seed: int) -> None:
        self.split = split
        self.rng = random.Random(f"{name}/{split}/{seed}")
        self.focus = Focus(_FOCUS.get(name, ""), lex.lemmas_of(name == "tense", split))
        self.grammar = Grammar(split, f"{name}/{seed}", self.focus if name in _FOCUS else None)
        self.waiting: dict[Any, Any] = {}

    def reword(self, text: list[str], keep: str, banned: frozenset[str] = frozenset()) -> list[str]:
        """The sentence with nouns changed for others like them until it is of the split, or none.

        That costs less than another sentence. A noun changes wherever it stands, as two clauses
        may speak of one thing; ``keep`` stays, and ``banned`` nouns go.
        """
        for _ in range(40):
            wrong = [word for word in text if word in banned]
            if not wrong and split_of(" ".join(text)) == self.split:
                return text
            nouns = wrong or [word for word in text if word in lex.NOUN_BY_FORM and word != keep]
            if not nouns:
                return []
            old = self.rng.choice(nouns)
            new = self.rng.choice(lex.ALIKE[lex.noun_shape(old)])
            if new not in text and new not in banned:
                text = [new if word == old else word for word in text]
        return []

    def plain(self, told: Sentence, label: int, keep: str = "") -> Rows:
        """The sentence as a row of that class, if it can be of the split."""
        text = self.reword(list(told.words), keep)
        return [(label, (" ".join(text),))] if text else []


def _length(source: _Source, wanted: int) -> Rows:
    told = source.grammar.draw()
    return source.plain(told, sum(len(told.words) > top for top in _LENGTHS))


def _content(source: _Source, wanted: int) -> Rows:
    target, told = lex.CONTENT_WORDS[wanted], list(source.grammar.draw().words)
    places = [(i, lex.CONTENT_LIKE[w]) for i, w in enumerate(told) if w in lex.CONTENT_LIKE]
    places = [place for place in places if target in place[1]] or places
    if places:
        at, like = source.rng.choice(places)
        told[at] = target = target if target in like else source.rng.choice(like)
        text = source.reword(told, target, frozenset(lex.CONTENT_WORDS) - {target})
        if text.count(target) == 1:
            yield lex.CONTENT_WORDS.index(target), (" ".join(text),)


def _depth(source: _Source, wanted: int) -> Rows:
    """Sets of a sentence for each depth, all of one length, so that length says nothing."""
    told = source.grammar.draw(source.rng.choice(_CLAUSES))
    label = depth(told.tree) - _DEPTHS[0]
    if 0 <= label < len(_DEPTHS):
        group = source.waiting.setdefault(len(told.words), [[] for _ in _DEPTHS])
        group[label] += [row for _, row in source.plain(told, label)]
        if all(group):
            yield from [(i, rows.pop()) for i, rows in enumerate(group)]


def _top(source: _Source, wanted: int) -> Rows:
    name, templates = list(_TOPS.items())[wanted]
    told = source.grammar.draw(source.rng.choice(templates.split()))
    return source.plain(told, wanted) if " ".join(top_constituents(told.tree)) == name else []


def _shift(source: _Source, wanted: int) -> Rows:
    text = source.reword(list(source.grammar.draw().words), "")
    kinds = [lex.CATEGORY[word] for word in text]
    places = [i for i in range(1, len(text) - 2) if f"{kinds[i]} {kinds[i + 1]}" in _SHIFTS]
    if places:
        at = source.rng.choice(places)
        if wanted:
            text[at], text[at + 1] = text[at + 1], text[at]
        yield wanted, (" ".join(text),)


def _inversion(source: _Source, wanted: int) -> Rows:
    told = source.grammar.draw("coordination")
    text = source.reword(list(told.words), "")
    a, *_, b = (len(words(child)) for child in told.tree[1:] if not isinstance(child, str))
    if text and wanted:
        text = [*text[-1 - b : -1], *text[a : -1 - b], *text[:a], "."]
    return [(wanted, (" ".join(text),))] if text else []


def _focused(source: _Source, wanted: int) -> Rows:
    told = source.grammar.draw(source.rng.choice(_CLAUSES))
    role = getattr(told, source.focus.role)
    if role is None or role.lemma not in source.focus.lemmas:
        return []
    label = told.past if source.focus.role == "verb" else role.plural
    return source.plain(told, int(label), told.words[role.at])


def _odd(source: _Source, wanted: int) -> Rows:
    """Two sentences whose verbs or objects change places or stay: the same words either way."""
    told = source.grammar.draw(source.rng.choice(_CLAUSES))
    verb = lex.VERB_BY_LEMMA.get(told.verb.lemma)
    noun = lex.NOUN_BY_LEMMA.get(told.object.lemma) if told.object else None
    if told.object is None or verb is None or noun is None or verb.frame != "transitive":
        return
    by_verb = source.rng.random() < 0.5
    at = told.verb.at if by_verb else told.object.at
    text = source.reword(list(told.words), told.words[told.object.at])
    if not text or text[at - 1] in ("a", "an"):
        return
    key = (by_verb, verb[:4].index(text[at]) if by_verb else told.object.plural)
    mine = (text, at, verb, noun.kind)
    other, there, its_verb, its_kind = source.waiting.pop(key, mine)
    if noun.kind in its_verb.objects or its_kind in verb.objects:
        source.waiting[key] = mine
    else:
        if wanted:
            text[at], other[there] = other[there], text[at]
        yield from [(wanted, (" ".join(one),)) for one in (text, other)]


def _paraphrase(source: _Source, wanted: int) -> Rows:
    """Half change no word, but maybe who did it; half change one, for a synonym or another."""
    rng, exact = source.rng, source.rng.random() < 0.5
    verbs = DITRANSITIVE if rng.random() < 0.25 else _MUTUAL if exact else TRANSITIVE
    event = draw_event(rng, verbs, source.split, rng.sample((2, 3, 4), rng.randrange(3)))
    styles = ["active", "passive", "dative"][: 2 + (event.receiver is not None)]
    first, second = rng.sample(styles, 2)
    other, role = event, rng.choice(_ROLES)
    if exact and event.receiver:
        other = replace(event, agent=event.receiver, receiver=event.agent)
    elif exact:
        other = replace(event, agent=event.patient, patient=event.agent)
        other = replace(other, agents=event.patients, patients=event.agents)
    elif synonym(event, role) != event:
        second = rng.choice(styles)
        other = _changed(rng, event, role, known=True)
        if role != "verb" and rng.random() < 0.5:
            other = replace(event, **{f"{role}s": getattr(event, f"{role}s") ^ True})
    # The present agrees with its subject, and a receiver is one: neither may give a change away.
    usable = event.past and not (event.receiver and event.agents) and other != event
    fits = other.agent.kind in event.verb.subjects and other.patient.kind in event.verb.objects
    if usable and (fits or not exact):
        if wanted:
            other = event if exact else synonym(event, role)
        texts = render(event, first, rng.random() < 0.3), render(other, second, rng.random() < 0.3)
        yield wanted, texts


def relation(p: Facts, p_denied: bool, h: Facts, h_denied: bool) -> str:
    """How an event with facts ``p``, told or denied, bears on the same with facts ``h``."""
    if p_denied:
        told = "entailment" if h_denied else "contradiction"
        return told if set(p) <= set(h) else "neutral"
    holds, clash = set(h) <= set(p), any(opposite(fact) in p for fact in h)
    if not holds and not clash:
        return "neutral"
    return "entailment" if holds != h_denied else "contradiction"


def _entailment(source: _Source, wanted: int) -> Rows:
    """Numbers of facts and denials are as frequent in every class, in each text on its own."""
    rng = source.rng
    event = draw_event(rng, TRANSITIVE, source.split, rng.sample(range(5), 3))
    x, y, z = rng.sample(event.facts, 3)
    one = z if wanted == 1 else x
    cases: list[tuple[Facts, bool, Facts, bool]] = [((x, y), False, (one,), False)] * 2
    cases.append(((one,), True, (x, y), True))
    if wanted == 2:
        cases = [((x, y), False, (opposite(x),), False), ((x,), True, (x,), False)]
        cases.append(((x, y), False, (x, y), True))
    p, p_denied, h, h_denied = rng.choice(cases)
    # A wider word may only be denied by the premise, or told by the hypothesis.
    wide, texts = rng.random() < 0.2, []
    for facts, denied, free in ((p, p_denied, p_denied), (h, h_denied, not h_denied)):
        told = replace(event, facts=tuple(sorted(facts, key=lambda f: _SLOTS.index(f[0]))))
        for role in _ROLES:
            told = synonym(told, role) if rng.random() < 0.3 else told
        if wide and free:
            told = replace(told, agent=lex.HYPERNYMS[event.agent.kind])
        texts.append(render(told, rng.choice(_VOICES), rng.random() < 0.3, denied))
    yield _ENTAILMENT.index(relation(p, p_denied, h, h_denied)), tuple(texts)


def _similarity(source: _Source, wanted: int) -> Rows:
    rng = source.rng
    event = draw_event(rng, TRANSITIVE, source.split, rng.sample(range(5), rng.randrange(2, 6)))
    size = 3 + len(event.facts)
    changed = set(rng.sample(range(size), rng.randrange(size + 1)))
    other = event
    for index, role in enumerate(_ROLES):
        before = other
        if index in changed and (other := _changed(rng, other, role)) == before:
            return
        if index not in changed and rng.random() < 0.3:
            other = synonym(other, role)
    facts = [opposite(f) if i in changed else f for i, f in enumerate(event.facts, 3)]
    both = (event, replace(other, facts=tuple(facts)))
    a, b = (render(one, rng.choice(_VOICES), rng.random() < 0.3) for one in both)
    if a != b:
        yield 0, (a, b, 5 * (size - len(changed)) / size)


def _entities(source: _Source, wanted: int) -> Rows:
    told = source.grammar.draw()
    text = source.reword(list(told.words), "") if told.entities else []
    tags = [0] * len(text)
    for start, end, kind in told.entities if text else ():
        tags[start:end] = [_TAGS.index(f"I-{kind}")] * (end - start)
        tags[start] -= 1
    return [(0, (tuple(text), tuple(tags)))] if text else []


def _answer(source: _Source, wanted: int) -> Rows:
    question, context, answer = draw_scene(source.rng, source.split)
    yield 0, (question, context, answer, f" {context} ".index(f" {answer} "))


@dataclass(frozen=True)
class Spec:
    """One embedded task: its head, its classes, its metric, and whether rows are pairs."""

    name: str
    head: str
    labels: tuple[str, ...]
    metric: str
    pair: bool


_TABLE: Final[dict[str, tuple[Callable[[_Source, int], Rows], str, tuple[str, ...]]]] = {
    "sentence_length": (_length, "sequence", ("4-6", "7-8", "9-10", "11-12", "13-14", "15-25")),
    "word_content": (_content, "sequence", lex.CONTENT_WORDS),
    "tree_depth": (_depth, "sequence", tuple(map(str, _DEPTHS))),
    "top_constituents": (_top, "sequence", tuple(_TOPS)),
    "bigram_shift": (_shift, "sequence", ("original", "shifted")),
    "tense": (_focused, "sequence", ("present", "past")),
    "subject_number": (_focused, "sequence", ("singular", "plural")),
    "object_number": (_focused, "sequence", ("singular", "plural")),
    "odd_word_out": (_odd, "sequence", ("original", "odd")),
    "coordination_inversion": (_inversion, "sequence", ("original", "inverted")),
    "paraphrase": (_paraphrase, "sequence", ("different", "paraphrase")),
    "entailment": (_entailment, "sequence", _ENTAILMENT),
    "similarity": (_similarity, "regression", ()),
    "entities": (_entities, "token", _TAGS),
    "answer_span": (_answer, "span", ()),
    "masked_words": (lambda source, _: source.plain(source.grammar.draw(), 0), "masked", ()),
}
_TEXT, _PAIR, _LABEL = ("text", pa.string()), ("text_pair", pa.string()), ("label", pa.int64())
_HEADS: Final = {  # metric and columns
    "sequence": ("accuracy", [_TEXT, _LABEL]),
    "regression": ("spearman", [_TEXT, ("label", pa.float32())]),
    "token": ("entity_f1", [("words", pa.list_(pa.string())), ("tags", pa.list_(pa.int64()))]),
    "span": ("span_f1", [_TEXT, ("answer_text", pa.string()), ("answer_start", pa.int64())]),
    "masked": ("masked_accuracy", [_TEXT]),
}
_PAIRS: Final = ("paraphrase", "entailment", "similarity", "answer_span")
TASKS: Final = {
    name: Spec(name, head, labels, _HEADS[head][0], name in _PAIRS)
    for name, (_, head, labels) in _TABLE.items()
}


def generate(name: str, split: str, count: int, seed: int) -> pa.Table:
    """The rows of one split of a task, equal for equal arguments, classes equally frequent.

    Raises ValueError for an unknown name or split, or a count below 1.
    """
    if name not in TASKS:
        near = ", ".join(difflib.get_close_matches(name, TASKS) or TASKS)
        raise ValueError(f"no embedded task {name!r}; near: {near}")
    if split not in lex.SPLITS:
        raise ValueError(f"no split {split!r}; there are {', '.join(lex.SPLITS)}")
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    spec = TASKS[name]
    maker, source = _TABLE[name][0], _Source(name, split, seed)
    classes = len(spec.labels) if spec.head == "sequence" else 1
    open_rows = [count // classes + (label < count % classes) for label in range(classes)]
    found: dict[Row, int] = {}
    while len(found) < count:
        wanted = open_rows.index(max(open_rows))
        for label, row in maker(source, wanted):
            if open_rows[label] > 0 and row not in found:
                found[row] = label
                open_rows[label] -= 1
    rows = [(*row, label) if classes > 1 else row for row, label in found.items()]
    source.rng.shuffle(rows)
    fields = list(_HEADS[spec.head][1])
    fields[1:1] = [_PAIR] if spec.pair else []
    arrays = [pa.array(c, t) for c, (_, t) in zip(zip(*rows, strict=True), fields, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))

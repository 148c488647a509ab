"""A probabilistic generator of English-like sentences with their trees and facts.

A tree is a nested tuple ``(label, child, ...)`` whose leaves are words. A sentence belongs to one
split only, by a hash of its text, so that splits are disjoint whatever their sizes and seeds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from bermo_ray.language import lexicon as lex
from bermo_ray.language.lexicon import ALL_VERBS, NOUNS, VERBS, split_of

Tree: TypeAlias = "tuple[str | Tree, ...]"
T = TypeVar("T")

MIN_WORDS: Final = 4
MAX_WORDS: Final = 25
ENTITY_TYPES: Final = ("PER", "LOC", "ORG")
# Each name as often as it is drawn.
TEMPLATES: Final = (
    *(("plain",) * 30 + ("front_adverb", "front_place") * 6 + ("front_clause",) * 9),
    *(("coordination",) * 14 + ("yes_no",) * 6 + ("who", "what") * 5 + ("where",) * 4),
    *(("imperative", "existential") * 5 + ("passive",) * 7 + ("conjunction",) * 4),
)


def words(tree: Tree) -> list[str]:
    """The leaves of a tree, from left to right."""
    found: list[str] = []
    for child in tree[1:]:
        if isinstance(child, str):
            found.append(child)
        else:
            found += words(child)
    return found


def depth(tree: Tree) -> int:
    """The number of constituents on the longest path from the root to a word."""
    return 1 + max((0 if isinstance(child, str) else depth(child)) for child in tree[1:])


def top_constituents(tree: Tree) -> tuple[str, ...]:
    """The labels of the constituents directly below the root, punctuation left out."""
    return tuple(str(child[0]) for child in tree[1:] if not isinstance(child, str))


def entity_spans(tree: Tree, start: int = 0) -> list[tuple[int, int, str]]:
    """The named entities of a tree as (first word, word after the last, type)."""
    size = len(words(tree))
    found = [(start, start + size, str(tree[0]))] if tree[0] in ENTITY_TYPES else []
    for child in tree[1:]:
        if isinstance(child, str):
            start += 1
        else:
            found += entity_spans(child, start)
            start += len(words(child))
    return found


class Role(NamedTuple):
    """A word of the main clause: its lemma, whether it is plural, and its index."""

    lemma: str
    plural: bool
    at: int


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, its tree, and what is true of its main clause."""

    words: tuple[str, ...]
    tree: Tree
    template: str
    past: bool
    verb: Role
    subject: Role
    object: Role | None

    @property
    def text(self) -> str:
        """The words, each separated by one space."""
        return " ".join(self.words)

    @property
    def entities(self) -> tuple[tuple[int, int, str], ...]:
        """The named entities as (first word, word after the last, type)."""
        return tuple(entity_spans(self.tree))


class _Phrase(NamedTuple):
    tree: Tree
    head: int  # offset of the noun in the phrase
    lemma: str
    kind: str
    plural: bool
    pronoun: str


class _Predicate(NamedTuple):
    tree: Tree
    verb: str
    at: int = 0  # offset of the verb in the phrase
    object: _Phrase | None = None
    object_at: int = -1


class _Clause(NamedTuple):
    subject: _Phrase
    predicate: _Predicate
    past: bool


@dataclass(frozen=True, slots=True)
class Focus:
    """The words for one role (``verb``, ``subject`` or ``object``) of the main clause, if any fit.

    Such a word has no determiner marked for number; phrases that distract from it are frequent.
    """

    role: str
    lemmas: frozenset[str]


class Grammar:
    """Draws sentences of one split; equal arguments give equal sentences in every process."""

    def __init__(self, split: str, seed: int | str, focus: Focus | None = None) -> None:
        self._split = split
        self._random = random.Random(f"{split}/{seed}").random
        self._role = focus.role if focus else None
        lemmas = focus.lemmas if focus else None
        self._verbs = lex.verb_table(lemmas) if self._role == "verb" else ALL_VERBS
        self._nouns = {
            kind: tuple(n for n in group if lemmas is None or n.lemma in lemmas)
            for kind, group in NOUNS.items()
        }
        # Rates of a prepositional phrase and of a relative clause in a noun phrase.
        rates = {None: (0.2, 0.16), "verb": (0.2, 0.4)}
        self._nested = rates.get(self._role, (0.42, 0.4))
        self._times = self._role != "verb"

    def draw(self, template: str | None = None) -> Sentence:
        """The next sentence of any split, of that template or of one drawn by its weight."""
        while True:
            found = self._draw(template or self.pick(TEMPLATES))
            if MIN_WORDS <= len(found.words) <= MAX_WORDS:
                return found

    def sentence(self, template: str | None = None) -> Sentence:
        """The next sentence of the split, of that template or of one drawn by its weight."""
        while True:
            found = self.draw(template)
            if split_of(found.text) == self._split:
                return found

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely."""
        return items[int(self._random() * len(items))]

    def _name(self) -> _Phrase:
        female = self._random() < 0.5
        name: tuple[str, ...] = (self.pick(lex.FEMALE_NAMES if female else lex.MALE_NAMES),)
        draw = self._random()
        if draw < 0.65:
            name = (*name, self.pick(lex.SURNAMES))[draw < 0.2 :]
        pronoun = "she" if female else "he"
        return _Phrase(("NP", ("PER", *name)), 0, name[0], "person", False, pronoun)

    def _organisation(self) -> _Phrase:
        base = self.pick(lex.CITIES) if self._random() < 0.5 else (self.pick(lex.SURNAMES),)
        tree: Tree = ("ORG", *base, *self.pick(lex.ORGANISATION_HEADS))
        return _Phrase(("NP", tree), 0, " ".join(words(tree)), "org", False, "it")

    def _np(self, kind: str, level: int, target: bool = False, many: bool | None = None) -> _Phrase:
        """A noun phrase of that class; a target has a noun of the focus."""
        if kind == "org":
            return self._organisation()
        rand = self._random
        if kind == "person" and not target and many is None and rand() < 0.28:
            return self._name()
        noun = self.pick((self._nouns if target else NOUNS)[kind])
        many = rand() < 0.5 if many is None else many
        draw = rand()
        adjectives = (self.pick(lex.ADJECTIVES[kind]),) if draw < 0.3 else ()
        if draw < 0.05 and (other := self.pick(lex.ADJECTIVES[kind])) not in adjectives:
            adjectives = (*adjectives, other)
        form = noun.plural if many else noun.lemma
        if target or rand() < 0.5:
            first = self.pick(lex.NEUTRAL_DETERMINERS)
        elif many:
            first = self.pick(lex.PLURAL_DETERMINERS)
        else:
            first = lex.determiner(self.pick(lex.SINGULAR_DETERMINERS), (*adjectives, form)[0])
        tree: Tree = ("NP", first, *adjectives, form)
        prepositional, relative = self._nested
        scale = (1.0, 0.5, 0.0, 0.0)[level]
        draw = rand()
        if draw < prepositional * scale:
            tree = ("NP", tree, self._beside(level + 1, many if target else None))
        elif draw < (prepositional + relative) * scale:
            tree = ("NP", tree, self._relative(kind, many, level + 1))
        pronoun = "they" if many else "it" if kind != "person" else "he" if rand() < 0.5 else "she"
        return _Phrase(tree, 1 + len(adjectives), noun.lemma, kind, many, pronoun)

    def _beside(self, level: int, unlike: bool | None = None) -> Tree:
        plural = None if unlike is None or self._random() < 0.4 else not unlike
        noun_phrase = self._np(self.pick(lex.NEAR_KINDS), level, False, plural).tree
        return ("PP", self.pick(lex.PREPOSITIONS), noun_phrase)

    def _place(self, level: int) -> Tree:
        if self._random() < 0.4:
            return ("PP", "in", ("NP", ("LOC", *self.pick(lex.CITIES))))
        place = self._np("place", level + 1).tree
        return ("PP", self.pick(lex.PLACE_PREPOSITIONS), place)

    def _relative(self, kind: str, plural: bool, level: int) -> Tree:
        past = self._random() < 0.5
        link = self.pick(("who", "that")) if kind == "person" else self.pick(("that", "which"))
        if kind in lex.FRAMES and self._random() < 0.55:
            inner = self._predicate(kind, plural, past, "finite", max(level, 2)).tree
            return ("SBAR", link, ("S", inner))
        verbs = lex.VERBS_OF_OBJECT[kind]
        if not verbs:
            link, verbs = "where", ALL_VERBS["intransitive", "person"]
        who = self._np("person", 2)
        return ("SBAR", link, ("S", who.tree, ("VP", self.pick(verbs).form(past, who.plural))))

    def _time(self, past: bool) -> Tree:
        return ("ADVP", *self.pick(lex.PAST_TIMES if past else lex.PRESENT_TIMES))

    def _manner(self) -> Tree:
        return ("ADVP", self.pick(lex.MANNER_PAIRS[:6])[self._random() < 0.5])

    def _predicate(
        self, kind: str, plural: bool, past: bool, form: str, level: int, main: bool = False
    ) -> _Predicate:
        """A verb phrase; ``form`` is ``finite``, ``negated`` or ``bare`` (without auxiliary)."""
        rand = self._random
        frame = self.pick(lex.FRAMES[kind])
        aimed = main and (self._role == "object" or (self._role and frame == "copula"))
        if aimed or (level > 1 and frame == "clausal"):
            frame = "transitive"
        if frame == "copula" and form != "bare":
            adjective: Tree = ("ADJP", self.pick(lex.ADJECTIVES[kind]))
            denied = ("not",) if form == "negated" else ()
            return _Predicate(("VP", lex.be_form(past, plural), *denied, adjective), "be")
        frame = "intransitive" if frame == "copula" else frame
        table = self._verbs if main else ALL_VERBS
        verb = self.pick(table[frame, kind] or ALL_VERBS[frame, kind])
        parts: list[str | Tree] = []
        if form == "finite" and rand() < 0.08:
            parts.append(self._manner())
        elif not past and form == "finite" and self._times and rand() < 0.1:
            parts.append(("ADVP", self.pick(lex.FREQUENCY)))
        at = len(parts)
        parts.append(verb.form(past, plural) if form == "finite" else verb.lemma)
        thing: _Phrase | None = None
        thing_at = at + 1
        if frame == "transitive":
            target = main and self._role == "object"
            thing = self._np(self.pick(verb.objects), level, target)
            parts.append(thing.tree)
        elif frame == "ditransitive":
            thing = self._np(self.pick(verb.objects), max(level, 1))
            receiver = self._np("person", max(level, 1)).tree
            if rand() < 0.5:
                parts += [thing.tree, ("PP", "to", receiver)]
            else:
                thing_at += len(words(receiver))
                parts += [receiver, thing.tree]
        elif frame == "clausal":
            inner = self._clause(past == (rand() < 0.6), level + 1)
            parts.append(("SBAR", "that", ("S", inner.subject.tree, inner.predicate.tree)))
        if frame != "clausal":
            parts += self._adjuncts(past, level, main)
        tree: Tree = ("VP", *parts)
        if form == "negated":
            tree = ("VP", lex.do_form(past, plural), "not", tree)
            return _Predicate(tree, verb.lemma, at + 2, thing, thing_at + 2)
        return _Predicate(tree, verb.lemma, at, thing, thing_at)

    def _adjuncts(self, past: bool, level: int, main: bool) -> list[str | Tree]:
        rand = self._random
        scale = (1.0, 0.6, 0.3, 0.1)[level]
        found: list[str | Tree] = []
        if rand() < 0.18 * scale:
            found.append(("ADVP", self.pick(lex.MANNER_PAIRS)[rand() < 0.5]))
        draw = rand()
        if draw < 0.22 * scale:
            found.append(self._place(min(level + 1, 2)))
        elif draw < 0.32 * scale:
            pairs = self.pick((lex.PLACE_PAIRS, lex.TIME_PAIRS))
            found.append(("ADVP", *self.pick(pairs)[rand() < 0.5].split()))
        draw = rand()
        if self._times and draw < 0.16 * scale:
            found.append(self._time(past))
        elif main and draw < 0.24 * scale:
            found.append(self._subordinate(past))
        return found

    def _subordinate(self, past: bool) -> Tree:
        link = self.pick(lex.SUBORDINATORS)
        # Reasons and concessions may lie at another time; the other links keep the tense.
        free = link in ("because", "although", "since")
        inner = self._clause(self._random() < 0.5 if free else past, 2)
        return ("SBAR", link, ("S", inner.subject.tree, inner.predicate.tree))

    def _subject(self, level: int) -> _Phrase:
        target = level == 0 and self._role == "subject"
        kind = self.pick(lex.SUBJECT_KINDS)
        if not target and level < 2 and self._random() < 0.05:
            word, many = self.pick((("he", False), ("she", False), ("they", True), ("we", True)))
            return _Phrase(("NP", word), 0, word, "person", many, word)
        return self._np("person" if target and kind == "org" else kind, level, target)

    def _clause(self, past: bool, level: int, form: str = "finite") -> _Clause:
        who = self._subject(level)
        told = self._predicate(who.kind, who.plural, past, form, level, level == 0)
        return _Clause(who, told, past)

    def _done(self, template: str, tree: Tree, clause: _Clause, start: int = 0) -> Sentence:
        subject, predicate, past = clause
        thing = predicate.object
        base = start + len(words(subject.tree))
        role = thing and Role(thing.lemma, thing.plural, base + predicate.object_at + thing.head)
        verb = Role(predicate.verb, subject.plural, base + predicate.at)
        topic = Role(subject.lemma, subject.plural, start + subject.head)
        return Sentence(tuple(words(tree)), tree, template, past, verb, topic, role)

    def _draw(self, template: str) -> Sentence:
        if template in ("yes_no", "who", "what", "where"):
            return self._question(template)
        if template == "coordination":
            return self._coordination()
        if template in ("imperative", "passive", "existential"):
            return self._special(template)
        past = self._random() < 0.5
        negated = self._role is None and self._random() < 0.1
        clause = self._clause(past, 0, "negated" if negated else "finite")
        front: tuple[str | Tree, ...] = ()
        if template == "front_adverb":
            front = (self._time(past) if self._times and self._random() < 0.5 else self._manner(),)
        elif template == "front_place":
            front = (self._place(0),)
        elif template == "front_clause":
            front = (self._subordinate(past),)
        elif template == "conjunction":
            front = (("CC", self.pick(("but", "and", "so", "then"))),)
        if front and template != "conjunction" and self._random() < 0.6:
            front += (",",)
        tree: Tree = ("S", *front, clause.subject.tree, clause.predicate.tree, ".")
        return self._done(template, tree, clause, len(words(("S", *front))))

    def _question(self, template: str) -> Sentence:
        past = self._random() < 0.5
        if template == "who":
            kind = self.pick(("person", "animal"))
            predicate = self._predicate(kind, False, past, "finite", 0)
            link: Tree = ("WHNP", "who") if kind == "person" else ("WHNP", "which", "animal")
            clause = _Clause(_Phrase(link, 0, "who", kind, False, "they"), predicate, past)
            return self._done(template, ("S", link, predicate.tree, "?"), clause)
        subject = self._subject(0)
        auxiliary: Tree = ("AUX", lex.do_form(past, subject.plural))
        front: tuple[Tree, ...] = (auxiliary,)
        if template == "what":
            verb = self.pick(ALL_VERBS["transitive", subject.kind])
            kind = self.pick(verb.objects)
            link = ("WHNP", "who") if kind == "person" else ("WHNP", "what")
            if kind in lex.HYPERNYMS and self._random() < 0.4:
                link = ("WHNP", "which", lex.HYPERNYMS[kind].form(self._random() < 0.5))
            tail, front = self._adjuncts(past, 1, False), (link, auxiliary)
            predicate = _Predicate(("VP", verb.lemma, *tail), verb.lemma)
        else:
            predicate = self._predicate(subject.kind, subject.plural, past, "bare", 0)
            if template == "where":
                front = (("WHADVP", self.pick(("where", "when", "why", "how"))), auxiliary)
        clause = _Clause(subject, predicate, past)
        tree: Tree = ("S", *front, subject.tree, predicate.tree, "?")
        return self._done(template, tree, clause, len(words(("S", *front))))

    def _special(self, template: str) -> Sentence:
        past = self._random() < 0.5
        if template == "imperative":
            predicate = self._predicate("person", True, False, "bare", 0)
            you = _Phrase(("NP",), 0, "you", "person", True, "you")
            start: tuple[str, ...] = self.pick(((), (), ("please",), ("do", "not")))
            tree: Tree = ("S", ("VP", *start, *predicate.tree[1:]), ".")
            return self._done(template, tree, _Clause(you, predicate, False), len(start))
        if template == "existential":
            found = self._np(self.pick(lex.NEAR_KINDS), 0)
            inside = self._place(0) if self._random() < 0.7 else self._time(past)
            tree = ("VP", lex.be_form(past, found.plural), found.tree, inside)
            subject = found._replace(tree=("EX", "there"), head=found.head + 2)
            predicate = _Predicate(tree, "be")
        else:
            verb = self.pick(VERBS["transitive"])
            subject = self._np(self.pick(verb.objects), 0)
            by: Tree = ("PP", "by", self._np(self.pick(verb.subjects), 0).tree)
            tail = [*((by,) if self._random() < 0.75 else ()), *self._adjuncts(past, 1, False)]
            tree = ("VP", lex.be_form(past, subject.plural), ("VP", verb.participle, *tail))
            predicate = _Predicate(tree, verb.lemma, 1)
        clause = _Clause(subject, predicate, past)
        return self._done(template, ("S", subject.tree, tree, "."), clause)

    def _coordination(self) -> Sentence:
        """Two clauses whose order shows only in how the second follows from the first."""
        past, mode = self._random() < 0.5, self._random()
        if mode < 0.35:
            first, second = self._script(past)
        else:
            subject = self._np(self.pick(lex.SUBJECT_KINDS), 1)
            again: Tree = ("NP", subject.pronoun)
            noun = lex.NOUN_BY_LEMMA.get(subject.lemma)
            if mode < 0.6 and noun is not None:
                form = noun.form(subject.plural)
                new = "some" if subject.plural else lex.determiner("a", form)
                subject = subject._replace(tree=("NP", new, form), head=1)
                again = ("NP", "the", form)
            kind, many = subject.kind, subject.plural
            first = _Clause(subject, self._predicate(kind, many, past, "finite", 1), past)
            told = self._predicate(kind, many, past, "finite", 2).tree
            thing = first.predicate.object
            verbs = lex.VERBS_BETWEEN.get((kind, thing.kind)) if thing else None
            if thing and verbs and self._random() < 0.5:
                verb = self.pick(verbs).form(past, many)
                told = ("VP", verb, ("NP", lex.OBJECT_PRONOUN[thing.pronoun]))
            second = ("S", again, told)
        link: Tree = ("CC", *self.pick((("and",), ("and",), ("but",), ("so",), ("and", "then"))))
        comma: tuple[str, ...] = (",",) if self._random() < 0.6 else ()
        left: Tree = ("S", first.subject.tree, first.predicate.tree)
        return self._done("coordination", ("S", left, *comma, link, second, "."), first)

    def _script(self, past: bool) -> tuple[_Clause, Tree]:
        """Two steps of a script, done by different people to the same thing."""
        before, after, kinds = self.pick(lex.SCRIPTS)
        thing = self._np(self.pick(kinds), 2, many=self._random() < 0.5)
        name = lex.NOUN_BY_LEMMA[thing.lemma].form(thing.plural)
        thing = thing._replace(tree=("NP", "the", name), head=1)
        one, two = self._np("person", 1), self._np("person", 2)
        verb = lex.VERB_BY_LEMMA[before].form(past, one.plural)
        predicate = _Predicate(("VP", verb, thing.tree), before, 0, thing, 1)
        told = lex.VERB_BY_LEMMA[after].form(past, two.plural)
        return _Clause(one, predicate, past), ("S", two.tree, ("VP", told, thing.tree))

"""Word lists of the embedded language: forms, semantic classes and selectional restrictions.

Every content word has one category only, so that a word form alone says what it is and a generator
can substitute words without checking their context.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

SPLITS: Final = ("train", "dev", "test")
# Half of all texts are for training; equal shares of the rest keep rejection cheap everywhere.
_SPLIT_OF_CODE: Final = ("train", "train", "dev", "test")


class Noun(NamedTuple):
    """A countable noun: singular, plural and semantic class."""

    lemma: str
    plural: str
    kind: str

    def form(self, plural: bool) -> str:
        """The form of the given number."""
        return self.plural if plural else self.lemma


class Verb(NamedTuple):
    """A verb with its forms, its frame and the classes that its arguments come from."""

    lemma: str
    third: str
    past: str
    participle: str
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]

    def form(self, past: bool, plural: bool) -> str:
        """The finite form of the given tense and subject number."""
        if past:
            return self.past
        return self.lemma if plural else self.third


def _items(text: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(text.split(separator))


def _pairs(text: str, between: str = " ") -> tuple[tuple[str, str], ...]:
    return tuple((a, b) for a, b in (item.strip().split(between) for item in text.split("|")))


_NOUNS: Final = {
    "person": "teacher doctor physician nurse farmer lawyer attorney sailor painter singer writer"
    " author baker butcher tailor soldier student professor engineer pilot waiter dentist actor"
    " dancer poet barber plumber carpenter mechanic librarian gardener manager reporter detective"
    " child:children kid woman:women man:men boy girl neighbor tourist guest worker",
    "animal": "dog cat horse cow pig goat wolf:wolves fox lion tiger bear monkey rabbit bunny hen"
    " rooster eagle owl snake turtle donkey elephant giraffe camel otter badger ferret lizard",
    "food": "apple pear banana orange carrot potato tomato onion cake cookie sandwich pancake"
    " sausage burger pizza noodle muffin biscuit melon peach cherry pumpkin omelet dumpling",
    "vehicle": "car automobile truck bus van taxi tractor bicycle bike motorcycle scooter wagon"
    " boat ship vessel airplane plane helicopter tram ambulance",
    "tool": "hammer wrench drill shovel rake chisel ladder knife:knives axe screwdriver pump"
    " bucket rope lantern tape needle scale brush broom mop",
    "document": "letter report book novel poem contract article essay newspaper magazine invoice"
    " diary map manual photo picture script memo recipe petition",
    "garment": "shirt coat jacket hat scarf:scarves glove sock boot skirt sweater dress sandal"
    " uniform apron robe vest",
    "instrument": "guitar piano violin flute trumpet harp cello clarinet banjo accordion tuba"
    " mandolin",
    "place": "garden kitchen school hospital office factory museum library market park bridge"
    " station harbor forest river village castle church theater hotel shop store field barn",
    "furniture": "table chair sofa couch desk shelf:shelves bed lamp mirror carpet cabinet stool"
    " drawer cradle",
}

_TRANSITIVE: Final = """
person animal|food|eat:ate:eaten consume
person|food|taste bake serve slice
animal|food|devour
animal person|food garment|smell
person|vehicle|drive:drove:driven steer
person org|vehicle furniture|rent
person|vehicle tool instrument furniture|repair fix
person|vehicle garment|wash
person|tool|use sharpen
person|tool document garment instrument|borrow
person|tool food document|drop:dropped
person|tool animal document|hold:held
person|document|copy sign translate edit:edited
person org|document|print finish complete
org person|document|publish
person|garment|wear:wore:worn sew:sewed:sewn stitch fold
person|instrument|tune play
person|person animal|help assist save rescue
person org|person|thank invite hire employ praise commend warn blame
person|person|visit:visited greet:greeted welcome teach:taught:taught instruct
person|person animal instrument|admire
person|animal|feed:fed tame
person animal|animal|catch:caught
animal person|animal|chase pursue hunt
animal|animal person|bite:bit:bitten scare frighten
animal person vehicle|animal person vehicle|follow
animal person|animal person|watch observe
animal person|animal person vehicle|hear:heard
person org|vehicle tool garment instrument furniture food|buy:bought purchase
person|tool document furniture food|carry
person animal|tool document food garment|hide:hid:hidden conceal
person org|document tool garment|lose:lost
person animal|food garment tool|steal:stole:stolen
person animal|food tool document|find:found discover
person|furniture vehicle|paint
person|furniture instrument|polish
person|furniture|move
vehicle|vehicle animal|dent:dented
vehicle|vehicle person|pass block
org person|vehicle furniture garment|design
"""
_INTRANSITIVE: Final = """
person animal|sleep:slept swim:swam:swum yawn run:ran:run jump
person|laugh smile work travel:traveled sing:sang:sung dance cough shout hesitate
person vehicle|arrive wait leave:left
animal person|rest escape
animal|growl
vehicle|crash stop:stopped rattle turn
org|grow:grew:grown
org person|fail
"""
_DITRANSITIVE: Final = """
person|document tool food garment instrument|give:gave:given
person|document food garment|send:sent
person|document instrument vehicle|show:showed:shown
person|food tool garment|offer:offered
person|tool garment instrument vehicle|lend:lent
person|document tool food|hand
person|vehicle instrument furniture|sell:sold
person|food document tool|bring:brought
"""
_CLAUSAL: Final = """
person org|say:said believe hope claim admit:admitted
person|think:thought know:knew:known suspect doubt
org person|announce
"""

# Antonym pairs; a class takes its own adjectives and, unless it is a person, the general ones.
_ADJECTIVES: Final = {
    "person": "tall short|young elderly|rich poor|happy sad|clever foolish|polite rude|brave timid"
    "|calm nervous|honest dishonest",
    "animal": "wild gentle|hungry sated|fast slow|healthy sick|big small|loud quiet",
    "food": "fresh stale|hot cold|sweet bitter|raw ripe|salty bland",
    "vehicle": "fast slow|safe dangerous|modern ancient|noisy silent",
    "document": "long brief|secret public|famous obscure|boring exciting",
    "garment": "loose tight|warm cool|elegant ugly",
    "place": "dark bright|crowded empty|local distant|busy deserted",
    "general": "new old|cheap expensive|clean dirty|heavy light|large tiny",
}
COLORS: Final = _items("red blue green yellow brown white black gray")

_SYNONYMS: Final = """eat consume|repair fix|finish complete|sew stitch|help assist|greet welcome
|hire employ|teach instruct|praise commend|save rescue|chase pursue|scare frighten|watch observe
|buy purchase|hide conceal|find discover|doctor physician|lawyer attorney|writer author|child kid
|rabbit bunny|car automobile|bicycle bike|ship vessel|airplane plane|photo picture|shop store
|sofa couch"""

MANNER_PAIRS: Final = _pairs(
    "quickly slowly|quietly loudly|carefully carelessly|gladly reluctantly|openly secretly"
    "|calmly angrily|alone together"
)
PLACE_PAIRS: Final = _pairs(
    "indoors/outdoors|upstairs/downstairs|nearby/far away|at home/abroad", between="/"
)
TIME_PAIRS: Final = _pairs(
    "in the morning/in the evening|at dawn/at dusk|on monday/on friday|in summer/in winter",
    between="/",
)
_PAST: Final = "yesterday|last week|last night|two days ago|a year ago|earlier|last month"
_PRESENT: Final = "every day|nowadays|every week|these days|every morning|currently|each year"
PAST_TIMES: Final = tuple(_items(phrase) for phrase in _items(_PAST, "|"))
PRESENT_TIMES: Final = tuple(_items(phrase) for phrase in _items(_PRESENT, "|"))
FREQUENCY: Final = _items("often usually sometimes always rarely never")

NEUTRAL_DETERMINERS: Final = _items("the the the the my our their his her your")
SINGULAR_DETERMINERS: Final = _items("a a a this that every each another one")
PLURAL_DETERMINERS: Final = _items("these those many several few two three some all")
PREPOSITIONS: Final = _items("near behind beside under above opposite")
PLACE_PREPOSITIONS: Final = _items("in near behind outside inside beside")
SUBORDINATORS: Final = _items("because when after before although while since if")
OTHER_WORDS: Final = _items(
    "and but so then or he she it they him them i we you who what which where when why how that"
    " is are was were be did do does not there by to of for with at from an on please true false"
    " person people animal animals vehicle vehicles tool tools document documents instrument"
    " instruments garment garments place places in summer winter monday friday dawn dusk , . ?"
)

MALE_NAMES: Final = _items(
    "john peter paul david robert thomas george henry edward martin oscar victor walter simon"
    " felix hugo"
)
FEMALE_NAMES: Final = _items(
    "mary anna laura helen alice emma julia clara nora ruth sarah diana irene olivia sophie martha"
)
SURNAMES: Final = _items(
    "smith miller clark lewis walker turner collins morgan dalton hudson lincoln preston"
    " bradford ashton clifton newton weber novak rossi silva ivanov tanaka moreau jensen"
)
# Some names are surnames as well, so that the type of an entity has to come from its context.
_CITIES: Final = _items(
    "lincoln dalton hudson preston bradford ashton clifton newton london paris berlin madrid"
    " oslo vienna boston denver new_haven san_marco port_louis green_bay saint_anton new_bradford"
)
CITIES: Final = tuple(_items(city, "_") for city in _CITIES)
ORGANISATION_HEADS: Final = tuple(
    _items(head, "_")
    for head in _items("bank motors press foods airlines steel_group college insurance")
)
HYPERNYMS: Final = {
    kind: Noun(kind, "people" if kind == "person" else f"{kind}s", kind)
    for kind in ("animal", "person", "vehicle", "tool", "document", "instrument", "garment")
}
# Ordered steps that one thing goes through: the first comes before the second.
_SCRIPTS: Final = (
    "bake eat:food|bake serve:food|slice eat:food|buy devour:food|print sign:document"
    "|find translate:document|edit publish:document|sign publish:document|sew wear:garment"
    "|buy wear:garment|wash fold:garment|tune play:instrument|buy tune:instrument"
    "|buy sharpen:tool|sharpen use:tool|lose find:tool document|buy drive:vehicle"
    "|repair drive:vehicle|hunt catch:animal|catch tame:animal|buy polish:furniture"
    "|paint move:furniture|steal hide:food garment tool|invite welcome:person"
    "|hire teach:person|warn blame:person"
)
SCRIPTS: Final = tuple(
    (steps.split()[0], steps.split()[1], _items(kinds))
    for steps, kinds in _pairs(_SCRIPTS, between=":")
)


def _with_s(base: str) -> str:
    if base.endswith(("s", "sh", "ch", "x", "z", "o")) and base not in (
        "photo",
        "banjo",
        "piano",
        "memo",
        "cello",
    ):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


def _past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + "ed"


def _verbs(table: str, frame: str) -> tuple[Verb, ...]:
    rows = []
    for line in table.strip().splitlines():
        *roles, listed = (tuple(part.split()) for part in line.split("|"))
        subjects, objects = (*roles, ())[:2]
        for forms in listed:
            base, *irregular = forms.split(":")
            past = irregular[0] if irregular else _past(base)
            participle = irregular[1] if len(irregular) > 1 else past
            rows.append(Verb(base, _with_s(base), past, participle, frame, subjects, objects))
    return tuple(rows)


def _nouns(kind: str, text: str) -> tuple[Noun, ...]:
    pairs = [item.split(":") for item in text.split()]
    return tuple(Noun(p[0], p[1] if len(p) > 1 else _with_s(p[0]), kind) for p in pairs)


NOUNS: Final = {kind: _nouns(kind, text) for kind, text in _NOUNS.items()}
VERBS: Final = {
    frame: _verbs(table, frame)
    for frame, table in (
        ("transitive", _TRANSITIVE),
        ("intransitive", _INTRANSITIVE),
        ("ditransitive", _DITRANSITIVE),
        ("clausal", _CLAUSAL),
    )
}
# What a subject of each class does, as often as it is named.
FRAMES: Final = {
    "person": ("transitive",) * 10
    + ("intransitive",) * 4
    + ("ditransitive", "clausal") * 2
    + ("copula",) * 2,
    "animal": ("transitive",) * 6 + ("intransitive",) * 4 + ("copula",),
    "vehicle": ("transitive",) * 3 + ("intransitive",) * 4 + ("copula",) * 2,
    "org": ("transitive",) * 5 + ("intransitive",) + ("clausal",) * 3,
}
SUBJECT_KINDS: Final = ("person",) * 11 + ("animal",) * 6 + ("vehicle", "org", "org")
NEAR_KINDS: Final = ("place", "person", "animal", "furniture", "vehicle", "tool")
OBJECT_PRONOUN: Final = {"he": "him", "she": "her", "it": "it", "they": "them"}


def verb_table(lemmas: frozenset[str] | None = None) -> dict[tuple[str, str], tuple[Verb, ...]]:
    """The verbs (those of the lemmas only, where given) by frame and class of the subject."""
    return {
        (frame, kind): tuple(
            v for v in group if kind in v.subjects and (lemmas is None or v.lemma in lemmas)
        )
        for frame, group in VERBS.items()
        for kind in FRAMES
    }


ALL_VERBS: Final = verb_table()
VERBS_OF_OBJECT: Final = {
    kind: tuple(v for v in VERBS["transitive"] if kind in v.objects and "person" in v.subjects)
    for kind in NOUNS
}
VERBS_BETWEEN: Final = {
    (one, other): tuple(v for v in ALL_VERBS["transitive", one] if other in v.objects)
    for one in FRAMES
    for other in NOUNS
}
VERB_BY_LEMMA: Final = {v.lemma: v for group in VERBS.values() for v in group}
NOUN_BY_LEMMA: Final = {n.lemma: n for group in NOUNS.values() for n in group}
NOUN_BY_FORM: Final = {
    form: (noun, form == noun.plural)
    for noun in NOUN_BY_LEMMA.values()
    for form in (noun.lemma, noun.plural)
}


ADJECTIVE_PAIRS: Final = {
    kind: (_pairs(_ADJECTIVES[kind]) if kind in _ADJECTIVES else ())
    + (() if kind == "person" else _pairs(_ADJECTIVES["general"]))
    for kind in NOUNS
}
ADJECTIVES: Final = {
    kind: tuple(a for pair in pairs for a in pair) + (() if kind == "person" else COLORS)
    for kind, pairs in ADJECTIVE_PAIRS.items()
}
SYNONYMS: Final = {word: other for a, b in _pairs(_SYNONYMS) for word, other in ((a, b), (b, a))}


SYNONYM_OF: Final = {
    a: VERB_BY_LEMMA[b] if b in VERB_BY_LEMMA else NOUN_BY_LEMMA[b] for a, b in SYNONYMS.items()
}
ANTONYMS: Final = {
    word: other
    for pairs in (*ADJECTIVE_PAIRS.values(), MANNER_PAIRS, PLACE_PAIRS, TIME_PAIRS)
    for a, b in pairs
    for word, other in ((a, b), (b, a))
}


def noun_shape(form: str) -> tuple[str, bool, bool]:
    """What nouns must share to stand for each other: class, number, and a vowel at the start."""
    noun, plural = NOUN_BY_FORM[form]
    return noun.kind, plural, form[0] in "aeio"


ALIKE: Final = {
    shape: tuple(form for form in NOUN_BY_FORM if noun_shape(form) == shape)
    for shape in sorted({noun_shape(form) for form in NOUN_BY_FORM})
}


_CONTENT: Final = {"person": 22, "animal": 15, "food": 5, "vehicle": 5, "tool": 3}
_SINGULAR: Final = {kind: ALIKE[kind, False, False] for kind in _CONTENT}
# The words to be found in a sentence, and those that can take the place of each form.
CONTENT_WORDS: Final = tuple(w for kind, size in _CONTENT.items() for w in _SINGULAR[kind][:size])
CONTENT_LIKE: Final = {
    w: _SINGULAR[kind][:size] for kind, size in _CONTENT.items() for w in _SINGULAR[kind]
}


def be_form(past: bool, plural: bool) -> str:
    """The finite form of ``be``."""
    return ("were" if plural else "was") if past else ("are" if plural else "is")


def do_form(past: bool, plural: bool) -> str:
    """The finite form of ``do``."""
    return "did" if past else "do" if plural else "does"


def determiner(word: str, following: str) -> str:
    """The determiner as it stands before that word: ``a`` becomes ``an`` before a vowel."""
    return "an" if word == "a" and following[0] in "aeio" else word


def split_of(text: str) -> str:
    """The one split that this text belongs to, by a hash of it."""
    return _SPLIT_OF_CODE[blake2b(text.encode(), digest_size=1).digest()[0] & 3]


def lemmas_of(verbs: bool, split: str) -> frozenset[str]:
    """The verbs or the nouns of one split: 60, 20 and 20 % of each group, by a hash of each."""
    found: list[str] = []
    for group in (VERBS if verbs else NOUNS).values():
        lemmas = [word.lemma for word in group]
        ranked = sorted(lemmas, key=lambda w: blake2b(w.encode(), digest_size=8).digest())
        cut = max(1, round(len(ranked) * 0.2))
        parts = {"test": ranked[:cut], "dev": ranked[cut : 2 * cut], "train": ranked[2 * cut :]}
        found += parts[split]
    return frozenset(found)


def _categories() -> dict[str, str]:
    found: dict[str, str] = {}

    def add(category: str, items: tuple[str, ...]) -> None:
        for item in items:
            found.setdefault(item, category)

    add("function", OTHER_WORDS + SUBORDINATORS)
    add("determiner", NEUTRAL_DETERMINERS + SINGULAR_DETERMINERS + PLURAL_DETERMINERS)
    add("preposition", PREPOSITIONS + PLACE_PREPOSITIONS)
    add("name", MALE_NAMES + FEMALE_NAMES + SURNAMES)
    for parts in CITIES + ORGANISATION_HEADS:
        add("name", parts)
    for group in NOUNS.values():
        add("noun", tuple(form for noun in group for form in (noun.lemma, noun.plural)))
    for verb in VERB_BY_LEMMA.values():
        add("verb", (verb.lemma, verb.third, verb.past, verb.participle))
    for adjectives in ADJECTIVES.values():
        add("adjective", adjectives)
    add("adverb", FREQUENCY)
    for pairs in (MANNER_PAIRS, PLACE_PAIRS, TIME_PAIRS):
        for pair in pairs:
            add("adverb", tuple(word for phrase in pair for word in phrase.split()))
    for times in PAST_TIMES + PRESENT_TIMES:
        add("adverb", times)
    return found


CATEGORY: Final = _categories()
VOCABULARY: Final = tuple(sorted(CATEGORY))

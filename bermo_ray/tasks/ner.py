"""Named entities: CoNLL-2003 and WikiAnn, from parquet, CoNLL text or the hub."""

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.tasks.heads import TAGGING
from bermo_ray.tasks.sources import Hub, Reader, Source, read_lines, read_parquet
from bermo_ray.tasks.task import Task


def _bio_tags(*kinds: str) -> tuple[str, ...]:
    return ("O", *(f"{mark}-{kind}" for kind in kinds for mark in "BI"))


CONLL_TAGS = _bio_tags("PER", "ORG", "LOC", "MISC")
WIKIANN_TAGS = _bio_tags("PER", "ORG", "LOC")
_COLUMNS = {"words": "tokens", "tags": "ner_tags"}
_LANGUAGE = re.compile(r"wikiann/[a-z]{2,}([-_][a-z]+)*")


def read_conll(file: Path, part: str = "") -> pa.Table:
    """CoNLL text: one word per line, its tag in the last field; an empty line ends a sentence.

    WikiAnn's words carry their language (``en:Paris``). Tags in the older scheme, where a B- only
    parts neighbours, become the newer one's, where it opens every entity.
    """
    sentences: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    language = re.compile(rf"^{re.escape(file.parent.name)}:(?=.)")
    for number, line in read_lines(file):
        fields = re.split(r"[ \t]+", line.strip(" \t"))  # words may hold other spaces
        if fields == [""] or fields[0] == "-DOCSTART-":
            if sentences[-1]:
                sentences.append([])
                tags.append([])
            continue
        if len(fields) < 2:
            raise UserError(f"{file}: line {number}: expected a word and its tag, found {line!r}")
        word, tag = fields[0], fields[-1]
        before = tags[-1][-1] if tags[-1] else "O"
        if tag.startswith("I-") and before[2:] != tag[2:]:
            tag = f"B-{tag[2:]}"
        sentences[-1].append(language.sub("", word, count=1))
        tags[-1].append(tag)
    if not sentences[-1]:
        sentences, tags = sentences[:-1], tags[:-1]
    words = pa.list_(pa.string())
    return pa.table({"tokens": pa.array(sentences, words), "ner_tags": pa.array(tags, words)})


def _conll_files(part: str) -> Mapping[str, Reader]:
    plain, older = {
        "train": ("train.txt", "eng.train"),
        "validation": ("valid.txt", "eng.testa"),
        "test": ("test.txt", "eng.testb"),
    }[part]
    return {
        f"conll2003/{part}.parquet": read_parquet,
        f"conll2003/{plain}": read_conll,
        f"conll2003/{older}": read_conll,
    }


def _task(name: str, tags: tuple[str, ...], source: Source) -> Task:
    return Task(
        name=name,
        head=TAGGING,
        labels=tags,
        metric="entity_f1",
        pair=False,
        open_source=source.open,
        columns=_COLUMNS,
        test="test",
    )


def tasks() -> dict[str, Task]:
    """``conll2003``, English."""
    source = Source(_conll_files, Hub("eriktks/conll2003", "conll2003", converted=True))
    return {"conll2003": _task("conll2003", CONLL_TAGS, source)}


def find_wikiann(name: str) -> Task | None:
    """WikiAnn in one language; None where the name is not ``wikiann/<language>``."""
    if not _LANGUAGE.fullmatch(name):
        return None

    def files(part: str) -> Mapping[str, Reader]:
        plain = "dev" if part == "validation" else part
        return {f"{name}/{part}.parquet": read_parquet, f"{name}/{plain}": read_conll}

    return _task(name, WIKIANN_TAGS, Source(files, Hub("unimelb-nlp/wikiann", name.split("/")[1])))

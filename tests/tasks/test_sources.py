"""Where rows come from, and what is said of rows that are wrong."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks import ner, probing, registry, squad
from bermo_ray.trial import Data


def settings(folder: Path, task: str, **more: Any) -> Data:
    return Data.model_validate({"task": task, "data_dir": str(folder)} | more)


def write(folder: Path, name: str, columns: dict[str, Any]) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return file


def text(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


SENTEVAL = "tr\tPAST\tHe slept .\nva\tPRES\tHe sleeps .\ntr\tPRES\tShe runs .\nte\tPAST\tIt ran .\n"
CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""


def test_sentevals_own_file(tmp_path: Path) -> None:
    text(tmp_path, "senteval/past_present.txt", SENTEVAL)
    task, data = registry.get("senteval/past_present"), settings(tmp_path, "senteval/past_present")
    rows = task.table(data, "train", 0)
    assert rows.to_pylist() == [
        {"text": "He slept .", "label": 0},
        {"text": "She runs .", "label": 1},
    ]
    assert task.table(data, "dev", 0)["text"].to_pylist() == ["He sleeps ."]


def test_the_ten_probing_tasks_are_there() -> None:
    names = [name for name in registry.tasks() if name.startswith("senteval/")]
    assert len(names) == 10
    assert len(registry.get("senteval/tree_depth").labels) == 8


def test_classes_that_only_the_data_knows(tmp_path: Path) -> None:
    lines = "".join(f"tr\t{word}\ta {word} .\nva\t{word}\tthe {word} .\n" for word in "cab")
    text(tmp_path, "senteval/word_content.txt", lines)
    data = settings(tmp_path, "senteval/word_content")
    assert registry.get(data.task).labels == ()
    task = registry.resolve(data)
    assert task.labels == ("a", "b", "c")
    assert task.table(data, "train", 0)["label"].to_pylist() == [2, 0, 1]


def test_conll_text(tmp_path: Path) -> None:
    text(tmp_path, "conll2003/train.txt", CONLL)
    rows = registry.get("conll2003").rows(settings(tmp_path, "conll2003"), "train")
    assert rows["words"].to_pylist() == [["EU", "rejects", "German"], ["Peter", "Blackburn"]]
    tags = [[ner.CONLL[t] for t in row] for row in rows["tags"].to_pylist()]
    assert tags == [["B-ORG", "O", "B-MISC"], ["B-PER", "I-PER"]]


def test_the_older_scheme_becomes_the_newer(tmp_path: Path) -> None:
    # There a B- only parts an entity from its neighbour of the same kind.
    lines = "a I-ORG\nb I-ORG\nc B-ORG\nd I-PER\ne O\nf I-PER\n"
    file = text(tmp_path, "conll2003/eng.train", lines)
    found = ner.conll(file)["ner_tags"].to_pylist()
    assert found == [["B-ORG", "I-ORG", "B-ORG", "B-PER", "O", "B-PER"]]


def test_words_may_hold_spaces_of_other_kinds(tmp_path: Path) -> None:
    file = text(tmp_path, "wikiann/fr/dev", "\ufefffr:10\u00a0000\tB-LOC\nfr:\u00a0\tO\n")
    assert ner.conll(file).to_pylist() == [
        {"tokens": ["10\u00a0000", "\u00a0"], "ner_tags": ["B-LOC", "O"]}
    ]


def test_tag_numbers_follow_their_names(tmp_path: Path) -> None:
    import datasets

    tags = datasets.ClassLabel(names=list(reversed(ner.CONLL)))
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(tags)}
    )
    rows = datasets.Dataset.from_dict({"tokens": [["Paris", "is"]], "ner_tags": [[3, 8]]}, features)
    (tmp_path / "conll2003").mkdir()
    rows.to_parquet(str(tmp_path / "conll2003/train.parquet"))
    found = registry.get("conll2003").rows(settings(tmp_path, "conll2003"), "train")
    assert [ner.CONLL[t] for t in found["tags"][0].as_py()] == ["B-LOC", "O"]


def test_wikianns_words_carry_their_language(tmp_path: Path) -> None:
    text(tmp_path, "wikiann/sw/dev", "sw:Dar\tB-LOC\nsw:es\tI-LOC\nsw:a:b\tO\n\n")
    rows = registry.get("wikiann/sw").rows(settings(tmp_path, "wikiann/sw"), "validation")
    assert rows.to_pylist() == [{"words": ["Dar", "es", "a:b"], "tags": [5, 6, 0]}]


def article(*answers: tuple[str, int], context: str = "The old dog slept .") -> str:
    found = [{"text": t, "answer_start": s} for t, s in answers]
    asked = {"id": "1", "question": "Who slept ?", "answers": found}
    return json.dumps(
        {"data": [{"title": "x", "paragraphs": [{"context": context, "qas": [asked]}]}]}
    )


def test_squads_own_file(tmp_path: Path) -> None:
    text(tmp_path, "squad/dev-v1.1.json", article(("old dog", 4), ("dog", 8)))
    rows = registry.get("squad").rows(settings(tmp_path, "squad"), "validation")
    assert rows.to_pylist() == [
        {
            "text": "Who slept ?",
            "text_pair": "The old dog slept .",
            "answers": ["old dog", "dog"],
            "answer_starts": [4, 8],
        }
    ]


def test_ones_own_text(tmp_path: Path) -> None:
    text(tmp_path, "text/train.txt", "CCO>>CC=O\n\nCC\n")
    rows = registry.get("text").rows(settings(tmp_path, "text"), "train")
    assert rows["text"].to_pylist() == ["CCO>>CC=O", "CC"]


def test_the_hub_gives_what_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: list[Any] = []

    def load(path: str, config: str | None = None, **more: Any) -> Any:
        asked.append((path, config, more))
        return datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [0, 1]})

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.delenv("BERMO_DATA", raising=False)
    assert registry.get("sst2").table(Data(task="sst2"), "dev", 0).num_rows == 2
    assert asked == [("nyu-mll/glue", "sst2", {"split": "validation"})]
    # Repositories with a loading script are read from the hub's parquet copy of them.
    with pytest.raises(UserError, match="no column 'tokens'"):
        registry.get("conll2003").table(Data(task="conll2003"), "dev", 0)
    place = "hf://datasets/eriktks/conll2003@~parquet/conll2003/validation/*.parquet"
    files = {"validation": place}
    assert asked[1] == ("parquet", None, {"data_files": files, "split": "validation"})


def test_no_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERMO_DATA", raising=False)
    for name in ("sst2", "conll2003", "squad", "wikiann/de", "wikitext2", "senteval/bigram_shift"):
        with pytest.raises(UserError, match="^task .*: the hub did not give .*; give --data-dir"):
            registry.get(name).rows(Data(task=name), "validation")
    with pytest.raises(UserError, match="^task text: it is not on the hub; give --data-dir"):
        registry.get("text").rows(Data(task="text"), "train")


def test_never_another_source_than_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: pytest.fail("asked the hub"))
    data = settings(tmp_path, "senteval/past_present")
    with pytest.raises(UserError, match=r"no file .*train.parquet \(nor senteval/past_present.txt"):
        registry.get(data.task).rows(data, "train")
    # The rebuilt tasks are never taken for the real ones.
    write(
        tmp_path,
        "senteval_rebuilt/past_present/train.parquet",
        {"sentence": ["a"], "label": ["PAST"]},
    )
    with pytest.raises(UserError, match="no file"):
        registry.get(data.task).rows(data, "train")
    text(tmp_path, "senteval/past_present.txt", SENTEVAL)
    write(tmp_path, "senteval/past_present/train.parquet", {"sentence": ["a"], "label": ["PAST"]})
    with pytest.raises(UserError, match="holds train twice: .*; keep one"):
        registry.get(data.task).rows(data, "train")


def test_class_numbers_follow_their_names(tmp_path: Path) -> None:
    """A file may number the classes its own way, and says so."""
    import datasets

    names = datasets.ClassLabel(names=["positive", "negative"])
    features = datasets.Features({"sentence": datasets.Value("string"), "label": names})
    rows = datasets.Dataset.from_dict({"sentence": ["good", "bad"], "label": [0, 1]}, features)
    (tmp_path / "glue/sst2").mkdir(parents=True)
    rows.to_parquet(str(tmp_path / "glue/sst2/train.parquet"))
    found = registry.get("sst2").rows(settings(tmp_path, "sst2"), "train")
    assert found["label"].to_pylist() == [1, 0]


BAD_PARQUET: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "sst2",
        "glue/sst2",
        {"text": ["a"], "label": [0]},
        "no column 'sentence'; found ['text', 'label']",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": pa.array([], pa.string()), "label": pa.array([], pa.int64())},
        "no rows",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a", "b"], "label": [0, 2]},
        "column 'label', row 1: label 2 is not one of 0..1",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a", "b"], "label": [-1, 0]},
        "column 'label', row 0: label -1 is not one of 0..1",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a", "b"], "label": [1, None]},
        "column 'label', row 1: no label",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a", None], "label": [0, 1]},
        "column 'sentence', row 1: no text",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a"], "label": [0.5]},
        "column 'label', row 0: expected classes, found double",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a"], "label": ["good"]},
        "column 'label', row 0: unknown label 'good': known: negative, positive",
    ),
    (
        "stsb",
        "glue/stsb",
        {"sentence1": ["a"] * 2, "sentence2": ["b"] * 2, "label": [1.0, math.nan]},
        "column 'label', row 1: nan is no number to learn",
    ),
    (
        "stsb",
        "glue/stsb",
        {"sentence1": ["a"] * 2, "sentence2": ["b"] * 2, "label": [math.inf, 1.0]},
        "column 'label', row 0: inf is no number to learn",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"], ["b", "c"]], "ner_tags": [[0], [1]]},
        "column 'ner_tags', row 1: 2 words but 1 tags",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"], ["b", "c"]], "ner_tags": [[0], [1, 9]]},
        "column 'ner_tags', row 1: tag 9 is not one of O, B-PER",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"]], "ner_tags": [["B-X"]]},
        "column 'ner_tags', row 0: tag 'B-X' is not one of",
    ),
    ("squad", "squad", {"question": ["q"], "context": ["a b"]}, "no column 'answers'"),
    (
        "squad",
        "squad",
        {"question": ["q"], "context": ["a b"], "answers": ["b"]},
        "column 'answers': expected text and answer_start, found string",
    ),
    (
        "squad",
        "squad",
        {"question": ["q"], "context": ["a b"], "answers": [{"text": ["b"], "answer_start": [1]}]},
        "column 'answers', row 0: 'b' is not at 1 in its context",
    ),
    (
        "squad",
        "squad",
        {"question": ["q"], "context": ["a b"], "answers": [{"text": [], "answer_start": []}]},
        "row 0: 0 answers and 0 places",
    ),
]


MORE_BAD: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a", None]], "ner_tags": [[0, 0]]},
        "column 'tokens', row 0: no text",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"], [1]][1:], "ner_tags": [[0]]},
        "column 'tokens', row 0: expected text, found int64",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": ["a"], "ner_tags": [[0]]},
        "column 'tokens', row 0: expected lists, found string",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"], []], "ner_tags": [[0], []]},
        "column 'tokens', row 1: no words",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"]], "ner_tags": [[0.5]]},
        "row 0: tag 0.5 is not one of",
    ),
    (
        "squad",
        "squad",
        {"question": ["q"], "context": ["a b"], "answers": [{"text": [""], "answer_start": [0]}]},
        "column 'answers', row 0: '' at 0 is no answer",
    ),
    (
        "squad",
        "squad",
        {
            "question": ["q"],
            "context": ["a b"],
            "answers": [{"text": ["b"], "answer_start": pa.scalar(None).as_py()}],
        },
        "row 0: 1 answers and 0 places",
    ),
]
BAD_PARQUET += MORE_BAD


@pytest.mark.parametrize(("task", "folder", "columns", "line"), BAD_PARQUET)
def test_bad_rows_name_file_column_and_row(
    tmp_path: Path, task: str, folder: str, columns: dict[str, Any], line: str
) -> None:
    file = write(tmp_path, f"{folder}/train.parquet", columns)
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        registry.get(task).rows(settings(tmp_path, task), "train")
    assert str(caught.value).startswith(f"{file}: ")
    assert line in str(caught.value)


BAD_TEXT: list[tuple[str, str, str | bytes, str]] = [
    (
        "senteval/past_present",
        "senteval/past_present.txt",
        "tr\tPAST\n",
        "line 1: expected tr, va or te",
    ),
    (
        "senteval/past_present",
        "senteval/past_present.txt",
        SENTEVAL.encode() + b"tr\tPAST\tcaf\xe9\n",
        "line 5: byte 0xe9 is not UTF-8; convert the file",
    ),
    (
        "senteval/past_present",
        "senteval/past_present.txt",
        "tr\tFUTURE\ta\n",
        "column 'label', row 0: unknown label 'FUTURE'",
    ),
    ("senteval/past_present", "senteval/past_present.txt", "va\tPAST\ta\n", "no rows"),
    (
        "conll2003",
        "conll2003/train.txt",
        "EU B-ORG\nalone\n",
        "line 2: expected a word and its tag, found 'alone'",
    ),
    ("conll2003", "conll2003/train.txt", b"caf\xe9 O\n", "line 1: byte 0xe9 is not UTF-8"),
    ("squad", "squad/train-v1.1.json", "{", "not a SQuAD file: JSONDecodeError"),
    ("squad", "squad/train-v1.1.json", b'{"data": "\xe9"}', "not a SQuAD file: UnicodeDecodeError"),
    (
        "squad",
        "squad/train-v1.1.json",
        article(("cat", 4)),
        "row 0: 'cat' is not at 4 in its context",
    ),
    ("sst2", "glue/sst2/train.parquet", "no parquet", "can't be read as parquet"),
]


@pytest.mark.parametrize(("task", "name", "content", "line"), BAD_TEXT)
def test_bad_files_name_file_and_line(
    tmp_path: Path, task: str, name: str, content: str | bytes, line: str
) -> None:
    file = text(tmp_path, name, content)
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        registry.get(task).rows(settings(tmp_path, task), "train")
    assert str(caught.value).startswith(f"{file}: ")
    assert line in str(caught.value)


def test_variants_of_text_are_read_as_text(tmp_path: Path) -> None:
    columns = {
        "sentence": pa.array(["a", "b"], pa.large_string()),
        "label": pa.array(["positive", "negative"]).dictionary_encode(),
    }
    write(tmp_path, "glue/sst2/train.parquet", columns)
    found = registry.get("sst2").rows(settings(tmp_path, "sst2"), "train")
    assert found.to_pylist() == [{"text": "a", "label": 1}, {"text": "b", "label": 0}]


def test_halves_of_an_embedded_set_never_overlap() -> None:
    task = registry.get("tense")
    first = task.table(Data(dev_half="first", dev_rows=30), "dev", 0)["text"].to_pylist()
    second = task.table(Data(dev_half="second", dev_rows=60), "dev", 0)["text"].to_pylist()
    assert (len(first), len(second)) == (30, 60)
    assert not set(first) & set(second)


def test_parquet_text_in_the_wrong_encoding_names_the_row(tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"caf\xe9"], pa.binary())
    strings = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    file = write(tmp_path, "glue/sst2/train.parquet", {"sentence": strings, "label": [0, 1]})
    with pytest.raises(UserError) as caught:
        registry.get("sst2").rows(settings(tmp_path, "sst2"), "train")
    assert str(caught.value) == f"{file}: column 'sentence', row 1: not UTF-8; convert the file"


@pytest.fixture
def hundred(tmp_path: Path) -> Callable[..., Data]:
    for part in ("train", "validation"):
        columns = {"sentence": [str(i) for i in range(101)], "label": [i % 2 for i in range(101)]}
        write(tmp_path, f"glue/sst2/{part}.parquet", columns)
    return lambda **more: settings(tmp_path, "sst2", **more)


def numbers(data: Data, split: Any, seed: int = 0) -> list[int]:
    return [int(t) for t in registry.get("sst2").table(data, split, seed)["text"].to_pylist()]


def test_subsets_by_count_and_share(hundred: Callable[..., Data]) -> None:
    assert numbers(hundred(), "train") == list(range(101))
    assert len(set(numbers(hundred(train_rows=30), "train"))) == 30
    assert numbers(hundred(train_rows=0.1), "train") == numbers(hundred(train_rows=10), "train")
    assert numbers(hundred(train_rows=500), "train") == list(range(101))
    assert numbers(hundred(dev_rows=0.05), "dev") == [0, 1, 2, 3, 4]
    # A larger subset of the same seed holds the smaller one.
    small, large = (numbers(hundred(train_rows=n), "train", 3) for n in (10, 20))
    assert large[:10] == small


def test_shots_are_rows_for_each_class_drawn_from_all_alike(hundred: Callable[..., Data]) -> None:
    draws = [numbers(hundred(shots=8), "train", seed) for seed in range(30)]
    assert all(len(set(draw)) == 16 for draw in draws)  # N·C with two classes
    assert draws[0] == numbers(hundred(shots=8), "train", 0) != draws[1]
    ones = [sum(n % 2 for n in draw) for draw in draws]
    assert len(set(ones)) > 3  # not stratified: the classes' shares vary
    assert abs(np.mean(ones) - 8) < 1
    with pytest.raises(UserError, match="data.shots: 200 rows wanted, train has 101"):
        numbers(hundred(shots=100), "train")


def test_halves_of_dev_are_fixed_and_share_nothing(hundred: Callable[..., Data]) -> None:
    first, second = (numbers(hundred(dev_half=half), "dev", 0) for half in ("first", "second"))
    assert len(first) == 51
    assert sorted(first + second) == list(range(101))
    assert first == numbers(hundred(dev_half="first"), "dev", 7)
    assert numbers(hundred(dev_half="second", dev_rows=5), "dev") == second[:5]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"train_rows": 1.5}, "train_rows: got 1.5, expected whole rows, or a share below 1"),
        ({"shots": 2, "train_rows": 5}, "both say how many rows"),
        ({"train_rows": 0}, "greater than 0"),
        ({"dev_half": "third"}, "'first' or 'second'"),
    ],
)
def test_bad_subsets_are_refused(more: dict[str, Any], line: str) -> None:
    from bermo_ray.trial import Trial

    with pytest.raises(UserError, match=line):
        Trial.from_dict({"data": {"task": "sst2"} | more})


def test_readers_give_the_hubs_columns(tmp_path: Path) -> None:
    """Original files and parquet go on as one."""
    file = text(tmp_path, "x.txt", SENTEVAL)
    assert probing.original(file, "train").column_names == ["sentence", "label"]
    file = text(tmp_path, "x.json", article(("dog", 8)))
    assert squad.original(file).schema.field("answers").type == squad.ANSWERS

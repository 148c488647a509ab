"""Where rows come from."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks import ner, probing, registry, squad
from bermo_ray.trial import Data
from tests.support.task_files import SENTEVAL, article, data_in, write_parquet, write_text

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""


def test_sentevals_own_file(tmp_path: Path) -> None:
    write_text(tmp_path, "senteval/past_present.txt", SENTEVAL)
    task, data = (
        registry.get_task("senteval/past_present"),
        data_in(tmp_path, "senteval/past_present"),
    )
    rows = task.take_rows(data, "train", 0)
    assert rows.to_pylist() == [
        {"text": "He slept .", "label": 0},
        {"text": "She runs .", "label": 1},
    ]
    assert task.take_rows(data, "dev", 0)["text"].to_pylist() == ["He sleeps ."]


def test_the_ten_probing_tasks_are_there() -> None:
    names = [name for name in registry.TASKS if name.startswith("senteval/")]
    assert len(names) == 10
    assert len(registry.get_task("senteval/tree_depth").labels) == 8


def test_classes_that_only_the_data_knows(tmp_path: Path) -> None:
    lines = "".join(f"tr\t{word}\ta {word} .\nva\t{word}\tthe {word} .\n" for word in "cab")
    write_text(tmp_path, "senteval/word_content.txt", lines)
    data = data_in(tmp_path, "senteval/word_content")
    assert registry.get_task(data.task).labels == ()
    task = registry.resolve_task(data)
    assert task.labels == ("a", "b", "c")
    assert task.take_rows(data, "train", 0)["label"].to_pylist() == [2, 0, 1]


def test_conll_text(tmp_path: Path) -> None:
    write_text(tmp_path, "conll2003/train.txt", CONLL)
    rows = registry.get_task("conll2003").read_rows(data_in(tmp_path, "conll2003"), "train")
    assert rows["words"].to_pylist() == [["EU", "rejects", "German"], ["Peter", "Blackburn"]]
    tags = [[ner.CONLL_TAGS[t] for t in row] for row in rows["tags"].to_pylist()]
    assert tags == [["B-ORG", "O", "B-MISC"], ["B-PER", "I-PER"]]


def test_the_older_scheme_becomes_the_newer(tmp_path: Path) -> None:
    # There a B- only parts an entity from its neighbour of the same kind.
    lines = "a I-ORG\nb I-ORG\nc B-ORG\nd I-PER\ne O\nf I-PER\n"
    file = write_text(tmp_path, "conll2003/eng.train", lines)
    tags = ner.read_conll(file)["ner_tags"].to_pylist()
    assert tags == [["B-ORG", "I-ORG", "B-ORG", "B-PER", "O", "B-PER"]]


def test_words_may_hold_spaces_of_other_kinds(tmp_path: Path) -> None:
    file = write_text(tmp_path, "wikiann/fr/dev", "\ufefffr:10\u00a0000\tB-LOC\nfr:\u00a0\tO\n")
    assert ner.read_conll(file).to_pylist() == [
        {"tokens": ["10\u00a0000", "\u00a0"], "ner_tags": ["B-LOC", "O"]}
    ]


def test_tag_numbers_follow_their_names(tmp_path: Path) -> None:
    import datasets

    tags = datasets.ClassLabel(names=list(reversed(ner.CONLL_TAGS)))
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(tags)}
    )
    dataset = datasets.Dataset.from_dict(
        {"tokens": [["Paris", "is"]], "ner_tags": [[3, 8]]}, features
    )
    (tmp_path / "conll2003").mkdir()
    dataset.to_parquet(str(tmp_path / "conll2003/train.parquet"))
    rows = registry.get_task("conll2003").read_rows(data_in(tmp_path, "conll2003"), "train")
    assert [ner.CONLL_TAGS[t] for t in rows["tags"][0].as_py()] == ["B-LOC", "O"]


def test_wikianns_words_carry_their_language(tmp_path: Path) -> None:
    write_text(tmp_path, "wikiann/sw/dev", "sw:Dar\tB-LOC\nsw:es\tI-LOC\nsw:a:b\tO\n\n")
    rows = registry.get_task("wikiann/sw").read_rows(data_in(tmp_path, "wikiann/sw"), "validation")
    assert rows.to_pylist() == [{"words": ["Dar", "es", "a:b"], "tags": [5, 6, 0]}]


def test_squads_own_file(tmp_path: Path) -> None:
    write_text(tmp_path, "squad/dev-v1.1.json", article(("old dog", 4), ("dog", 8)))
    rows = registry.get_task("squad").read_rows(data_in(tmp_path, "squad"), "validation")
    assert rows.to_pylist() == [
        {
            "text": "Who slept ?",
            "text_pair": "The old dog slept .",
            "answers": ["old dog", "dog"],
            "answer_starts": [4, 8],
        }
    ]


def test_ones_own_text(tmp_path: Path) -> None:
    write_text(tmp_path, "text/train.txt", "CCO>>CC=O\n\nCC\n")
    rows = registry.get_task("text").read_rows(data_in(tmp_path, "text"), "train")
    assert rows["text"].to_pylist() == ["CCO>>CC=O", "CC"]


def test_the_hub_gives_what_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: list[Any] = []

    def load(path: str, config: str | None = None, **more: Any) -> Any:
        asked.append((path, config, more))
        return datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [0, 1]})

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.delenv("BERMO_DATA", raising=False)
    assert registry.get_task("sst2").take_rows(Data(task="sst2"), "dev", 0).num_rows == 2
    assert asked == [("nyu-mll/glue", "sst2", {"split": "validation"})]
    # Repositories with a loading script are read from the hub's parquet copy of them.
    with pytest.raises(UserError, match="no column 'tokens'"):
        registry.get_task("conll2003").take_rows(Data(task="conll2003"), "dev", 0)
    url = "hf://datasets/eriktks/conll2003@~parquet/conll2003/validation/*.parquet"
    files = {"validation": url}
    assert asked[1] == ("parquet", None, {"data_files": files, "split": "validation"})


def test_no_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERMO_DATA", raising=False)
    for name in ("sst2", "conll2003", "squad", "wikiann/de", "wikitext2", "senteval/bigram_shift"):
        with pytest.raises(UserError, match="^task .*: the hub did not give .*; set `data_dir`"):
            registry.get_task(name).read_rows(Data(task=name), "validation")
    with pytest.raises(UserError, match="^task text: it is not on the hub; set `data_dir`"):
        registry.get_task("text").read_rows(Data(task="text"), "train")


def test_never_another_source_than_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: pytest.fail("asked the hub"))
    data = data_in(tmp_path, "senteval/past_present")
    with pytest.raises(UserError, match=r"no file .*train.parquet \(nor senteval/past_present.txt"):
        registry.get_task(data.task).read_rows(data, "train")
    # The rebuilt tasks are never taken for the real ones.
    write_parquet(
        tmp_path,
        "senteval_rebuilt/past_present/train.parquet",
        {"sentence": ["a"], "label": ["PAST"]},
    )
    with pytest.raises(UserError, match="no file"):
        registry.get_task(data.task).read_rows(data, "train")
    write_text(tmp_path, "senteval/past_present.txt", SENTEVAL)
    write_parquet(
        tmp_path, "senteval/past_present/train.parquet", {"sentence": ["a"], "label": ["PAST"]}
    )
    with pytest.raises(UserError, match="holds train twice: .*; keep one"):
        registry.get_task(data.task).read_rows(data, "train")


def test_class_numbers_follow_their_names(tmp_path: Path) -> None:
    """A file may number the classes its own way, and says so."""
    import datasets

    names = datasets.ClassLabel(names=["positive", "negative"])
    features = datasets.Features({"sentence": datasets.Value("string"), "label": names})
    dataset = datasets.Dataset.from_dict({"sentence": ["good", "bad"], "label": [0, 1]}, features)
    (tmp_path / "glue/sst2").mkdir(parents=True)
    dataset.to_parquet(str(tmp_path / "glue/sst2/train.parquet"))
    rows = registry.get_task("sst2").read_rows(data_in(tmp_path, "sst2"), "train")
    assert rows["label"].to_pylist() == [1, 0]


def test_variants_of_text_are_read_as_text(tmp_path: Path) -> None:
    columns = {
        "sentence": pa.array(["a", "b"], pa.large_string()),
        "label": pa.array(["positive", "negative"]).dictionary_encode(),
    }
    write_parquet(tmp_path, "glue/sst2/train.parquet", columns)
    rows = registry.get_task("sst2").read_rows(data_in(tmp_path, "sst2"), "train")
    assert rows.to_pylist() == [{"text": "a", "label": 1}, {"text": "b", "label": 0}]


def test_readers_give_the_hubs_columns(tmp_path: Path) -> None:
    """Original files and parquet go on as one."""
    file = write_text(tmp_path, "x.txt", SENTEVAL)
    assert probing.read_senteval(file, "train").column_names == ["sentence", "label"]
    file = write_text(tmp_path, "x.json", article(("dog", 8)))
    assert squad.read_squad(file).schema.field("answers").type == squad.ANSWERS

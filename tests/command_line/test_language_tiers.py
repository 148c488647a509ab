"""Tiers of languages on the command line, and what is wrong with them."""

from pathlib import Path

import pytest

from bermo_ray.command_line.language_tiers import check_tier_files, parse_tiers
from bermo_ray.errors import UserError
from tests.support.task_files import write_parquet


def problems(*tiers: str) -> tuple[str, ...]:
    with pytest.raises(UserError) as raised:
        parse_tiers(tiers)
    return raised.value.problems


def test_languages_are_tasks() -> None:
    assert parse_tiers(["high=de,fr", "mid=zh-min-nan", "low=entities/dialect60,am"]) == {
        "high": ("wikiann/de", "wikiann/fr"),
        "mid": ("wikiann/zh-min-nan",),
        "low": ("entities/dialect60", "wikiann/am"),
    }


@pytest.mark.parametrize("text", ["high", "high=", "=de", "high=de,", "high=de,,fr", ""])
def test_a_malformed_tier(text: str) -> None:
    assert problems("low=am", text) == (
        f"tiers: got {text!r}, expected TIER=LANGUAGE,LANGUAGE, as in high=de,fr",
    )


def test_what_is_there_twice() -> None:
    assert problems("high=de", "mid=sw,de") == ("tiers: de is in high and in mid, expected once",)
    assert problems("high=de,de") == ("tiers: de is in high twice, expected once",)
    assert problems("high=de", "high=fr") == (
        "tiers: high is given twice; put its languages into one",
    )


def test_every_problem_at_once() -> None:
    assert len(problems("high", "mid=sw,sw", "low=D3")) == 3


def test_an_unknown_language_or_dialect() -> None:
    assert problems("high=entities/dialect31")[0].startswith(
        "tiers: unknown task 'entities/dialect31': did you mean entities/dialect30"
    )
    assert problems("low=German")[0].startswith("tiers: unknown task 'wikiann/German'")


def test_a_tier_without_its_files_is_one_line(tmp_path: Path) -> None:
    columns = {"tokens": [["a"]], "ner_tags": [[0]]}
    for part in ("train", "validation"):
        write_parquet(tmp_path, f"wikiann/de/{part}.parquet", columns)
    write_parquet(tmp_path, "wikiann/sw/train.parquet", columns)  # and no dev rows
    tiers = {
        "high": ["wikiann/de"],
        "low": ["wikiann/sw", "wikiann/am", "wikiann/de", "entities/dialect30"],
    }
    with pytest.raises(UserError) as raised:
        check_tier_files(tiers, str(tmp_path))
    (line,) = raised.value.problems
    folder = tmp_path / "wikiann" / "sw"
    assert line == (
        "tiers: low lacks the rows of sw, am: task wikiann/sw: no file "
        f"{folder}/validation.parquet (nor wikiann/sw/dev)"
    )
    check_tier_files({"high": ["wikiann/de"]}, str(tmp_path))
    check_tier_files({"low": ["entities/dialect60"]}, None)

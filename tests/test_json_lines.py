from pathlib import Path
from typing import Any

import pytest

from bermo_ray.json_lines import JsonLines
from tests.support.small_disks import fill_up, mount_disk


def entry_of(size: int) -> dict[str, Any]:
    """An entry that takes so many bytes, its newline among them."""
    return {"a": "x" * (size - len('{"a": ""}\n'))}


def test_a_line_that_was_cut_off_is_lost_and_no_other(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "log.jsonl")
    assert lines.read() == []
    expected: list[dict[str, Any]] = []
    for cut in range(1, 9):
        with lines.file.open("ab") as stream:
            stream.write(b'{"c": 3}'[:cut])
        assert lines.read() == expected
        expected.append({"b": f"two\nlines {cut}"})
        lines.append(expected[-1])
        assert lines.read() == expected


def test_who_reads_leaves_what_another_process_is_writing(tmp_path: Path) -> None:
    writer = JsonLines(tmp_path / "log.jsonl")
    writer.append({"a": 1})
    with writer.file.open("ab", buffering=0) as stream:
        stream.write(b'{"b": ')
        assert JsonLines(writer.file).read() == [{"a": 1}]
        stream.write(b"2}\n")
    assert writer.read() == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("size", "pages", "added"),
    [(8190, 1, 5000), (4010, 0, 1000), (4096, 0, 20), (4000, 2, 20_000), (4095, 1, 8000)],
)
def test_on_a_full_disk_an_entry_is_complete_or_not_there(
    size: int, pages: int, added: int, tmp_path: Path
) -> None:
    with mount_disk(tmp_path / "disk", 1) as disk:
        lines = JsonLines(disk / "log.jsonl")
        lines.append(entry_of(size))
        ballast = fill_up(disk, leave=4096 * pages)
        with pytest.raises(OSError, match="No space left"):
            lines.append(entry_of(added))
        assert lines.file.stat().st_size == size
        assert lines.read() == [entry_of(size)]
        ballast.unlink()
        lines.append(entry_of(added))
        lines.append({"b": 2})
        assert lines.read() == [entry_of(size), entry_of(added), {"b": 2}]

from pathlib import Path

from bermo_ray.json_lines import JsonLines


def test_a_line_that_was_cut_off_is_lost_and_no_other(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "log.jsonl")
    assert lines.read() == []
    lines.append({"a": 1})
    lines.append({"b": "two\nlines"})
    size = lines.file.stat().st_size
    for cut in range(1, 8):
        with lines.file.open("ab") as stream:
            stream.write(b'{"c": 3}'[:cut])
        assert lines.read() == [{"a": 1}, {"b": "two\nlines"}]
        assert lines.file.stat().st_size == size
    lines.append({"c": 3})
    assert lines.read()[-1] == {"c": 3}

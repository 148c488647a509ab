"""Folders here and in buckets: what is in them, and which is in which."""

from pathlib import Path

import pytest

from bermo_ray.errors import UserError
from bermo_ray.tracking.folders import FolderSet, list_files, path_within, remove_folder


def write(file: Path, size: int) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    return file


def test_files_are_listed_by_path_or_uri(tmp_path: Path) -> None:
    write(tmp_path / "a" / "one", 3)
    write(tmp_path / "a" / "b" / "two", 5)
    expected = {"one": 3, "b/two": 5}
    assert list_files(str(tmp_path / "a")) == list_files((tmp_path / "a").as_uri()) == expected
    assert list_files(str(tmp_path / "nowhere")) == {}
    with pytest.raises(UserError, match="^odd://x can't be read: "):
        list_files("odd://x")


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "two", 5)
    write(tmp_path / "c", 1)
    remove_folder((tmp_path / "a").as_uri())
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    with pytest.raises(UserError, match="can't be removed"):
        remove_folder(str(tmp_path / "a"))


def test_what_is_within_what(tmp_path: Path) -> None:
    outer = str(tmp_path / "runs")
    assert path_within(f"{outer}/s/1", outer) == "s/1"
    assert path_within((tmp_path / "runs" / "s").as_uri(), outer) == "s"
    assert path_within(outer, outer) is None
    assert path_within(f"{outer}/../other", outer) is None
    assert path_within(f"{outer}-2/s", outer) is None
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path)
    assert path_within(f"{outer}/link", outer) is None
    assert path_within("s3://bucket/runs/s/1/", "s3://bucket/runs/") == "s/1"
    for outside in ("s3://bucket/runs", "s3://bucket/runs/../t", "s3://other/runs/s", outer):
        assert path_within(outside, "s3://bucket/runs") is None


def test_which_folders_share_files(tmp_path: Path) -> None:
    kept = FolderSet([str(tmp_path / "s" / "1"), "s3://bucket/s/2"])
    assert kept.touches(f"{tmp_path}/s/1/")
    assert kept.touches(f"{tmp_path}/s/1/checkpoint")
    assert kept.touches(f"{tmp_path}/s")
    assert kept.touches("s3://bucket/s/2")
    assert not kept.touches(f"{tmp_path}/s/10")
    assert not kept.touches("s3://bucket/s/1")

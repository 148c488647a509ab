"""Whatever is cut off, and wherever: one complete checkpoint is there, the newest that can be."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.space import OutOfSpaceError
from bermo_ray.training.checkpoint_folder import CheckpointFolder


def saving(number: int) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        (folder / "model.safetensors").write_text(str(number))
        (folder / "progress.json").write_text("{}")

    return save


def read(folder: CheckpointFolder) -> str | None:
    path = folder.find()
    return None if path is None else (path / "model.safetensors").read_text()


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(params=["folder", "bucket"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointFolder:
    folder = CheckpointFolder(tmp_path / "study" / "trial")
    folder._is_local = request.param == "folder"
    return folder


def test_the_newest_takes_the_place_of_the_one_before(
    folder: CheckpointFolder, tmp_path: Path
) -> None:
    assert read(folder) is None
    for number in (1, 2):
        folder.write(saving(number))
        assert read(folder) == str(number)
    assert [path.name for path in (tmp_path / "study").iterdir()] == ["trial"]
    folder.remove()
    assert read(folder) is None
    assert list((tmp_path / "study").iterdir()) == []


def test_a_save_that_raises_leaves_the_one_before(folder: CheckpointFolder, tmp_path: Path) -> None:
    folder.write(saving(1))

    def save(path: Path) -> None:
        (path / "model.safetensors").write_text("2")
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        folder.write(save)
    assert read(folder) == "1"
    assert [path.name for path in (tmp_path / "study").iterdir()] == ["trial"]


def test_cut_off_at_any_call_there_is_a_complete_one(
    folder: CheckpointFolder, tmp_path: Path
) -> None:
    """Every call to the storage is the last one, once; whoever comes next finds, in its place,
    what is complete."""
    folder.write(saving(0))
    reached = []
    for last_call in range(60):
        cut = CheckpointFolder(folder.location)
        cut._is_local = folder._is_local
        cut._files = CutOff(cut._files, last_call)
        cut._copy_all = lambda files, source, target: folder._copy_all(  # type: ignore[method-assign]
            getattr(files, "files", files), source, target
        )
        try:
            cut.write(saving(last_call + 1))
        except Killed:
            found = read(folder)
            assert found is not None, f"nothing is left after call {last_call}"
            assert int(found) in (*reached[-1:], 0, last_call + 1)
            reached.append(int(found))
            copy = tmp_path / f"copy{last_call}"
            shutil.copytree(tmp_path / "study", copy)
            settled = CheckpointFolder(copy / "trial")
            settled._is_local = folder._is_local
            settled.settle()
            assert (copy / "trial" / "model.safetensors").read_text() == found
            assert not (copy / "trial.new" / "progress.json").exists()
            continue
        assert read(folder) == str(last_call + 1)
        break
    else:
        raise AssertionError("it never came to its end")
    assert last_call >= 5  # so many times it was cut off


class CutOff:
    """Passes calls on to a file system until the process is killed."""

    def __init__(self, files: Any, calls: int) -> None:
        self.files, self.calls = files, calls

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if name in ("create_dir", "delete_file", "delete_dir", "move"):
                if self.calls == 0:
                    raise Killed
                self.calls -= 1
            return getattr(self.files, name)(*arguments, **named)

        return call


def test_a_full_disk_is_told_from_other_errors(folder: CheckpointFolder) -> None:
    def full(path: Path) -> None:
        raise RuntimeError("I/O error: No space left on device (os error 28)")

    folder.write(saving(1))
    with pytest.raises(OutOfSpaceError, match="^storage: no room left in .*trial; make some, then"):
        folder.write(full)
    assert read(folder) == "1"

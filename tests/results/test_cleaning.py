"""Which checkpoints a cleaned study keeps."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.errors import UserError
from bermo_ray.record import PREDICTIONS_FILE, Report, Status
from bermo_ray.results import cleaning, load
from bermo_ray.results.cleaning import judge_checkpoints, remove_checkpoints
from bermo_ray.tracking import store
from bermo_ray.tracking.store import Store, store_uri
from bermo_ray.trial import L0, Distillation, Trial
from tests.support.checkpoints import (
    SIZE,
    completed,
    set_checkpoint,
    write_checkpoint,
    write_study,
)


def pruned(seed: int) -> Trial:
    return Trial(pruning=L0(), seed=seed)


# Two pruned trials that no other is smaller and better than, one that is, a dense one, and what
# ended otherwise.
TRIALS = [
    (pruned(0), completed(0.2, 0.8)),
    (pruned(1), completed(0.4, 0.9)),
    (pruned(2), completed(0.5, 0.85)),
    (Trial(), completed(1.0, 0.92)),
    (Trial(seed=1), completed(1.0, 0.91)),
    (pruned(3), Report(status=Status.DIVERGED, step=7, reason="the loss is nan")),
    (pruned(4), Report(status=Status.STOPPED, step=5, metric=0.6, remaining=0.9)),
    (pruned(5), Report(status=Status.FAILED, reason="a bug")),
]
ON_FRONTIER = [0, 1, 3]


def clean(runs: Path, study: str, keep_frontier: bool = True) -> dict[str, int]:
    """Cleans a study; gives why its checkpoints are kept, and how often."""
    where = Store(runs).of_study(study)
    judged = judge_checkpoints(study, where, keep_frontier)
    remove_checkpoints(judged, where.uri)
    reasons = [c.kept_because for c in judged if c.kept_because]
    return {reason: reasons.count(reason) for reason in reasons}


def numbers_left(folders: list[Path]) -> list[int]:
    return [number for number, folder in enumerate(folders) if folder.exists()]


def test_exactly_the_frontier_stays(tmp_path: Path) -> None:
    folders = write_study(tmp_path, "s", TRIALS)
    judged = judge_checkpoints("s", Store(tmp_path))
    assert [c.size for c in judged] == [SIZE] * len(TRIALS)
    before = load("s", store_uri(tmp_path))
    assert clean(tmp_path, "s") == {cleaning.ON_FRONTIER: 3}
    assert numbers_left(folders) == ON_FRONTIER
    # Nothing that is recorded has changed, and a second time there is nothing to do.
    assert load("s", store_uri(tmp_path)).equals(before)
    assert clean(tmp_path, "s") == {cleaning.ON_FRONTIER: 3}
    assert numbers_left(folders) == ON_FRONTIER


def test_a_removed_checkpoint_is_told_and_its_path_is_kept(tmp_path: Path) -> None:
    folders = write_study(tmp_path, "s", TRIALS)
    clean(tmp_path, "s")
    uri = store_uri(tmp_path)
    removed, kept = (store.find_trial(uri, TRIALS[number][0].id) for number in (2, 0))
    assert removed.data.tags["bermo.checkpoint"] == str(folders[2])
    with pytest.raises(UserError, match=rf"^the checkpoint of trial {TRIALS[2][0].id[:6]} was "):
        store.find_checkpoint(removed)
    assert store.find_checkpoint(kept) == str(folders[0])


def test_all_leaves_what_others_need(tmp_path: Path) -> None:
    folders = write_study(tmp_path, "s", TRIALS)
    student = Trial(distillation=Distillation(teacher=str(folders[3])), seed=8)
    started = Trial(warm_start=f"{tmp_path}/checkpoints/../checkpoints/s/00002/", seed=9)
    write_study(tmp_path, "students", [(student, completed(1.0, 0.9)), (started, Report(step=1))])
    assert clean(tmp_path, "s", keep_frontier=False) == {cleaning.NEEDED: 2}
    assert numbers_left(folders) == [2, 3]


def test_what_may_be_resumed_stays(tmp_path: Path) -> None:
    trials = [*TRIALS, (pruned(6), Report(step=3, metric=0.7, remaining=0.9))]
    folders = write_study(tmp_path, "stopped", trials, Status.INTERRUPTED)
    # The failed trial would be tried again.
    assert clean(tmp_path, "stopped", keep_frontier=False) == {cleaning.UNFINISHED: 2}
    assert numbers_left(folders) == [7, 8]


def test_without_pruning_the_best_of_each_fusion_stays(tmp_path: Path) -> None:
    trials = [
        (Trial(seed=seed).replace(fusion=fusion), completed(1.0, metric))
        for fusion, metrics in (("last", (0.8, 0.82)), ("bermo", (0.84, 0.83)))
        for seed, metric in enumerate(metrics)
    ]
    folders = write_study(tmp_path, "s", trials)
    clean(tmp_path, "s")
    assert numbers_left(folders) == [1, 2]


def test_the_best_stays_where_nothing_is_better_than_a_constant_answer(tmp_path: Path) -> None:
    trials = [(pruned(seed), completed(0.5, 0.4 + seed / 100)) for seed in range(3)]
    folders = write_study(tmp_path, "s", trials)
    clean(tmp_path, "s")
    assert numbers_left(folders) == [2]


def test_the_frontier_of_a_study_that_took_a_trial_stays(tmp_path: Path) -> None:
    folders = write_study(tmp_path, "s", TRIALS)
    write_study(tmp_path, "later", [(Trial(seed=7), completed(1.0, 0.7))])
    uri = store_uri(tmp_path)
    later = store.find_study(uri, "later")
    assert later is not None
    taken = [store.find_trial(uri, TRIALS[number][0].id).info.run_id for number in (2, 5)]
    store.add_taken_runs(uri, later.info.run_id, dict.fromkeys(taken, "s"))
    assert clean(tmp_path, "s") == {cleaning.ON_FRONTIER: 3, cleaning.TAKEN: 1}
    assert numbers_left(folders) == sorted([*ON_FRONTIER, 2])
    # What it took is not its own to remove.
    own = tmp_path / "checkpoints" / "later" / "00000"
    assert clean(tmp_path, "later", keep_frontier=False) == {}
    assert not own.exists()
    assert numbers_left(folders) == sorted([*ON_FRONTIER, 2])


def test_a_tampered_record_removes_nothing(tmp_path: Path) -> None:
    folders = write_study(tmp_path, "s", TRIALS)
    precious = write_checkpoint(tmp_path / "elsewhere")
    write_checkpoint(tmp_path / "checkpoints" / "t" / "0")
    (tmp_path / "checkpoints" / "s" / "to").symlink_to(precious)
    inside = "checkpoints/s"
    for path in ("elsewhere", "checkpoints", inside, f"{inside}/../t/0", f"{inside}/to"):
        set_checkpoint(tmp_path, TRIALS[5][0], f"{tmp_path}/{path}")
        with pytest.raises(UserError, match=r"is not in .*checkpoints/s; nothing was removed"):
            clean(tmp_path, "s")
    assert numbers_left(folders) == list(range(len(TRIALS)))
    assert sum(file.stat().st_size for file in precious.iterdir()) == SIZE
    assert (tmp_path / "checkpoints" / "t" / "0" / "progress.json").is_file()


def test_the_record_of_one_trial_can_not_remove_anothers(tmp_path: Path) -> None:
    folders = write_study(tmp_path, "s", TRIALS)
    set_checkpoint(tmp_path, TRIALS[5][0], str(folders[0]))
    with pytest.raises(UserError, match=f"{folders[0]} is that of a trial that is kept; nothing"):
        clean(tmp_path, "s")
    assert numbers_left(folders) == list(range(len(TRIALS)))


def test_a_study_whose_name_is_no_folder_of_its_own_is_refused(tmp_path: Path) -> None:
    trials = [(Trial(seed=seed), completed(1.0, 0.9 - seed / 10)) for seed in (0, 1)]
    folders = write_study(tmp_path / "runs", "..", trials)
    with pytest.raises(UserError, match=r"^study '\.\.' has no folder of its own in"):
        clean(tmp_path / "runs", "..")
    assert numbers_left(folders) == [0, 1]


def test_checkpoints_in_a_storage_of_their_own(tmp_path: Path) -> None:
    """By a URI, as in a bucket."""
    elsewhere = tmp_path / "elsewhere"
    folders = write_study(tmp_path / "runs", "s", TRIALS, checkpoints=elsewhere)
    with pytest.raises(UserError, match="give its `storage`$"):
        clean(tmp_path / "runs", "s")
    for (trial, _), folder in zip(TRIALS, folders, strict=True):
        set_checkpoint(tmp_path / "runs", trial, folder.as_uri())
    (tmp_path / "runs" / "s").mkdir()
    started = f'{{"settings": {{"storage": "{elsewhere.as_uri()}"}}}}'
    (tmp_path / "runs" / "s" / "study.json").write_text(started)
    assert clean(tmp_path / "runs", "s") == {cleaning.ON_FRONTIER: 3}
    assert numbers_left(folders) == ON_FRONTIER


def test_a_checkpoint_that_is_gone_already_is_passed_over(tmp_path: Path) -> None:
    folders = write_study(tmp_path, "s", TRIALS)
    shutil.rmtree(folders[2])
    assert len(judge_checkpoints("s", Store(tmp_path))) == len(TRIALS) - 1
    clean(tmp_path, "s")
    assert "bermo.checkpoint_removed" not in store.find_trial(
        store_uri(tmp_path), TRIALS[2][0].id
    ).data.tags  # fmt: skip


def test_predictions_that_are_in_the_checkpoint_alone_are_kept(tmp_path: Path) -> None:
    """As where the store was away when the trial ended."""
    folders = write_study(tmp_path, "s", TRIALS)
    rows = pa.table({"row": [0, 1], "right": [True, False]})
    pq.write_table(rows, folders[2] / PREDICTIONS_FILE)
    clean(tmp_path, "s")
    assert results.predictions(TRIALS[2][0].id, store_uri(tmp_path)).equals(rows)
    with pytest.raises(UserError, match="kept no predictions"):
        results.predictions(TRIALS[4][0].id, store_uri(tmp_path))

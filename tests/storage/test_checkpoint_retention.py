"""Which checkpoints are kept and which are removed."""

from pathlib import Path

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.errors import NoValidCheckpoint
from lockstep.storage.checkpoint import Snapshot, save
from lockstep.storage.checkpoint_retention import newest_valid, prune, sweep, verify_run


def stored(root: Path, *steps: int) -> list[Path]:
    snapshot = Snapshot({"weight": torch.ones(2)}, {}, {}, {0: {}})
    return [save(root, snapshot, world=World(), step=step, workload="snake", extra={}) for step in steps]


def kept(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (root / "checkpoints").glob("step-*"))


def damage(path: Path) -> None:
    (path / "state.json").write_text("")


def test_the_newest_three_are_kept(tmp_path):
    stored(tmp_path, 1, 2, 3, 4, 5)
    prune(tmp_path, keep=3, protect=set())
    assert kept(tmp_path) == [3, 4, 5]


def test_steps_are_ordered_as_numbers(tmp_path):
    stored(tmp_path, 10**11, 9, 10)
    prune(tmp_path, keep=1, protect=set())
    assert kept(tmp_path) == [10**11]


def test_protected_checkpoints_are_kept(tmp_path):
    first, *_ = stored(tmp_path, 1, 2, 3)
    prune(tmp_path, keep=1, protect={first})
    assert kept(tmp_path) == [1, 3]


def test_nothing_is_removed_while_the_newest_does_not_verify(tmp_path):
    *_, newest = stored(tmp_path, 1, 2, 3)
    torn = tmp_path / "checkpoints" / ".tmp-step-000000000002-dead"
    torn.mkdir()
    damage(newest)
    prune(tmp_path, keep=1, protect=set())
    assert kept(tmp_path) == [1, 2, 3]
    assert torn.exists()


def test_a_damaged_one_does_not_count_as_kept_and_is_removed_when_it_is_old(tmp_path):
    _, _, third, _ = stored(tmp_path, 1, 2, 3, 4)
    damage(third)
    prune(tmp_path, keep=2, protect=set())
    assert kept(tmp_path) == [2, 3, 4]
    stored(tmp_path, 5)
    prune(tmp_path, keep=2, protect=set())
    assert kept(tmp_path) == [4, 5]


def test_unfinished_writes_are_removed_once_a_newer_checkpoint_is_valid(tmp_path):
    stored(tmp_path, 5)
    folder = tmp_path / "checkpoints"
    for name in (".tmp-step-000000000004-dead", ".tmp-step-000000000005-dead", ".tmp-step-000000000006-dead"):
        (folder / name / "lanes").mkdir(parents=True)
    prune(tmp_path, keep=1, protect=set())
    assert [path.name for path in folder.glob(".tmp-*")] == [".tmp-step-000000000006-dead"]


def test_pruning_leaves_unfinished_writes_outside_the_checkpoints_folder_alone(tmp_path):
    stored(tmp_path, 5)
    (tmp_path / ".tmp-best-dead").mkdir()
    (tmp_path / ".tmp-status.json-dead").write_text("{")
    prune(tmp_path, keep=1, protect=set())
    assert len(list(tmp_path.iterdir())) == 3
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_unfinished_writes_are_reported_and_not_used(tmp_path):
    torn = tmp_path / "checkpoints" / ".tmp-step-000000000006-dead"
    torn.mkdir(parents=True)
    reports = []
    assert newest_valid(tmp_path, reports.append) is None
    assert reports == [f"{torn}: an unfinished write, ignored"]


def test_links_are_not_followed_when_reading_or_removing(tmp_path):
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    stored(elsewhere, 1, 2, 3)
    (elsewhere / "checkpoints" / ".tmp-step-000000000002-dead").mkdir()
    before = sorted(elsewhere.rglob("*"))
    run.mkdir()
    (run / "checkpoints").symlink_to(elsewhere / "checkpoints")
    prune(run, keep=1, protect=set())
    sweep(run)
    for look in (lambda: newest_valid(run, pytest.fail), lambda: verify_run(run)):
        with pytest.raises(NoValidCheckpoint, match="checkpoints: is a link"):
            look()
    assert sorted(elsewhere.rglob("*")) == before


def test_a_link_inside_a_checkpoint_makes_it_a_damaged_one(tmp_path):
    first, second, third = stored(tmp_path, 1, 2, 3)
    (third / "lanes").rename(tmp_path / "lanes")
    (third / "lanes").symlink_to(tmp_path / "lanes")
    second.rename(tmp_path / "second")
    second.symlink_to(tmp_path / "second")
    reports = []
    assert newest_valid(tmp_path, reports.append) == first
    assert "lanes: is a link" in reports[0]
    assert "not a directory" in reports[1]


def test_directory_names_sort_by_step_up_to_the_largest_step(tmp_path):
    steps = [10**15, 999_999_999_999, 7, 10**12]
    stored(tmp_path, *steps)
    assert newest_valid(tmp_path, pytest.fail).name == "step-1000000000000000"
    (tmp_path / "checkpoints" / "step-0000000000000009").mkdir()  # nine, with too many zeros
    prune(tmp_path, keep=2, protect=set())
    assert kept(tmp_path) == [9, 10**12, 10**15]
    assert verify_run(tmp_path).keys() == {"checkpoints/step-1000000000000", "checkpoints/step-1000000000000000"}

"""Which checkpoints go and which stay."""

from pathlib import Path

import torch

from lockstep.core.distributed.world import World
from lockstep.core.storage.checkpoint import Snapshot, save
from lockstep.core.storage.shelf import newest_valid, prune, sweep


def stored(root: Path, *steps: int) -> list[Path]:
    snapshot = Snapshot({"weight": torch.ones(2)}, {}, {}, {0: {}})
    return [save(root, snapshot, world=World(), step=step, workload="snake", extra={}) for step in steps]


def kept(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (root / "checkpoints").glob("step-*"))


def damage(path: Path) -> None:
    (path / "state.json").write_text("")


def test_the_newest_three_stay(tmp_path):
    stored(tmp_path, 1, 2, 3, 4, 5)
    prune(tmp_path, keep=3, protect=set())
    assert kept(tmp_path) == [3, 4, 5]


def test_steps_are_ordered_as_numbers(tmp_path):
    stored(tmp_path, 10**11, 9, 10)
    prune(tmp_path, keep=1, protect=set())
    assert kept(tmp_path) == [10**11]


def test_the_protected_stay(tmp_path):
    first, *_ = stored(tmp_path, 1, 2, 3)
    prune(tmp_path, keep=1, protect={first})
    assert kept(tmp_path) == [1, 3]


def test_nothing_goes_while_the_newest_does_not_verify(tmp_path):
    *_, newest = stored(tmp_path, 1, 2, 3)
    torn = tmp_path / "checkpoints" / ".tmp-step-000000000002-dead"
    torn.mkdir()
    damage(newest)
    prune(tmp_path, keep=1, protect=set())
    assert kept(tmp_path) == [1, 2, 3]
    assert torn.exists()


def test_a_damaged_one_does_not_count_and_goes_with_its_age(tmp_path):
    _, _, third, _ = stored(tmp_path, 1, 2, 3, 4)
    damage(third)
    prune(tmp_path, keep=2, protect=set())
    assert kept(tmp_path) == [2, 3, 4]
    stored(tmp_path, 5)
    prune(tmp_path, keep=2, protect=set())
    assert kept(tmp_path) == [4, 5]


def test_dead_writes_are_swept_once_a_newer_checkpoint_stands(tmp_path):
    stored(tmp_path, 5)
    folder = tmp_path / "checkpoints"
    for name in (".tmp-step-000000000004-dead", ".tmp-step-000000000005-dead", ".tmp-step-000000000006-dead"):
        (folder / name / "lanes").mkdir(parents=True)
    prune(tmp_path, keep=1, protect=set())
    assert [path.name for path in folder.glob(".tmp-*")] == [".tmp-step-000000000006-dead"]


def test_what_is_written_beside_the_checkpoints_is_left_to_those_who_write_it(tmp_path):
    stored(tmp_path, 5)
    (tmp_path / ".tmp-best-dead").mkdir()
    (tmp_path / ".tmp-status.json-dead").write_text("{")
    prune(tmp_path, keep=1, protect=set())
    assert len(list(tmp_path.iterdir())) == 3
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_dead_writes_are_named_and_not_used(tmp_path):
    torn = tmp_path / "checkpoints" / ".tmp-step-000000000006-dead"
    torn.mkdir(parents=True)
    reports = []
    assert newest_valid(tmp_path, reports.append) is None
    assert reports == [f"{torn}: a write that did not end, left aside"]

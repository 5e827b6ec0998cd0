"""Checkpoints in the background: what is saved is the state at the time of the call."""

import threading

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.errors import RunFailed
from lockstep.storage import async_checkpointer, checkpoint
from lockstep.storage.async_checkpointer import AsyncCheckpointer, SaveRequest
from lockstep.storage.checkpoint import CheckpointFailed, Snapshot, load


@pytest.fixture
def checkpointer(tmp_path):
    """A checkpointer, the steps that it has written, and its messages."""
    written, said = [], []
    made = AsyncCheckpointer(
        tmp_path,
        World().with_lanes(1, "fast"),
        "snake",
        keep=2,
        written=lambda o: written.append(o.step),
        say=said.append,
    )
    return made, written, said


def order(weights, step):
    return SaveRequest(Snapshot({"weight": weights}, {}, {}, {0: {"memory": weights}}), step, {})


def path_of(root, step):
    return root / "checkpoints" / f"step-{step:012d}"


def hold_the_disk(monkeypatch):
    """Writes wait until the returned event is set."""
    free, write = threading.Event(), checkpoint.write_durably

    def slow(path, data):
        assert free.wait(20)
        write(path, data)

    monkeypatch.setattr(checkpoint, "write_durably", slow)
    return free


def test_training_does_not_wait_for_the_disk_and_what_it_changes_meanwhile_is_not_saved(
    checkpointer, tmp_path, monkeypatch
):
    made, written, _ = checkpointer
    weights = torch.ones(3)
    free = hold_the_disk(monkeypatch)
    made.save(order(weights, 1))
    weights.fill_(2.0)
    assert written == [] and not path_of(tmp_path, 1).exists()
    free.set()
    made.settle()
    assert written == [1]
    back = load(path_of(tmp_path, 1), [0])
    assert back.model["weight"].tolist() == back.lanes[0]["memory"].tolist() == [1.0, 1.0, 1.0]


def test_old_checkpoints_are_removed_only_after_the_new_one_is_complete(checkpointer, tmp_path, monkeypatch):
    made, written, _ = checkpointer
    for step in (1, 2):
        made.save(order(torch.ones(1), step))
    made.settle()
    free = hold_the_disk(monkeypatch)
    made.save(order(torch.ones(1), 3))
    assert path_of(tmp_path, 1).exists()
    free.set()
    made.settle()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-000000000002",
        "step-000000000003",
    ]
    assert written == [1, 2, 3]


def test_a_failed_write_costs_a_warning_and_at_the_end_of_a_run_the_run(checkpointer, tmp_path, monkeypatch):
    made, written, said = checkpointer
    monkeypatch.setattr(checkpoint, "write_durably", full)
    made.save(order(torch.ones(1), 1))
    made.save(order(torch.ones(1), 2))
    with pytest.raises(CheckpointFailed, match="No space left"):
        made.settle()
    assert written == [] and [line.partition(":")[0] for line in said] == ["warning", "warning"]
    monkeypatch.undo()
    made.save(order(torch.ones(1), 3))
    made.settle()
    assert written == [3]


def full(path, data):
    raise OSError(28, "No space left on device", str(path))


def test_without_memory_for_a_copy_training_waits_for_the_write(checkpointer, tmp_path, monkeypatch):
    made, written, _ = checkpointer
    monkeypatch.setattr(async_checkpointer, "_SHARE_OF_FREE_MEMORY", 0.0)
    made.save(order(torch.ones(3), 1))
    assert written == [1]


def test_a_world_that_was_superseded_publishes_nothing(tmp_path):
    def refuse():
        raise RunFailed("taken over")

    made = AsyncCheckpointer(
        tmp_path,
        World().with_lanes(1, "fast"),
        "snake",
        keep=2,
        written=pytest.fail,
        say=pytest.fail,
        may_publish=refuse,
    )
    made.save(order(torch.ones(1), 1))
    with pytest.raises(RunFailed, match="taken over"):
        made.settle()
    assert not path_of(tmp_path, 1).exists()


def save_during_collectives(world, folder, steps):
    """Save repeatedly while training runs collectives of its own. Called by every rank."""
    world = world.with_lanes(4, "fast")
    made = AsyncCheckpointer(folder, world, "snake", keep=3, written=lambda order: None, say=print)
    for step in range(steps):
        lanes = {lane: {"place": torch.full((1000,), step)} for lane in world.lanes.mine}
        made.save(SaveRequest(Snapshot({"weight": torch.full((5,), float(step))}, {}, {}, lanes), step, {}))
        assert [world.agree(number) for number in range(20)] == list(range(20))
    made.settle()


def test_checkpoint_threads_of_several_ranks_and_their_training_do_not_disturb_each_other(ranks, tmp_path):
    ranks.run(save_during_collectives, str(tmp_path), 8, ranks=3)
    assert not any(checkpoint.verify_run(tmp_path).values())
    back = load(path_of(tmp_path, 7), range(4))
    assert [lane["place"][0].item() for lane in back.lanes.values()] == [7, 7, 7, 7]

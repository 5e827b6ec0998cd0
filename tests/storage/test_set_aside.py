"""What is later than a step is moved aside: nothing is lost, and an interruption is made up for."""

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.storage import checkpoint, set_aside
from lockstep.storage.checkpoint import Snapshot
from lockstep.storage.checkpoint_retention import steps_on_disk, verify_run
from lockstep.storage.weights import save_weights

NAME = "20260101-000000-after-step-000000000010"


@pytest.fixture
def root(tmp_path):
    """A run with checkpoints at steps 10, 20 and 30, the best at 10 and the final weights at 30."""
    world = World().with_lanes(1, "fast")
    for step in (10, 20, 30):
        snapshot = Snapshot({"w": torch.full((2,), float(step))}, {}, {"steps": step}, {0: {}})
        checkpoint.save(tmp_path, snapshot, world=world, step=step, workload="toy", extra={})
    for name, step in (("best", 10), ("final", 30)):
        weights = {"w": torch.zeros(2)}
        save_weights(tmp_path / name, weights, config_text="", workload="toy", step=step, extra={})
    (tmp_path / "metrics.jsonl").write_text('{"step": 10}\n{"step": 30}\n')
    return tmp_path


def names(root):
    return [path.name[-2:] for path in steps_on_disk(root)]


def test_checkpoints_and_weights_after_the_step_go_and_all_else_stays(root):
    line = set_aside.set_aside(root, 10, NAME)
    assert names(root) == ["10"] and (root / "best").is_dir() and not (root / "final").exists()
    aside = root / "aside" / NAME
    assert names(aside) == ["20", "30"] and (aside / "final").is_dir() and not (aside / "best").exists()
    # The run cuts its own log to the step; the copy has all of it.
    assert (aside / "metrics.jsonl").read_text() == (root / "metrics.jsonl").read_text()
    assert "2 later checkpoints, final, metrics.jsonl" in line and "\n" not in line
    # Both parts can still be used.
    assert not any(problems for problems in (*verify_run(root).values(), *verify_run(aside).values()))


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_move_that_was_interrupted_is_finished_by_the_next_try(root, monkeypatch, moves):
    rename, done = type(root).rename, []

    def rename_some(path, target):
        if path.name.startswith("step-") or path.name == "final":
            if len(done) == moves:
                raise KeyboardInterrupt
            done.append(path)
        return rename(path, target)

    monkeypatch.setattr(type(root), "rename", rename_some)
    with pytest.raises(KeyboardInterrupt):
        set_aside.set_aside(root, 10, NAME)
    assert not set_aside.is_aside(root, NAME)
    monkeypatch.undo()
    set_aside.set_aside(root, 10, NAME)
    assert set_aside.is_aside(root, NAME)
    assert names(root) == ["10"] and names(root / "aside" / NAME) == ["20", "30"]
    assert (root / "aside" / NAME / "final").is_dir()
    assert [path.name for path in (root / "aside").iterdir()] == [NAME]


def test_only_what_is_later_counts(root):
    assert [path.name for path in set_aside.later_than(root, 20)] == ["step-000000000030", "final"]
    assert set_aside.later_than(root, 30) == []

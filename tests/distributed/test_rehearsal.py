from dataclasses import dataclass, field

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lockstep.cli.short_runs import open_learner, time_rehearsal
from lockstep.config.sources import to_yaml
from lockstep.distributed.profiling import MeasuredWorld
from lockstep.distributed.rehearsal import RehearsedWorld
from lockstep.distributed.world import join
from lockstep.workloads import registry

SNAKE = to_yaml(registry.load("snake").preset("debug"))


@pytest.fixture
def alone():
    """A world of one rank with a process group."""
    with join(0, 1, torch.device("cpu"), dist.HashStore(), 10.0) as world:
        yield world


def test_the_simulated_ranks_hold_the_same_values(alone):
    world = RehearsedWorld.of(alone, 4).with_lanes(8, "fast")
    assert (world.size, list(world.lanes.mine), world.alone) == (4, [0, 1], False)
    assert world.sum(torch.tensor([1.0, 2.0])).tolist() == [4.0, 8.0]
    assert world.total([torch.tensor(3.0)]).item() == 12.0
    assert world.agree(7) == 7
    assert world.gather_json("x") == ["x"] * 4
    assert world.tally.take() == {
        "sums": 2,
        "sum_bytes": 12,
        "gathers": 0,
        "gather_bytes": 0,
        "flags": 3,
        "largest": 8,
    }
    assert set(world.tally.take().values()) == {0}


def test_in_exact_all_lanes_are_added_and_every_rank_sends_equally_many_rows(alone):
    world = RehearsedWorld.of(alone, 2).with_lanes(5, "exact")
    # Lanes 3 + 2: the simulated second rank holds 1 and 2, and sends three rows of 4 bytes like the first.
    assert world.total([torch.tensor(value) for value in (1.0, 2.0, 3.0)]).item() == 9.0
    counted = world.tally.take()
    assert (counted["gathers"], counted["gather_bytes"], counted["sums"]) == (1, 24, 0)


def test_ddp_all_reduces_are_counted_and_leave_the_gradient_unchanged(alone):
    world = RehearsedWorld.of(alone, 4)
    layer = nn.Linear(2, 1, bias=False)
    module = world.data_parallel(layer)
    module(torch.tensor([[1.0, 10.0]])).sum().backward()
    assert layer.weight.grad.flatten().tolist() == [1.0, 10.0]
    counted = world.tally.take()
    assert (counted["sums"], counted["sum_bytes"]) == (1, 8)


def test_buffers_that_ddp_broadcasts_before_each_forward_are_counted(alone):
    layer = nn.Linear(2, 1, bias=False)
    layer.register_buffer("constant", torch.zeros(5))
    world = RehearsedWorld.of(alone, 4)
    module = world.data_parallel(layer)
    module(torch.ones(1, 2)).sum().backward()
    assert world.tally.take()["sum_bytes"] == 5 * 4 + 2 * 4


@dataclass(frozen=True)
class CountedWorld(MeasuredWorld):
    """Real ranks whose all-reduces are counted."""

    moved: list = field(default_factory=list, compare=False)

    def sum(self, tensor):
        self.moved.append(tensor.numel() * tensor.element_size())
        return super().sum(tensor)


def bytes_of_sums(world):
    counted = CountedWorld.of(world)
    learner = open_learner(counted, "snake", SNAKE)
    learner.step()
    counted.moved.clear()
    learner.step()
    return len(counted.moved), sum(counted.moved), learner.steps


def test_a_rehearsed_rank_counts_the_collectives_of_a_real_one(ranks, alone):
    (sums, moved, steps), _ = ranks.run(bytes_of_sums, ranks=2)
    time_rehearsal(alone, "snake", SNAKE, 2, 1)
    found = time_rehearsal(alone, "snake", SNAKE, 2, 1)
    assert (found["exchanges"]["sums"], found["exchanges"]["sum_bytes"]) == (sums, moved)
    assert sums > 0
    assert found["steps"] == steps / 2

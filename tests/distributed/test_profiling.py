import time

import pytest
import torch
from torch import nn

from lockstep.distributed.profiling import MeasuredWorld
from lockstep.distributed.world import World


def wait_for_the_last(world, sync):
    measured = MeasuredWorld.of(world).with_lanes(world.size, sync)
    time.sleep(0.3 if world.rank == world.size - 1 else 0)
    total = measured.total([torch.tensor([world.rank + 1.0])])
    return total.item(), measured.watch.take()


@pytest.mark.parametrize("sync", ["fast", "exact"])
def test_waiting_for_a_slow_rank_is_idle_time_and_separate_from_the_collective(ranks, sync):
    (first, waited), (second, arrived) = ranks.run(wait_for_the_last, sync, ranks=2)
    assert first == second == 3.0
    assert waited["idle"] > 0.25
    assert arrived["idle"] < 0.1
    assert 0 < waited["sync"] < 0.1


def decide(world):
    measured = MeasuredWorld.of(world)
    flag, texts = measured.agree(world.rank), measured.gather_json(world.rank)
    return flag, texts, sorted(measured.watch.take())


def test_decisions_are_those_of_the_plain_world(ranks):
    assert ranks.run(decide, ranks=3) == [[2, [0, 1, 2], ["idle", "sync"]]] * 3


def gradient_of_ranks(world, apart):
    measured = MeasuredWorld.of(world)
    layer = nn.Linear(2, 1, bias=False)
    nn.init.ones_(layer.weight)
    module = (measured if apart else world).data_parallel(layer)
    batch = torch.tensor([[1.0, 10.0]]) * (world.rank + 1)
    module(batch).sum().backward()
    return layer.weight.grad.flatten().tolist(), sorted(measured.watch.take())


def test_ddp_computes_the_same_mean_and_is_measured(ranks):
    # Ranks see (1, 10) and (2, 20).
    assert ranks.run(gradient_of_ranks, False, ranks=2) == [[[1.5, 15.0], []]] * 2
    assert ranks.run(gradient_of_ranks, True, ranks=2) == [[[1.5, 15.0], ["idle", "sync"]]] * 2


def test_a_world_of_one_waits_for_nobody():
    measured = MeasuredWorld.of(World())
    assert measured.agree(5) == 5
    assert measured.total([torch.tensor(2.0)]).item() == 2.0
    assert measured.watch.take() == {}

import random
import struct
import time

import pytest
import torch
import torch.distributed as dist

from lockstep.distributed.collectives import gather_rows, named_barrier
from lockstep.distributed.pool import RankError
from lockstep.distributed.world import World

# In float32 (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1: the sum of these lanes shows the order of its addition.
LANES = [1e8, 1.0, -1e8, 1.0, 3e-8, 1.0, -1e8, 1e8]


def total_bits(world, sync):
    world = world.with_lanes(len(LANES), sync)
    values = torch.tensor(LANES, dtype=torch.float32)
    parts = [torch.stack([values[cohort.start : cohort.stop].sum()]) for cohort in world.lanes.cohorts]
    return struct.pack("f", world.total(parts).item()).hex()


def test_exact_total_has_the_same_bits_on_any_number_of_ranks(ranks):
    # One by one: 1e8, 1e8, 0, 1, 1.00000003 (rounds to 1), 2, -1e8 + 2 (rounds to -1e8), 0.
    expected = struct.pack("f", 0.0).hex()
    for size in (1, 2, 3, 4):
        assert ranks.run(total_bits, "exact", ranks=size) == [expected] * size
    assert total_bits(World(), "exact") == expected


def test_fast_total_is_the_sum_over_ranks(ranks):
    assert ranks.run(sum_of_ranks, ranks=3) == [6.0] * 3


def sum_of_ranks(world):
    return world.total([torch.tensor([float(world.rank + 1)])]).item()


def test_rows_of_unequal_ranks_come_back_in_rank_order(ranks):
    gathered = ranks.run(rows_of_all, ranks=3)
    assert gathered == [[[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1]]] * 3


def rows_of_all(world):
    counts = world.with_lanes(8, "exact").lanes.counts
    rows = torch.tensor([[world.rank, number] for number in range(counts[world.rank])])
    return gather_rows(rows, counts, world.data_group).tolist()


def test_a_rank_without_rows_takes_part(ranks):
    assert ranks.run(one_row_in_all, ranks=2) == [[[5.0]]] * 2


def one_row_in_all(world):
    rows = torch.full((1 - world.rank, 1), 5.0)
    return gather_rows(rows, (1, 0), world.data_group).tolist()


def test_json_of_any_length_is_gathered_in_rank_order(ranks):
    everything = [{"rank": rank, "text": "ä" * 100 * rank} for rank in range(4)]
    assert ranks.run(json_of_all) == [everything] * 4


def json_of_all(world):
    return world.gather_json({"rank": world.rank, "text": "ä" * 100 * world.rank})


def test_the_value_of_rank_0_is_broadcast(ranks):
    assert ranks.run(word_of_the_leader, ranks=2) == [["said by", 0]] * 2


def word_of_the_leader(world):
    return world.from_leader(["said by", world.rank])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_world_agrees_on_the_largest_flag(ranks, size):
    assert ranks.run(flag_of_the_last, ranks=size) == [size - 1] * size


def flag_of_the_last(world):
    return world.agree(world.rank)


def test_replicas_that_differ_stop_the_run_and_name_the_rank(ranks):
    with pytest.raises(RankError, match=r"RunFailed: replicas diverged at update 7: rank\(s\) 2 hold other weights"):
        ranks.run(compare_with_a_stray, ranks=3)


def compare_with_a_stray(world):
    world.check_replicas("b" * 64 if world.rank == 2 else "a" * 64, "update 7")


def test_a_missed_barrier_is_reported_with_its_name_and_the_missing_ranks(ranks):
    before = time.monotonic()
    with pytest.raises(RankError, match=r"barrier 'after saving': not all ranks arrived within 1 s .*Ranks 1, 2, 3"):
        ranks.run(miss_a_barrier)
    assert time.monotonic() - before < 20


def miss_a_barrier(world):
    # A separate group, because a timeout breaks the group it happens in.
    group = dist.new_group()
    if world.rank == 0:
        named_barrier("after saving", 1.0, group)


def test_in_a_world_of_one_collectives_are_the_identity():
    world = World()
    assert world.leads
    assert world.agree(3) == 3
    assert world.gather_json("x") == ["x"]
    assert world.from_leader("y") == "y"
    assert world.sum(torch.ones(2)).tolist() == [1.0, 1.0]
    world.barrier("nothing to wait for")
    world.check_replicas("a" * 64, "the start")


def uneven_means(world, seeds):
    """Means over samples assigned to lanes at random, to some lanes none. Called by every rank."""
    found = []
    for seed in range(seeds):
        lengths = random.Random(seed).choices(range(6), k=7)
        own = world.with_lanes(len(lengths), "exact")
        parts = [torch.tensor([float(sum(range(lengths[lane]))), float(lengths[lane])]) for lane in own.lanes.mine]
        total, count = own.total(parts).tolist()
        found.append([total, count])
    return found


def test_two_hundred_uneven_shares_are_weighted_by_their_real_samples_without_a_hang(ranks):
    expected = []
    for seed in range(200):
        lengths = random.Random(seed).choices(range(6), k=7)
        expected.append([float(sum(sum(range(n)) for n in lengths)), float(sum(lengths))])
    assert ranks.run(uneven_means, 200, ranks=3) == [expected] * 3

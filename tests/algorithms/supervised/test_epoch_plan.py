"""Every sample is seen once per epoch, on any number of ranks."""

import torch

from lockstep.algorithms.supervised.epoch_plan import Pass, in_order, shuffled
from lockstep.distributed.lanes import lanes_of_rank

CPU = torch.device("cpu")


def test_a_pass_of_ten_and_four_samples_in_batches_of_six():
    plan = Pass((10, 4), 6, lanes=2)
    assert plan.batches == 3
    # Ten samples in three parts are 3 + 3 + 4, so each of two lanes needs two places; four samples are 1 + 1 + 2.
    assert plan.counts() == [4, 4, 6]
    assert [plan.width(0), plan.width(1)] == [2, 1]
    places = in_order(plan, range(2), CPU)[0]
    # Lane 0 has the even places of a batch, lane 1 the odd ones.
    assert (places.index * places.weight.long()).tolist() == [[0, 2, 1, 0], [3, 5, 4, 0], [6, 8, 7, 9]]
    assert places.weight.tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def seen(plan, ranks, epoch):
    """The sample numbers that all ranks together see in an epoch, group by group, and each batch's."""
    groups = [[] for _ in plan.groups]
    for rank in range(ranks):
        for group, places in enumerate(shuffled(plan, 5, epoch, lanes_of_rank(plan.lanes, rank, ranks), CPU)):
            groups[group].append([batch[weight > 0] for batch, weight in zip(places.index, places.weight, strict=True)])
    return [[torch.cat(parts).sort().values for parts in zip(*group, strict=True)] for group in groups]


def test_one_two_and_three_ranks_see_each_sample_exactly_once_in_the_same_batches():
    plan = Pass((101, 7, 64), 16, lanes=8)
    for epoch in (0, 1):
        alone = seen(plan, 1, epoch)
        for group, size in enumerate(plan.sizes):
            assert torch.equal(torch.cat(alone[group]).sort().values, torch.arange(size))
        for ranks in (2, 3):
            together = seen(plan, ranks, epoch)
            for one, many in zip(alone, together, strict=True):
                assert all(torch.equal(a, b) for a, b in zip(one, many, strict=True))


def test_the_order_differs_between_epochs_and_between_seeds():
    plan = Pass((100,), 10, lanes=1)
    orders = [shuffled(plan, seed, epoch, range(1), CPU)[0].index for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert torch.equal(orders[0], shuffled(plan, 1, 0, range(1), CPU)[0].index)
    assert not torch.equal(orders[0], orders[1]) and not torch.equal(orders[0], orders[2])


def test_noise_belongs_to_the_sample_and_the_epoch():
    plan = Pass((40,), 10, lanes=2)
    first, other = (shuffled(plan, 1, 0, range(2), CPU)[0], shuffled(plan, 1, 1, range(2), CPU)[0])
    word = {int(i): int(n) for i, n in zip(first.index.flatten(), first.noise.flatten(), strict=True)}
    assert len(set(word.values())) == 40
    assert all(word[int(i)] != int(n) for i, n in zip(other.index.flatten(), other.noise.flatten(), strict=True))


def test_fewer_samples_than_a_batch_are_one_batch():
    plan = Pass((3, 0), 100, lanes=8)
    assert (plan.batches, plan.counts(), plan.groups, plan.width(0)) == (1, [3], [0], 1)
    places = in_order(plan, range(8), CPU)[0]
    assert places.weight.tolist() == [[1, 1, 1, 0, 0, 0, 0, 0]]

import pytest

from lockstep.distributed.lanes import Lanes, lanes_of_rank


def test_eight_lanes_on_three_ranks_are_three_three_two():
    assert [list(lanes_of_rank(8, rank, 3)) for rank in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.mark.parametrize("total", [1, 3, 8, 24])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_every_lane_has_one_owner_and_shares_differ_by_one_at_most(total, size):
    shares = [lanes_of_rank(total, rank, size) for rank in range(size)]
    assert [lane for share in shares for lane in share] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_fast_computes_a_ranks_lanes_together_and_exact_one_by_one():
    assert Lanes.split(8, 1, 3, "fast").cohorts == (range(3, 6),)
    assert Lanes.split(8, 1, 3, "exact").cohorts == (range(3, 4), range(4, 5), range(5, 6))


def test_every_rank_knows_the_share_of_all():
    assert Lanes.split(8, 2, 3, "fast").counts == (3, 3, 2)


def test_items_belong_to_lanes_whatever_the_number_of_ranks():
    alone = Lanes.split(4, 0, 1, "fast").share_out(10)
    assert list(alone) == [range(0, 3), range(3, 6), range(6, 8), range(8, 10)]
    halves = [Lanes.split(4, rank, 2, "fast").share_out(10) for rank in range(2)]
    assert [*halves[0], *halves[1]] == list(alone)


def test_a_world_assigns_its_lanes_in_the_same_way(ranks):
    assert ranks.run(own_lanes, 8, ranks=3) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def own_lanes(world, total):
    return list(world.with_lanes(total, "exact").lanes.mine)

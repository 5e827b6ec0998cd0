"""Every peer of a rank must know the run's secret."""

import os

import pytest

from lockstep.distributed.membership import check_members
from lockstep.distributed.pool import RankError
from lockstep.launch import secret


def check(world, attacker):
    if world.rank == attacker:
        os.environ[secret.VARIABLE] = "a guess of an attacker"
    check_members(world.side_group, world.rank, world.size, 10)


def test_ranks_of_a_run_recognise_each_other(ranks):
    ranks.run(check, None, ranks=3)


@pytest.mark.slow
def test_a_peer_without_the_secret_is_detected_by_every_rank():
    from lockstep.distributed.pool import RankPool

    with RankPool(3) as pool, pytest.raises(RankError) as caught:
        pool.run(check, 1)
    assert "does not know this run's secret: another program took that rank's place" in str(caught.value)

"""The trial all-reduce."""


def test_ranks_measure_the_sum_and_find_it_right(ranks):
    for found in ranks.run("lockstep.distributed.bandwidth:all_reduce_speed", 1, ranks=2):
        assert found["wrong"] == 0
        assert found["bandwidth"] > 0
        assert found["latency"] > 0

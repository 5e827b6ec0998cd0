"""The measurement of all-reduce."""


def test_ranks_measure_the_all_reduce_and_check_its_result(ranks):
    for found in ranks.run("lockstep.distributed.bandwidth:all_reduce_speed", 1, ranks=2):
        assert found["wrong"] == 0
        assert found["bandwidth"] > 0
        assert found["latency"] > 0

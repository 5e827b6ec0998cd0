import pytest

from lockstep.cli.bench import forecast as forecasting
from lockstep.cli.bench import forecast_report
from lockstep.cli.bench.cost_model import Exchanges, Link, Share, check, forecast, hops, sizes_up_to
from lockstep.cli.bench.forecast import Machine, Rehearsal
from lockstep.config.config import AlgorithmSettings, Layout
from lockstep.rl.network_settings import MLPSettings

# 1 GB/s, 1 ms for a tensor and 10 ms for a decision of two ranks, along a ring.
LINK = Link(1e9, 1e-3, 1e-2, tree=False, source="given")
MACHINE = Machine("cpu", devices=2)


def world(ranks, seconds, one=1.0, lanes=64, link=LINK, **exchanges):
    return forecast(one, Share(ranks, seconds, Exchanges(**exchanges)), link, lanes)


def test_compute_that_shrinks_with_every_rank_scales_perfectly():
    four = world(4, 0.25)
    assert (four.speed, four.efficiency, four.limit) == (4.0, 1.0, "compute")


def test_compute_that_does_not_shrink_gains_nothing():
    four = world(4, 1.0)
    assert (four.speed, four.efficiency, four.limit) == (1.0, 0.25, "small shares")


def test_a_sum_sends_every_byte_twice_around_the_ring():
    # 1 GB at 1 GB/s on 4 ranks: 2 * 3 / 4 seconds, beside 0.25 s of compute.
    four = world(4, 0.25, sum_bytes=1e9)
    assert four.transfer == 1.5
    assert (four.speed, four.limit) == (pytest.approx(1 / 1.75), "exchange: bytes")
    assert four.efficiency == pytest.approx(1 / 7)


def test_a_gathering_sends_every_byte_once():
    assert world(4, 0.25, gather_bytes=1e9).transfer == 0.75


def test_latency_grows_along_a_ring_or_a_tree_and_that_of_decisions_along_a_ring():
    assert [hops(ranks, tree=False) for ranks in (2, 3, 4, 64)] == [1, 2, 3, 63]
    assert [hops(ranks, tree=True) for ranks in (2, 3, 4, 64)] == [1, 2, 2, 6]
    ring = world(4, 0.25, sums=90, gathers=10, flags=1)
    # 100 tensors of 1 ms and one decision of 10 ms, three hops each.
    assert ring.waiting == pytest.approx(0.33)
    assert ring.limit == "exchange: latency"
    tree = Link(1e9, 1e-3, 1e-2, tree=True)
    assert world(4, 0.25, link=tree, sums=90, gathers=10, flags=1).waiting == pytest.approx(0.23)


def test_the_largest_share_of_uneven_lanes_counts():
    # 8 lanes of 0.1 s each on 3 ranks: 3 + 3 + 2.
    three = world(3, 0.3, one=0.8, lanes=8)
    assert three.losses["uneven lanes"] == pytest.approx(0.3 - 0.8 / 3)
    assert three.losses["small shares"] == pytest.approx(0.0)
    assert (three.efficiency, three.limit) == (pytest.approx(8 / 9), "uneven lanes")


def test_the_parts_of_a_ranks_time_add_up():
    four = world(4, 0.25, sums=10, sum_bytes=1e8, flags=2)
    assert sum(map(four.share, (four.compute, four.transfer, four.waiting))) == pytest.approx(1.0)


def test_a_link_is_what_its_measured_seconds_would_give_back():
    # 4 ranks: 100 MB at 2 GB/s, twice around: 75 ms; 3 hops of 1 ms and of 2 ms.
    found = {"large": 0.075 + 0.003, "small": 0.003, "flag": 0.006, "backend": "gloo"}
    link = Link.measured(found, 100_000_000, 4, "here")
    assert (link.bandwidth, link.latency, link.flag_latency) == pytest.approx((2e9, 1e-3, 2e-3))
    assert not link.tree
    assert Link.measured({**found, "backend": "nccl"}, 100_000_000, 4, "here").latency == pytest.approx(1.5e-3)


def test_what_is_not_given_of_a_link_is_as_measured():
    assert forecasting.given_link(LINK, 0, 0, MACHINE) == LINK
    wide = forecasting.given_link(LINK, 400, 0, MACHINE)
    assert (wide.bandwidth, wide.latency, wide.flag_latency) == (400e9, 1e-3, 1e-2)
    assert wide.source == "bandwidth given, latency given"  # LINK's own source is "given".
    both = forecasting.given_link(None, 12.5, 30, Machine("cuda", 1))
    assert (both.bandwidth, both.latency, both.tree, both.source) == (12.5e9, pytest.approx(3e-5), True, "given")


def test_a_check_tells_how_far_the_model_is_from_what_was_measured():
    found = check(1.6, world(2, 0.5), crowding=1)
    assert (found.predicted, found.error) == (2.0, pytest.approx(0.25))


def test_ranks_that_share_a_device_are_checked_with_the_compute_of_all_of_them():
    # Two ranks on each device: 0.25 s of both, and 1.5 s of exchange.
    found = check(1.0, world(4, 0.25, sum_bytes=1e9), MACHINE.crowding(4))
    assert found.crowding == 2
    assert found.predicted == pytest.approx(1 / 2.0)


def test_worlds_are_doubled_up_to_the_last():
    assert sizes_up_to(64, 2) == [4, 8, 16, 32, 64]
    assert sizes_up_to(6, 2) == [4, 6]
    assert sizes_up_to(8, 4) == [8]
    assert sizes_up_to(3, 1) == [2, 3]


def rehearsal(ranks, seconds, **exchanges):
    """Two rounds of 5 updates of 2 steps each."""
    tally = {"sums": 0, "sum_bytes": 0, "gathers": 0, "gather_bytes": 0, "flags": 0, "largest": 8} | exchanges
    return Rehearsal(ranks, 5, [{"steps": 10, "seconds": 10 * seconds, "exchanges": tally}] * 2)


def config(**values):
    return Layout(AlgorithmSettings, network=MLPSettings).config(values)


def predicted(speeds, sizes=(4, 8, 16)):
    rehearsals = [rehearsal(2, 0.5), rehearsal(4, 0.25, sums=20), rehearsal(8, 0.125, sums=20, sum_bytes=5_000_000)]
    return forecasting.predict(config(), sizes, speeds, rehearsals, LINK, LINK, MACHINE)


def test_a_prediction_takes_compute_and_exchanges_from_rehearsals():
    found = predicted({1: 1.0, 2: 1.9})
    four, eight = found.forecasts
    # 2 sums a step, 3 hops of 1 ms each; 7 hops, and half a MB, 14 / 8 times, at 1 GB/s.
    assert four.speed == pytest.approx(1 / (0.25 + 0.006))
    assert eight.speed == pytest.approx(1 / (0.125 + 0.014 + 0.000875))
    # An update is 2 steps.
    assert (found.steps, found.exchanges.sums, found.exchanges.sum_bytes) == (2.0, 4.0, 1_000_000)
    assert [(one.ranks, one.error) for one in found.checks] == [(2, pytest.approx(2.0 / 1.9 - 1))]


def test_ranks_that_shared_a_device_say_nothing_of_larger_worlds():
    own, shared = predicted({1: 1.0, 2: 1.9}), predicted({1: 1.0, 2: 0.6})
    assert own.forecasts == shared.forecasts


def test_worlds_with_more_ranks_than_lanes_are_refused_with_the_way_out():
    found = predicted({1: 1.0, 2: 1.9})
    assert found.impossible == {
        16: "ranks 16 is more than the run's 8 lanes; use at most 8 ranks, or start the run with --lanes 16"
    }
    assert forecast_report.sentences(found)[-1].startswith("Predicted no further: ranks 16 is more than the run's 8")
    # The same run with more lanes could.
    more = forecasting.predict(config(lanes=16), (16,), {1: 1.0}, [rehearsal(16, 0.1)], None, LINK, MACHINE)
    assert (more.impossible, more.checks, [one.ranks for one in more.forecasts]) == ({}, [], [16])


def test_words_say_where_more_ranks_stop_helping_and_why():
    rehearsals = [rehearsal(4, 0.25), rehearsal(8, 0.3)]
    found = forecasting.predict(config(), (4, 8), {1: 1.0}, rehearsals, None, LINK, MACHINE)
    told = forecast_report.sentences(found)[-1]
    assert "falls below 50% at 8 ranks (42%)" in told
    assert "share of the work is too small" in told
    good = forecasting.predict(config(), (4,), {1: 1.0}, rehearsals[:1], None, LINK, MACHINE)
    assert "stays above 50% up to 4 ranks (100%)" in forecast_report.sentences(good)[-1]


def test_the_json_has_what_the_table_has():
    found = forecast_report.as_json(predicted({1: 1.0, 2: 1.9}))
    assert [row["ranks"] for row in found["predicted"]] == [4, 8]
    assert found["predicted"][0]["limited_by"] == "compute"
    assert sum(found["predicted"][1]["split"].values()) == pytest.approx(1.0)
    assert (found["checks"][0]["ranks"], found["checks"][0]["ranks_per_device"]) == (2, 1.0)
    assert found["link"]["gb_per_second"] == 1.0
    assert list(found["not_possible"]) == ["16"]

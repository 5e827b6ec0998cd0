"""What a market configuration refuses, and what it means."""

import pytest

from lockstep.errors import UserError
from lockstep.workloads.trading.market_config import MarketConfig


def test_symbols_are_separated_by_commas_or_spaces_and_named_once():
    config = MarketConfig(data="bars.csv", symbols="SPY, QQQ  IWM,SPY")
    assert config.symbol_list == ("SPY", "QQQ", "IWM")
    assert MarketConfig().symbol_list == ()


@pytest.mark.parametrize(
    ("lanes", "chosen"),
    [("all", range(8)), ("none", []), ("0", [0]), ("1,4-6", [1, 4, 5, 6]), ("7", [7])],
)
def test_historical_lanes(lanes, chosen):
    config = MarketConfig(data="bars.csv", historical_lanes=lanes, lanes=8)
    assert [lane for lane in range(8) if config.is_historical_lane(lane)] == list(chosen)


def test_without_data_no_lane_is_historical():
    assert not any(MarketConfig().is_historical_lane(lane) for lane in range(8))
    with pytest.raises(UserError, match="historical_lanes 0-3: there is no data to trade; add --data"):
        MarketConfig(historical_lanes="0-3")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"expiry_days": 20}, "allowed: 7, 14, 21, 30, 45"),
        ({"data": "x", "start_date": "2016-02-30"}, "start_date 2016-02-30: no such day"),
        ({"data": "x", "start_date": "2016-1-1"}, "start_date 2016-1-1"),
        ({"data": "x", "start_date": "2016-01-02", "end_date": "2016-01-01"}, "lies before start_date"),
        ({"symbols": "SPY"}, "add --data"),
        ({"end_date": "2016-01-01"}, "add --data"),
        ({"data": "x", "historical_lanes": "8", "lanes": 8}, "allowed: 0 to 7"),
        ({"data": "x", "historical_lanes": "3-1", "lanes": 8}, "the smaller number first"),
        ({"data": "x", "historical_lanes": "first"}, "lane numbers as 0,2,4-7"),
        ({"market": "bull"}, "regime"),
        ({"initial_capital": float("nan")}, "finite"),
        ({"commission": -1.0}, "out of range"),
        ({"max_positions": 0}, "out of range"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, words):
    with pytest.raises(UserError) as refused:
        MarketConfig(**settings)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)

"""What the settings of trading mean, and which values are refused."""

import pytest

from lockstep.errors import UserError
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.settings import TradingSettings
from lockstep.workloads.trading.workload import Trading


def test_symbols_are_separated_by_commas_or_spaces_and_named_once():
    config = MarketSettings(data="bars.csv", symbols="SPY, QQQ  IWM,SPY")
    assert config.symbol_list == ("SPY", "QQQ", "IWM")
    assert MarketSettings().symbol_list == ()


@pytest.mark.parametrize(
    ("lanes", "chosen"),
    [("all", range(8)), ("none", []), ("0", [0]), ("1,4-6", [1, 4, 5, 6]), ("7", [7])],
)
def test_historical_lanes_are_numbers_and_ranges(lanes, chosen):
    found = TradingSettings(data="bars.csv", historical_lanes=lanes).lanes_with_history(8)
    assert [lane for lane, historical in enumerate(found) if historical] == list(chosen) and len(found) == 8


def test_without_data_no_lane_is_historical():
    assert TradingSettings().lanes_with_history(3) == [False, False, False]
    with pytest.raises(UserError, match="historical_lanes 0-3: there is no data to trade; add --data"):
        TradingSettings(historical_lanes="0-3")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"expiry_days": 20}, "allowed: 7, 14, 21, 30, 45"),
        ({"data": "x", "start_date": "2016-02-30"}, "start_date 2016-02-30: not a valid date"),
        ({"data": "x", "start_date": "2016-1-1"}, "start_date 2016-1-1"),
        ({"data": "x", "start_date": "2016-01-02", "end_date": "2016-01-01"}, "is before start_date"),
        ({"symbols": "SPY"}, "add --data"),
        ({"end_date": "2016-01-01"}, "add --data"),
        ({"data": "x", "historical_lanes": "8", "lanes": 8}, "allowed: 0 to 7"),
        # Four accounts have four lanes where none are given.
        ({"data": "x", "historical_lanes": "4", "n_envs": 4}, "allowed: 0 to 3"),
        ({"data": "x", "historical_lanes": "3-1", "lanes": 8}, "the smaller number first"),
        ({"data": "x", "historical_lanes": "first"}, "lane numbers such as 0,2,4-7"),
        ({"market": "bull"}, "regime"),
        ({"initial_capital": float("nan")}, "finite"),
        ({"commission": -1.0}, "out of range"),
        ({"max_positions": 0}, "out of range"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(UserError) as refused:
        Trading().config(**settings)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)

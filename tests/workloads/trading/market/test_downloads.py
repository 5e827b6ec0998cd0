"""Files as people download them from Yahoo, Stooq and Alpaca, and what is said about them."""

from datetime import date, timedelta

import numpy as np
import pytest

from lockstep.errors import UserError
from lockstep.workloads.trading.market.history import load_history
from lockstep.workloads.trading.market.settings import MarketSettings

MONDAY = date(2015, 1, 5)
COUNT = 120


def weekday(number):
    return MONDAY + timedelta(days=number // 5 * 7 + number % 5)


def bar(number):
    """Open, high, low, close."""
    close = 100 + number % 7
    return close - 1, close + 2, close - 2, close


def written(path, header, line, count=COUNT):
    path.write_text("\n".join([header, *(line(number) for number in range(count))]) + "\n")
    return str(path)


def prices(number):
    return ",".join(map(str, bar(number)))


def yahoo(number):
    return f"{weekday(number)},{prices(number)},{bar(number)[3] / 2},{1000 + number}"


def yahoo_file(path, line=yahoo):
    return written(path, "Date,Open,High,Low,Close,Adj Close,Volume", line)


def loaded(data, **settings):
    return load_history(MarketSettings(data=str(data), **settings))


def refusal(data):
    with pytest.raises(UserError) as refused:
        loaded(data)
    assert "\n" not in str(refused.value)
    return str(refused.value)


EXPECTED = np.array([[*bar(number), 1000 + number] for number in range(COUNT)], dtype=float)


def test_yahoos_file_is_named_after_its_symbol_and_scaled_to_the_adjusted_close(tmp_path):
    """Half the close: all four prices are halved, the volume is not."""
    history = loaded(yahoo_file(tmp_path / "SPY (1).csv"))
    assert history.symbols == ("SPY",)
    assert np.array_equal(history.bars, EXPECTED * [0.5, 0.5, 0.5, 0.5, 1.0])
    columns = "date = Date, open = Open, high = High, low = Low, close = Close, volume = Volume"
    assert history.notes == (f"'SPY (1).csv': {columns}, symbol = the file's name, prices x 'Adj Close' / Close",)


def test_a_table_of_yfinance_tells_its_symbol_below_the_header(tmp_path):
    header = "Price,Close,High,Low,Open,Volume\nTicker,QQQ,QQQ,QQQ,QQQ,QQQ\nDate,,,,,"

    def line(number):
        open_, high, low, close = bar(number)
        return f"{weekday(number)},{close},{high},{low},{open_},{1000 + number}"

    history = loaded(written(tmp_path / "download.csv", header, line))
    assert history.symbols == ("QQQ",) and np.array_equal(history.bars, EXPECTED)
    several = written(tmp_path / "two.csv", header.replace("QQQ,QQQ,", "QQQ,SPY,", 1), line)
    assert "row 2: has several symbols side by side" in refusal(several)


def test_stooqs_columns_and_dates_are_understood(tmp_path):
    def line(number, period="D"):
        return f"SPY.US,{period},{weekday(number):%Y%m%d},000000,{prices(number)},{1000 + number},0"

    header = "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>"
    history = loaded(written(tmp_path / "spy.us.txt", header, line))
    assert history.symbols == ("SPY.US",) and np.array_equal(history.bars, EXPECTED)
    assert date.fromordinal(int(history.day[5])) == date(2015, 1, 12)
    hourly = written(tmp_path / "hours.txt", header, lambda number: line(number, "60"))
    assert "row 2, column period: 60: is no daily bar" in refusal(hourly)


def test_alpacas_timestamps_are_the_days_that_they_say(tmp_path):
    def line(number):
        return f"SPY,{weekday(number)}T05:00:00Z,{prices(number)},{1000 + number},77,100.1"

    header = "symbol,timestamp,open,high,low,close,volume,trade_count,vwap"
    history = loaded(written(tmp_path / "bars.csv", header, line))
    assert history.symbols == ("SPY",) and np.array_equal(history.bars, EXPECTED)
    assert date.fromordinal(int(history.day[0])) == MONDAY
    minutes = written(tmp_path / "minutes.csv", header, lambda number: line(number // 2))
    assert "bars must be daily, one a day" in refusal(minutes)


def test_a_folder_has_a_file_for_each_symbol(tmp_path):
    for name in ("QQQ.csv", "SPY.csv", "^VIX.csv"):
        yahoo_file(tmp_path / name)
    (tmp_path / "notes.md").write_text("not a file of bars")
    (tmp_path / ".SPY.csv").write_text("nor is this")
    history = loaded(tmp_path)
    assert history.symbols == ("QQQ", "SPY") and len(history.bars) == 2 * COUNT
    assert history.notes[0].startswith("QQQ.csv, SPY.csv, '^VIX.csv': date = Date")
    (tmp_path / "empty").mkdir()
    assert "has 0 files that end in" in refusal(tmp_path / "empty")


def test_parquet_needs_no_symbol_and_no_volume_either(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.read_csv(yahoo_file(tmp_path / "SPY.csv")).drop(columns="Volume")
    table.assign(Date=pandas.to_datetime(table.Date, utc=True)).to_parquet(tmp_path / "IWM.parquet")
    history = loaded(tmp_path / "IWM.parquet")
    assert history.symbols == ("IWM",) and "no volume" in history.notes[0]
    assert np.array_equal(history.bars, EXPECTED * [0.5, 0.5, 0.5, 0.5, 0.0])


def test_missing_days_are_one_line(tmp_path):
    """SPY lacks the days 20 and 21, for one of which there is a row without prices; QQQ lacks nine in a row."""
    spy = yahoo_file(tmp_path / "SPY.csv")
    lines = (tmp_path / "SPY.csv").read_text().splitlines()
    lines[21:23] = [f"{weekday(20)},null,null,null,null,null,null"]
    (tmp_path / "SPY.csv").write_text("\n".join(lines))
    yahoo_file(tmp_path / "QQQ.csv", lambda number: yahoo(number if number < 50 else number + 9))
    history = loaded(f"{spy},{tmp_path / 'QQQ.csv'}")
    gap = f"QQQ none between {weekday(49)} and {weekday(59)}"
    assert history.notes[1:] == (f"missing days: QQQ 9 (first {weekday(50)}), {gap}, SPY 2 (first {weekday(20)})",)


def test_what_looks_like_a_split_is_one_line(tmp_path):
    """From day 60 on prices are a seventh: the open of 104/7 follows a close of 103."""
    path = tmp_path / "AAPL.csv"

    def line(number):
        scale = 1 if number < 60 else 7
        return f"{weekday(number)}," + ",".join(str(price / scale) for price in bar(number)) + ",10"

    written(path, "date,open,high,low,close,volume", line)
    *_, note = loaded(path).notes
    assert note.endswith(f"look like splits, for which prices are not adjusted: AAPL 7:1 on {weekday(60)}")


@pytest.mark.parametrize(
    "name, header, rule",
    [
        ("---.csv", "Date,Open,High,Low,Close,Volume", "its name does not begin with one"),
        ("SPY.csv", "Price,Close,High\nTicker,SPY\nDate", "no row of tickers"),
        ("SPY.csv", "Price", "no row of tickers"),
        ("SPY.csv", "Date,Open,High,Low,Close,Adj Close,adj close", "appears more than once"),
        ("SPY.csv", "\x1b[31m,Date", "has no column open"),
    ],
)
def test_other_headers_are_refused_in_one_line(tmp_path, name, header, rule):
    message = refusal(written(tmp_path / name, header, yahoo))
    assert rule in message and "\x1b" not in message


def test_an_adjusted_close_that_is_no_price_is_refused(tmp_path):
    path = yahoo_file(tmp_path / "SPY.csv", lambda number: yahoo(number).replace(",50.0,", ",-1,"))
    assert "row 2, column adjusted close: -1: a price must be above 0" in refusal(path)

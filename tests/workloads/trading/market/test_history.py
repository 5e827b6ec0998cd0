"""Files of bars: how they are read, and how bad ones are refused: with file, row, column and rule in one line."""

import gzip
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from lockstep.errors import UserError
from lockstep.workloads.trading.market.history import WARM_UP, load_history
from lockstep.workloads.trading.market.settings import MarketSettings

HEADER = "date,symbol,open,high,low,close,volume"
SHARED = Path(__file__).parents[5] / "shared" / "data" / "market"
MONDAY = date(2015, 1, 5)


def weekday(number):
    return MONDAY + timedelta(days=number // 5 * 7 + number % 5)


def bar(number, symbol="SPY", close=None):
    close = close or 100 + number % 7
    return f"{weekday(number)},{symbol},{close - 1},{close + 2},{close - 2},{close},{1000 + number}"


def rows(count=120, symbols=("SPY",)):
    return [bar(number, symbol) for number in range(count) for symbol in symbols]


def write(path, lines, header=HEADER):
    path.write_text("\n".join([header, *lines]) + "\n")
    return str(path)


def refusal(data, **settings):
    with pytest.raises(UserError) as refused:
        load_history(MarketSettings(data=data, **settings))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_bars_are_read_unchanged(tmp_path):
    history = load_history(MarketSettings(data=write(tmp_path / "bars.csv", rows(symbols=("QQQ", "SPY")))))
    assert history.symbols == ("QQQ", "SPY")
    assert history.bars.shape == (240, 5)
    assert history.bars[121].tolist() == [100.0, 103.0, 99.0, 101.0, 1001.0]
    assert history.symbol[[0, 119, 120]].tolist() == [0, 0, 1]
    assert date.fromordinal(int(history.day[125])) == date(2015, 1, 12)


def test_columns_may_be_in_any_order_and_others_are_ignored(tmp_path):
    lines = [",".join([line.split(",")[i] for i in (6, 1, 0, 5, 4, 3, 2)]) + ",x" for line in rows()]
    path = write(tmp_path / "bars.csv", lines, "Volume,Symbol,Date,Close,Low,High,Open,Note")
    assert load_history(MarketSettings(data=path)).bars[1].tolist() == [100.0, 103.0, 99.0, 101.0, 1001.0]


def test_gzip_and_parquet_give_the_same_bars(tmp_path):
    plain = write(tmp_path / "bars.csv", rows())
    zipped = tmp_path / "bars.csv.gz"
    zipped.write_bytes(gzip.compress(Path(plain).read_bytes()))
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.read_csv(plain)
    table.to_parquet(tmp_path / "text.parquet")
    table.assign(date=pandas.to_datetime(table.date)).to_parquet(tmp_path / "times.parquet")
    expected = load_history(MarketSettings(data=plain))
    for name in ("bars.csv.gz", "text.parquet", "times.parquet"):
        found = load_history(MarketSettings(data=str(tmp_path / name)))
        assert np.array_equal(found.bars, expected.bars) and np.array_equal(found.day, expected.day), name


def test_symbols_and_dates_select_bars(tmp_path):
    path = write(tmp_path / "bars.csv", rows(200, symbols=("AAA", "BBB", "CCC")))
    history = load_history(MarketSettings(data=path, symbols="CCC AAA", start_date="2015-02-02", end_date="2015-09-01"))
    assert history.symbols == ("CCC", "AAA")
    days = [date.fromordinal(int(day)) for day in history.day]
    assert min(days) == date(2015, 2, 2) and max(days) == date(2015, 9, 1)


def test_training_ends_before_validation_starts(tmp_path):
    """200 days, the last 20 % are 40: days 160 to 199; an episode of 30 steps starts from 60 to 129, or 160 to 169."""
    history = load_history(MarketSettings(data=write(tmp_path / "bars.csv", rows(200))))
    assert date.fromordinal(history.validation_day) == weekday(160)
    starts, length = history.starts("train", 30)
    assert (starts[0], starts[-1], length) == (WARM_UP, 129, 30)
    starts, length = history.starts("validation", 30)
    assert (starts[0], starts[-1], length) == (160, 169, 30)


def test_episodes_are_shortened_if_there_are_too_few_days(tmp_path):
    history = load_history(MarketSettings(data=write(tmp_path / "bars.csv", rows(200))))
    starts, length = history.starts("validation", 250)
    assert (starts.tolist(), length) == ([160], 39)


def test_the_volatility_is_the_indexs_but_at_least_the_symbols_own(tmp_path):
    """A quiet symbol has the index's 20 %; one that jumps 3 % a day has 0.03 x sqrt(252) = 48 %."""
    quiet = [bar(n, "CALM", 100.0) for n in range(120)]
    wild = [bar(n, "WILD", 100.0 * 1.03 ** (n % 2)) for n in range(120)]
    index = [bar(n, "VIX", 20.0) for n in range(120)]
    history = load_history(MarketSettings(data=write(tmp_path / "bars.csv", quiet + wild + index)))
    assert history.symbols == ("CALM", "WILD")
    assert history.volatility[119] == pytest.approx(0.20)
    assert history.volatility[239] == pytest.approx(np.log(1.03) * np.sqrt(252), rel=1e-6)


def test_the_volatility_of_a_day_does_not_depend_on_later_days(tmp_path):
    lines = rows(150, symbols=("SPY", "VIX"))
    changed = lines[:200] + [bar(n, s, 500.0 + n) for n in range(100, 150) for s in ("SPY", "VIX")]
    one = load_history(MarketSettings(data=write(tmp_path / "a.csv", lines)))
    two = load_history(MarketSettings(data=write(tmp_path / "b.csv", changed)))
    assert np.array_equal(one.volatility[:100], two.volatility[:100])
    assert not np.array_equal(one.volatility[100:], two.volatility[100:])


def broken(edit):
    lines = rows()
    edit(lines)
    return lines


def replaced(row, column, value):
    """The file's row (its header is row 1) with another value in a column."""

    def edit(lines):
        fields = lines[row - 2].split(",")
        fields[HEADER.split(",").index(column)] = value
        lines[row - 2] = ",".join(fields)

    return edit


def swapped(lines):
    lines[20], lines[21] = lines[21], lines[20]


@pytest.mark.parametrize(
    ("edit", "messages"),
    [
        (
            swapped,
            (
                "row 23, column date",
                "SPY has a bar for 2015-02-03, which is later, in row 22; dates of a symbol must ascend",
            ),
        ),
        (lambda lines: lines.insert(5, lines[4]), ("row 7, column date", "already has a bar for that day in row 6")),
        (replaced(9, "close", "nan"), ("row 9, column close: nan", "finite")),
        (replaced(9, "close", ""), ("row 9, column close", "finite")),
        (replaced(9, "open", "inf"), ("row 9, column open: inf", "finite")),
        (replaced(9, "open", "1_0"), ("row 9, column open: 1_0", "finite")),
        (replaced(9, "low", "0"), ("row 9, column low: 0", "above 0")),
        (replaced(9, "high", "-3.5"), ("row 9, column high: -3.5", "above 0")),
        (replaced(9, "high", "1"), ("row 9, column high: 1", "below the low")),
        (replaced(9, "volume", "-1"), ("row 9, column volume: -1", "at least 0")),
        (replaced(9, "volume", "many"), ("row 9, column volume: many", "finite")),
        (replaced(9, "date", "2015-02-30"), ("row 9, column date: 2015-02-30", "not a valid date")),
        (replaced(9, "date", "5.1.2015"), ("row 9, column date: 5.1.2015", "not a valid date")),
        (replaced(9, "symbol", ""), ("row 9, column symbol", "name of a symbol")),
        (lambda lines: lines.insert(3, "2015-01-07,SPY,1,2"), ("row 5", "has 4 fields, the header has 7")),
        (lambda lines: lines.insert(3, '"2015-01-07,SPY'), ("is not valid CSV",)),
    ],
)
def test_a_bad_row_is_refused_with_file_row_column_and_rule(tmp_path, edit, messages):
    path = write(tmp_path / "bars.csv", broken(edit))
    message = refusal(path)
    for part in (path, *messages):
        assert part in message, message


def test_missing_columns_are_named(tmp_path):
    path = write(tmp_path / "bars.csv", [], "date,symbol,open,high,low,last")
    message = refusal(path)
    assert (
        "row 1: has no column close; needed: date, open" in message
        and "found: date, symbol, open, high, low, last" in message
    )
    assert "column close: appears more than once" in refusal(write(tmp_path / "two.csv", [], HEADER + ",close"))


def test_unknown_symbols_are_refused_with_the_nearest_name(tmp_path):
    path = write(tmp_path / "bars.csv", rows(symbols=("MSFT", "SPY", "VIX")))
    assert "symbols MFST" in refusal(path, symbols="MFST") and "nearest is MSFT" in refusal(path, symbols="MFST")
    assert "is the volatility" in refusal(path, symbols="VIX")


def test_ranges_without_days_are_refused(tmp_path):
    path = write(tmp_path / "bars.csv", rows())
    message = refusal(path, start_date="2018-01-01")
    assert "has 0 bars from 2018-01-01 to its last day (it has 2015-01-05 to 2015-06-19)" in message
    assert "needed: more than 80" in refusal(path, end_date="2015-02-01")


def test_too_few_days_for_validation_are_refused(tmp_path):
    history = load_history(MarketSettings(data=write(tmp_path / "bars.csv", rows(90))))
    with pytest.raises(UserError, match="no symbol has 20 days to trade for validation"):
        history.starts("validation", 30)


def test_a_volatility_that_begins_too_late_is_refused(tmp_path):
    late = [bar(n, "VIX", 20.0) for n in range(10, 120)]
    message = refusal(write(tmp_path / "bars.csv", rows() + late))
    assert "the volatility begins on 2015-01-19" in message and "--start-date" in message


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "is empty"),
        ("\n".join([HEADER, *rows()]).encode("utf-16"), "row 1: is not UTF-8"),
        (HEADER.encode() + b"\n2015-01-05,SP\xff,1,2,1,1,1\n", "row 2: is not UTF-8"),
        (HEADER.encode() + b"\n2015-01-05,SPY,1,2\0,1,1,1\n", "row 2: contains a zero byte"),
        (HEADER.encode() + b"\n" + b"7" * 100_000 + b"\n", "row 2: is longer than the 65,536 bytes"),
        (b"\x1f\x8b\x08 this is no gzip", "cannot be read"),
        (gzip.compress(HEADER.encode())[:-9], "cannot be read"),
    ],
)
def test_files_that_are_not_text_are_refused(tmp_path, content, rule):
    path = tmp_path / "bars.csv"
    path.write_bytes(content)
    message = refusal(str(path))
    assert rule in message and str(path) in message


def test_a_line_of_100_megabytes_is_refused_at_once(tmp_path):
    path = tmp_path / "bars.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(HEADER.encode() + b"\n")
        for _ in range(100):
            stream.write(b"0" * 2**20)
    assert "row 2: is longer than the 65,536 bytes a row may have" in refusal(str(path))


def test_a_byte_order_mark_is_ignored(tmp_path):
    path = tmp_path / "bars.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([HEADER, *rows()]).encode())
    assert load_history(MarketSettings(data=str(path))).bars.shape == (120, 5)


def test_missing_files_and_broken_parquet_are_refused(tmp_path):
    assert "no such file" in refusal(str(tmp_path / "none.csv"))
    pytest.importorskip("pyarrow")
    path = tmp_path / "bars.parquet"
    path.write_bytes(b"PAR1 no")
    assert "cannot be read as Parquet" in refusal(str(path))


def test_a_symbol_in_two_files_is_refused(tmp_path):
    one, two = write(tmp_path / "a.csv", rows()), write(tmp_path / "b.csv", rows())
    assert "put all bars of a symbol in one file" in refusal(f"{one},{two}")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared market data is not here")
def test_real_bars_are_read_with_the_volatility_index():
    files = ",".join(str(SHARED / name) for name in ("us_stocks_daily.csv.gz", "us_index_daily.csv.gz"))
    history = load_history(MarketSettings(data=files, symbols="SPX MSFT", start_date="2013-02-08"))
    assert history.symbols == ("SPX", "MSFT") and history.bars.shape[0] == 1002 + 1006
    assert history.volatility.min() > 0.1 and history.volatility.max() < 0.8

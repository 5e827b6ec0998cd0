"""Writes SPY.csv, daily bars, and chains.csv, quotes of options on them at every close: what --data and --chains read.

    python examples/option_chains.py folder
    lockstep train trading --preset debug --data folder/SPY.csv --chains folder/chains.csv

Both are made up: a random walk, and Black-Scholes with a smile, rounded to cents, some of it missing or broken as in
files of vendors. Replace them by your own; the names of the columns may be a vendor's.
"""

import math
import random
import sys
from datetime import date, timedelta
from pathlib import Path

FIRST, DAYS = date(2023, 1, 2), 320


def price(spot, strike, days, volatility, call):
    """Black-Scholes without interest."""
    deviation = volatility * math.sqrt(days / 365)
    d1 = math.log(spot / strike) / deviation + deviation / 2
    above, exercised = (0.5 * (1 + math.erf(d / math.sqrt(2))) for d in (d1, d1 - deviation))
    value = spot * above - strike * exercised
    return value if call else value - spot + strike


def quotes(day, spot, draw):
    """The rows of one day: the next eight Fridays, strikes of whole dollars up to 20 % away."""
    friday = day + timedelta(days=(3 - day.weekday()) % 7 + 1)
    for expiry in (friday + timedelta(days=7 * week) for week in range(8)):
        for strike in range(math.ceil(spot * 0.8), math.floor(spot * 1.2) + 1):
            for kind in "CP":
                volatility = 0.2 + 0.3 * (1 - strike / spot) ** 2 - 0.1 * (strike / spot - 1)
                mid = price(spot, strike, (expiry - day).days, volatility, kind == "C")
                half = 0.01 + 0.01 * mid
                bid, ask = max(round(mid - half, 2), 0.0), round(mid + half, 2)
                drawn = draw.random()
                if drawn < 0.01:
                    continue  # Nobody quoted it.
                if drawn < 0.012:
                    bid, ask = ask + 0.01, bid  # Crossed.
                yield f"{day},SPY,{expiry},{strike},{kind},{bid:.2f},{ask:.2f},{spot:.2f}"


def main():
    """Write both files."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    draw, spot = random.Random(7), 100.0
    bars, chains = ["Date,Open,High,Low,Close,Volume"], ["quote_date,underlying_symbol,expiration,strike,option_type"]
    chains[0] += ",bid,ask,underlying_price"
    days = [FIRST + timedelta(days=number // 5 * 7 + number % 5) for number in range(DAYS)]
    for day in days:
        opened, spot = spot, round(spot * math.exp(draw.gauss(0.0002, 0.012)), 2)
        bars.append(f"{day},{opened},{max(opened, spot)},{min(opened, spot)},{spot},1000000")
        chains += quotes(day, spot, draw)
    (folder / "SPY.csv").write_text("\n".join(bars) + "\n")
    (folder / "chains.csv").write_text("\n".join(chains) + "\n")
    print(f"{folder}: SPY.csv with {len(bars) - 1:,} bars, chains.csv with {len(chains) - 1:,} quotes")


if __name__ == "__main__":
    main()

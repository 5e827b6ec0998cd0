"""What can be set about the market, the account and the rewards. Nothing here needs torch."""

import re
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from lockstep.config.fields import Fraction, Pattern, Range
from lockstep.config.run_config import RunConfig
from lockstep.errors import UserError

EXPIRIES = (7, 14, 21, 30, 45)
"""Days to expiry that the chain quotes."""
_DATE = Pattern(r"(\d{4}-\d{2}-\d{2})?", "a date as 2016-12-31, or nothing")
_LANES = Pattern(r"all|none|\d+(-\d+)?(,\d+(-\d+)?)*", "all, none, or lane numbers as 0,2,4-7")


@dataclass(frozen=True, kw_only=True)
class MarketConfig(RunConfig):
    """The market and the account: where prices come from, what trading costs and what is paid for."""

    market: Literal["regime", "brownian", "stochastic", "jumps"] = "regime"
    """The simulated market: hidden regimes of rising and falling prices, or one without anything to learn."""
    data: str = ""
    """Files of daily bars (CSV, also .gz, or Parquet), separated by commas; none = simulated prices only."""
    symbols: str = ""
    """Symbols of the data to trade, separated by commas or spaces; none = all but volatility_symbol."""
    volatility_symbol: str = "VIX"
    """Symbol of the data whose close, in percent, is the options' volatility; not in the data = from past returns."""
    start_date: Annotated[str, _DATE] = ""
    """First day of the data to use; none = the first there is."""
    end_date: Annotated[str, _DATE] = ""
    """Last day of the data to use; none = the last there is."""
    validation_part: Annotated[float, Range(at_least=0, below=1)] = 0.2
    """Part of the days, at the end, that is kept from training and only evaluated on."""
    historical_lanes: Annotated[str, _LANES] = "all"
    """Lanes that trade the data's prices where there is data; the others trade simulated ones."""
    initial_capital: Annotated[float, Range(at_least=1_000, at_most=1e9)] = 100_000.0
    """Dollars in the account when an episode starts."""
    commission: Annotated[float, Range(at_least=0, at_most=1_000)] = 0.65
    """Dollars for each contract bought or sold; exercise and expiry are free."""
    max_positions: Annotated[int, Range(at_least=1, at_most=32)] = 5
    """Positions that may be open at once; a spread, straddle or condor is one."""
    position_size: Annotated[float, Range(above=0, at_most=1)] = 0.02
    """Part of initial_capital that a new position may cost or, where it is sold, tie up as margin."""
    expiry_days: Annotated[int, Range(at_least=7, at_most=45)] = 30
    """Days to expiry of the options that the actions trade: 7, 14, 21, 30 or 45."""
    episode_length: Annotated[int, Range(at_least=2, at_most=100_000)] = 250
    """Steps (days) of an episode."""
    bankruptcy: Annotated[float, Range(at_least=0, below=1)] = 0.2
    """Part of initial_capital at or below which the account is closed and the episode over."""
    volatility: Annotated[float, Range(at_least=0.01, at_most=3)] = 0.25
    """Yearly volatility of simulated prices, and its long-run mean where it changes."""
    drift: Annotated[float, Range(at_least=-2, at_most=2)] = 0.05
    """Yearly growth of simulated prices, before what a regime adds."""
    regime_drift: Annotated[float, Range(at_least=0, at_most=3)] = 0.2
    """What a regime adds to or takes from each day's log price, in daily standard deviations."""
    regime_length: Annotated[float, Range(at_least=1, at_most=1e9)] = 800.0
    """Days that a regime lasts on average."""
    interest: Annotated[float, Range(at_least=-0.5, at_most=1)] = 0.05
    """Yearly rate that options are priced with; cash earns nothing."""
    skew: Annotated[float, Range(at_least=0, at_most=2)] = 0.1
    """Volatility that an option is quoted with on top, for each |1 - price/strike|."""
    half_spread: Annotated[float, Range(at_least=0, below=0.5)] = 0.02
    """Half of bid to ask, as a part of the option's price, at the money; see spread_slope."""
    spread_slope: Annotated[float, Range(at_least=0, at_most=1)] = 0.01
    """What is added to half_spread for each |1 - price/strike|."""
    margin: Annotated[float, Range(at_least=0, at_most=1)] = 0.2
    """Part of the underlying's price that an uncovered short option ties up, less what it is out of the money."""
    reward_scale: Annotated[float, Range(above=0, at_most=1)] = 1e-4
    """Reward for each dollar by which the account's value changes, after costs."""
    trade_penalty: Fraction = 0.0
    """Part of the traded value taken off the reward besides the real costs; 0 = none, the guide's line: 0.001."""
    idle_penalty: Annotated[float, Range(at_least=0, at_most=1)] = 0.0
    """Taken off the reward of each step that ends without a position; 0 = none."""
    realised_bonus: Annotated[float, Range(at_least=0, at_most=1)] = 0.0
    """Part of the profit of each position that is closed, added to the reward; 0 = none."""

    def validate(self) -> None:
        """See that dates, expiry, symbols and lanes can be what they say."""
        super().validate()
        if self.expiry_days not in EXPIRIES:
            raise UserError(f"expiry_days {self.expiry_days}: allowed: {', '.join(map(str, EXPIRIES))}")
        for name in ("start_date", "end_date"):
            _read_date(name, getattr(self, name))
        if self.start_date and self.end_date and self.end_date < self.start_date:
            raise UserError(f"end_date {self.end_date} lies before start_date {self.start_date}; give a later end")
        if not self.data:
            for name in ("symbols", "start_date", "end_date"):
                if getattr(self, name):
                    raise UserError(f"{name} {getattr(self, name)!r} chooses from data, and there is none; add --data")
            if self.historical_lanes not in ("all", "none"):
                raise UserError(f"historical_lanes {self.historical_lanes}: there is no data to trade; add --data")
        self.is_historical_lane(0)

    @property
    def symbol_list(self) -> tuple[str, ...]:
        """The symbols asked for, in order; empty: all that the data has."""
        return tuple(dict.fromkeys(re.split(r"[,\s]+", self.symbols.strip()))) if self.symbols.strip() else ()

    @property
    def judged_on(self) -> Literal["train", "validation"]:
        """The days of the data that a finished policy is evaluated on: unseen ones, where any were kept."""
        return "validation" if self.validation_part else "train"

    def is_historical_lane(self, lane: int) -> bool:
        """Tell whether a lane trades the data's prices."""
        if not self.data or self.historical_lanes in ("all", "none"):
            return bool(self.data) and self.historical_lanes == "all"
        chosen = set[int]()
        for part in self.historical_lanes.split(","):
            first, _, last = part.partition("-")
            if int(last or first) < int(first) or int(last or first) >= self.effective_lanes:
                raise UserError(
                    f"historical_lanes {self.historical_lanes}: {part} is not among the run's lanes; "
                    f"allowed: 0 to {self.effective_lanes - 1}, the smaller number first"
                )
            chosen.update(range(int(first), int(last or first) + 1))
        return lane in chosen


def _read_date(name: str, text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise UserError(f"{name} {text}: no such day; allowed: a date as 2016-12-31") from None

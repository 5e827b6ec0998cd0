"""The settings of the market, the account and the rewards. No torch here: flags are read before it is imported."""

import re
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from lockstep.config.fields import Fraction, Listed, OptionalPath, Pattern, Range
from lockstep.config.settings import Settings
from lockstep.errors import UserError

EXPIRIES = (7, 14, 21, 30, 45)
"""Days to expiry that the chain quotes, as in the guide."""
MONEYNESS = (0.9, 0.95, 1.0, 1.05, 1.1)
"""Strikes of the chain, as fractions of the price."""
_DATE = Pattern(r"(\d{4}-\d{2}-\d{2})?", "a date such as 2016-12-31, or nothing")


@dataclass(frozen=True, kw_only=True)
class MarketSettings(Settings):
    """The market and the account: the source of prices, trading costs and rewards."""

    market: Literal["regime", "brownian", "stochastic", "jumps"] = "regime"
    """The simulated market: regime has hidden rising and falling phases; in the others there is nothing to learn."""
    data: Annotated[OptionalPath, Listed()] = ""
    """Files or folders of daily bars (CSV, .gz, Parquet), separated by commas; empty = simulated prices only."""
    chains: Annotated[OptionalPath, Listed()] = ""
    """Files or folders of recorded option quotes, to trade on the days of --data; empty = the model prices options."""
    symbols: Annotated[str, Listed()] = ""
    """Symbols of the data to trade, separated by commas or spaces; empty = all but volatility_symbol."""
    volatility_symbol: str = "VIX"
    """Symbol whose close, in percent, is the options' volatility; if the data lacks it, past returns are used."""
    start_date: Annotated[str, _DATE] = ""
    """First day of the data to use; empty = its first day."""
    end_date: Annotated[str, _DATE] = ""
    """Last day of the data to use; empty = its last day."""
    validation_part: Annotated[float, Range(at_least=0, below=1)] = 0.2
    """Fraction of the days, at the end, that is kept from training for evaluation."""
    validation_from: Annotated[str, _DATE] = ""
    """First day that is kept from training, instead of validation_part; empty = validation_part decides."""
    encode_symbols: bool = True
    """Whether an observation says which symbol of the data is traded; a policy that is not told can trade any."""
    initial_capital: Annotated[float, Range(at_least=1_000, at_most=1e9)] = 100_000.0
    """Dollars in the account when an episode starts."""
    commission: Annotated[float, Range(at_least=0, at_most=1_000)] = 0.65
    """Dollars for each contract of 100 units bought or sold; exercise and expiry are free."""
    max_positions: Annotated[int, Range(at_least=1, at_most=32)] = 5
    """Positions that may be open at once; a spread, straddle or condor is one."""
    position_size: Annotated[float, Range(above=0, at_most=1)] = 0.02
    """Fraction of initial_capital that a new position may cost or, if sold, tie up as margin."""
    expiry_days: Annotated[int, Range(at_least=7, at_most=45)] = 30
    """Days to expiry of the options that the actions trade: 7, 14, 21, 30 or 45."""
    episode_length: Annotated[int, Range(at_least=2, at_most=100_000)] = 250
    """Steps (days) of an episode."""
    bankruptcy: Annotated[float, Range(at_least=0, below=1)] = 0.2
    """Fraction of initial_capital at or below which the account is closed and the episode ends."""
    volatility: Annotated[float, Range(at_least=0.01, at_most=3)] = 0.25
    """Yearly volatility of simulated prices; its long-run mean in a stochastic market."""
    drift: Annotated[float, Range(at_least=-2, at_most=2)] = 0.05
    """Yearly growth of simulated prices, before what a regime adds."""
    regime_drift: Annotated[float, Range(at_least=0, at_most=3)] = 0.2
    """What a regime adds to or takes from each day's log price, in daily standard deviations."""
    regime_length: Annotated[float, Range(at_least=1, at_most=1e9)] = 800.0
    """Days that a regime lasts on average."""
    interest: Annotated[float, Range(at_least=-0.5, at_most=1)] = 0.05
    """Yearly rate that options on real prices are priced with; simulated ones cost their expected payoff."""
    skew: Annotated[float, Range(at_least=0, at_most=2)] = 0.1
    """Volatility added to an option's quote on real prices per unit of |1 - price/strike|."""
    half_spread: Annotated[float, Range(at_least=0, below=0.5)] = 0.02
    """Half of the bid-ask spread, as a fraction of the option's price, at the money; see spread_slope."""
    spread_slope: Annotated[float, Range(at_least=0, at_most=1)] = 0.01
    """Added to half_spread per unit of |1 - price/strike|."""
    margin: Annotated[float, Range(at_least=0, at_most=1)] = 0.2
    """Fraction of the underlying's price that an uncovered short option ties up, less its out-of-the-money amount."""
    reward_scale: Annotated[float, Range(above=0, at_most=1)] = 1e-4
    """Reward for each dollar by which the account's value changes, after costs."""
    trade_penalty: Fraction = 0.0
    """Fraction of the traded value subtracted from the reward besides real costs; 0 = none, the guide uses 0.001."""
    idle_penalty: Annotated[float, Range(at_least=0, at_most=1)] = 0.0
    """Subtracted from the reward of each step that ends without a position; 0 = none."""
    realised_bonus: Annotated[float, Range(at_least=0, at_most=1)] = 0.0
    """Fraction of each closed position's profit added to the reward; 0 = none."""

    def validate(self) -> None:
        """Check dates and expiry, and that nothing selects from data if there is none."""
        super().validate()
        if self.expiry_days not in EXPIRIES:
            raise UserError(f"expiry_days {self.expiry_days}: allowed: {', '.join(map(str, EXPIRIES))}")
        for name in ("start_date", "end_date", "validation_from"):
            _check_date(name, getattr(self, name))
        if self.start_date and self.end_date and self.end_date < self.start_date:
            raise UserError(f"end_date {self.end_date} is before start_date {self.start_date}; give a later end_date")
        if not self.data:
            for name in ("chains", "symbols", "start_date", "end_date", "validation_from"):
                if getattr(self, name):
                    raise UserError(f"{name} {getattr(self, name)!r} selects from data, but there is none; add --data")

    @property
    def symbol_list(self) -> tuple[str, ...]:
        """The symbols to trade, in order and without duplicates; empty = all that the data has."""
        return tuple(dict.fromkeys(re.split(r"[,\s]+", self.symbols.strip()))) if self.symbols.strip() else ()

    @property
    def convexity(self) -> float:
        """What is taken from a day's log price in the regime market, in daily variances.

        Jensen's inequality: with a drift of unknown sign the expected price grows faster than the mean log price. So
        the expected price at expiry grows with `drift` alone.
        """
        return 0.5 * self.regime_drift**2 * self.expiry_days

    @property
    def evaluation_split(self) -> Literal["train", "validation"]:
        """The days of the data that a trained policy is evaluated on: those kept from training, if any."""
        return "validation" if self.validation_part or self.validation_from else "train"


def _check_date(name: str, text: str) -> None:
    try:
        if text:
            date.fromisoformat(text)
    except ValueError:
        raise UserError(f"{name} {text}: not a valid date; allowed: a date such as 2016-12-31") from None

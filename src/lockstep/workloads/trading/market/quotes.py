"""Prices of options: on real days Black-Scholes with a skew, in a simulated market the expected payoff. E: accounts.

Nobody knows the expected payoff on real days. There options are priced as traders do: with the interest rate, and with
a volatility that is higher away from the money. In a simulated market it is known (see `smiles`), and prices that
differ from it would pay a policy that has learned nothing.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lockstep.workloads.trading.market import smiles
from lockstep.workloads.trading.market.chains_on_device import ChainsOnDevice, Ladder, Quote
from lockstep.workloads.trading.market.pricing import DAYS_PER_YEAR, Sheet, black_scholes, skewed
from lockstep.workloads.trading.market.settings import EXPIRIES, MONEYNESS, MarketSettings

START_PRICE = 100.0
"""Of simulated prices, in dollars."""
Terms = tuple[Tensor, Tensor]
"""The logarithm of (expected price at expiry / price), and the volatility that gives the fair price."""


@dataclass
class Recorded:
    """Recorded chains, and which accounts trade them at which bar."""

    chains: ChainsOnDevice
    row: Tensor
    """(E,) the market's own tensor, which it updates in place."""
    historical: Tensor
    """(E,) bool: the others trade simulated prices."""

    def ladder(self) -> Ladder:
        """What the actions trade today; of accounts on simulated prices it says nothing."""
        return self.chains.ladder(self.row)

    def held(self, strike: Tensor, days: Tensor, call: Tensor, account: Tensor | None) -> Quote:
        """Quotes of contracts that are held; `account`: see `Quotes.legs`."""
        if account is None:
            shape = (-1, *(1,) * (strike.dim() - 1))
            row, real = self.row.view(shape), self.historical.view(shape)
        else:
            row, real = self.row.index_select(0, account), self.historical.index_select(0, account)
        quote = self.chains.held(row, strike, days, call)
        return replace(quote, found=quote.found & real)


class Quotes:
    """Prices for all accounts of a batch."""

    recorded: Recorded | None = None
    """Recorded chains, where there are any; they take the place of the prices here."""

    def __init__(self, settings: MarketSettings, historical: Tensor, device: torch.device) -> None:
        """`historical` (E,) bool: which accounts trade real prices."""
        self._settings = settings
        self._simulated = ~historical.to(device)
        # Asked once: in every step it would wait for the device. `_fair` is None if no account is simulated.
        self._all = not bool(historical.any())
        self._fair = None if bool(historical.all()) else _FAIR[settings.market](settings, device)
        self._days = torch.tensor(EXPIRIES, dtype=torch.float64, device=device)[:, None]
        self._strike = torch.tensor(MONEYNESS, dtype=torch.float64, device=device)
        self._one = torch.ones((), dtype=torch.float64, device=device)

    @property
    def remember_listing(self) -> bool:
        """Whether the price of an option depends on the underlying's price on the day it was listed."""
        return isinstance(self._fair, _Regime)

    def contract_size(self, spot: Tensor) -> Tensor | float:
        """(E,) what a contract listed at price `spot` (E,) is for, as a fraction of the usual number of units.

        In a simulated market it is for the same number of dollars always, as if the underlying were split. Otherwise
        an account would trade more while the price is high, and a high price tells something about the regime.
        """
        if self._fair is None:
            return 1.0
        return START_PRICE / spot if self._all else torch.where(self._simulated, START_PRICE / spot, 1.0)

    def chain(self, volatility: Tensor) -> tuple[Sheet, Tensor]:
        """The options listed today per dollar of the price, and their volatilities: (B, 5 expiries, 5 strikes) each.

        volatility (B,): of each account, or B = 1 if all accounts are simulated and have the same.
        """
        base = volatility[:, None, None]
        fair = self._fair.today(base, self._strike, self._days) if self._fair else None
        mask = None if self._all else self._simulated[:, None, None]
        return self._priced(self._one, self._strike, self._days, base, fair, mask)

    def legs(
        self,
        spot: Tensor,
        volatility: Tensor,
        strike: Tensor,
        days: Tensor,
        price_at_listing: Tensor,
        account: Tensor | None,
    ) -> Sheet:
        """Options that are held; all tensors broadcast. `price_at_listing`: the underlying's price then.

        `account`: which account each is held by; None = the first axis is E.
        """
        fair = self._fair.held(spot, volatility, strike, days, price_at_listing) if self._fair else None
        mask = None
        if not self._all:
            by_account = self._simulated.view(-1, *(1,) * (spot.dim() - 1))
            mask = by_account if account is None else self._simulated.index_select(0, account)
        return self._priced(spot, strike, days, volatility, fair, mask)[0]

    def _priced(
        self, spot: Tensor, strike: Tensor, days: Tensor, volatility: Tensor, fair: Terms | None, mask: Tensor | None
    ) -> tuple[Sheet, Tensor]:
        """Sheet and volatility; `fair`: in the simulated market, None if no account needs it; `mask`: None = all do."""
        real = skewed(volatility, spot / strike, self._settings.skew)
        if fair is None:
            return black_scholes(spot, strike, days, real, self._settings.interest), real
        growth, sigma = fair[0].exp(), fair[1]
        interest: Tensor | float = 0.0
        if mask is not None:
            growth, sigma = torch.where(mask, growth, 1.0), torch.where(mask, sigma, real)
            interest = torch.where(mask, 0.0, self._settings.interest).double()
        # Without interest the price is the expected payoff of an underlying that is expected to grow so much.
        return black_scholes(spot * growth, strike, days, sigma, interest), sigma


class _Fair(ABC):
    """The terms of fair prices in one simulated market."""

    def __init__(self, settings: MarketSettings, device: torch.device) -> None:
        self._drift = settings.drift / DAYS_PER_YEAR
        self._volatility = settings.volatility
        self._daily = settings.volatility / math.sqrt(DAYS_PER_YEAR)
        self._make(settings, device)

    def _make(self, settings: MarketSettings, device: torch.device) -> None:  # noqa: B027 - not all have tables
        """Build the tables."""

    @abstractmethod
    def held(self, spot: Tensor, volatility: Tensor, strike: Tensor, days: Tensor, price_at_listing: Tensor) -> Terms:
        """Of options with `days` to expiry that were listed at that price of the underlying."""

    def today(self, volatility: Tensor, strike: Tensor, days: Tensor) -> Terms:
        """Of the options listed today, at strikes that are fractions of the price."""
        return self.held(torch.ones_like(strike), volatility, strike, days, torch.ones_like(strike))


class _Brownian(_Fair):
    """Black and Scholes' own market."""

    def held(self, spot: Tensor, volatility: Tensor, strike: Tensor, days: Tensor, price_at_listing: Tensor) -> Terms:
        return self._drift * days, volatility


class _Jumps(_Fair):
    """A mixture over the number of jumps."""

    def _make(self, settings: MarketSettings, device: torch.device) -> None:
        ratio, lift = smiles.jump_smiles(settings.volatility)
        self._ratio, self._lift = ratio.flatten().to(device), lift.to(device)

    def held(self, spot: Tensor, volatility: Tensor, strike: Tensor, days: Tensor, price_at_listing: Tensor) -> Terms:
        whole = days.clamp(0, smiles.LONGEST).long()
        lift = self._drift * days + self._lift[whole]
        away = (torch.log(spot / strike) + lift) / (self._daily * whole.clamp(min=1).sqrt())
        return lift, volatility * _between(self._ratio, whole, _place(away), smiles.PLACES)


class _Stochastic(_Fair):
    """A volatility that moves, and that everybody sees."""

    def _make(self, settings: MarketSettings, device: torch.device) -> None:
        self._ratio = smiles.volatility_smiles(settings.volatility).flatten().to(device)

    def held(self, spot: Tensor, volatility: Tensor, strike: Tensor, days: Tensor, price_at_listing: Tensor) -> Terms:
        whole = days.clamp(0, smiles.LONGEST).long()
        lift = self._drift * days
        away = (torch.log(spot / strike) + lift) * math.sqrt(DAYS_PER_YEAR) / (volatility * whole.clamp(min=1).sqrt())
        level = torch.log(volatility / self._volatility)
        row, part = _split(_place(level, smiles.VOLATILITY_REACH, smiles.VOLATILITY_PLACES), smiles.VOLATILITY_PLACES)
        row = whole * smiles.VOLATILITY_PLACES + row
        column = _place(away, smiles.REACH, smiles.WING_PLACES)
        below = _between(self._ratio, row, column, smiles.WING_PLACES)
        above = _between(self._ratio, row + 1, column, smiles.WING_PLACES)
        return lift, volatility * torch.lerp(below, above, part)


class _Regime(_Fair):
    """Phases that nobody is told of; see `smiles.RegimeSmiles`."""

    def _make(self, settings: MarketSettings, device: torch.device) -> None:
        self._expiry = settings.expiry_days
        tables = smiles.regime_smiles(
            settings.volatility,
            self._drift,
            settings.regime_drift,
            settings.regime_length,
            settings.convexity,
            settings.expiry_days,
        )
        self._ratio, self._lift = tables.ratio.flatten().to(device), tables.lift.flatten().to(device)
        self._listed_ratio, self._listed_lift = tables.listed_ratio.to(device), tables.listed_lift[:, None].to(device)

    def held(self, spot: Tensor, volatility: Tensor, strike: Tensor, days: Tensor, price_at_listing: Tensor) -> Terms:
        age = (self._expiry - days).clamp(0, self._expiry).long()
        # Strikes are 0.9, 0.95, ... 1.1 of the price at which the option was listed.
        number = torch.round((strike / price_at_listing - MONEYNESS[0]) / (MONEYNESS[1] - MONEYNESS[0]))
        place = _place(torch.log(spot / price_at_listing) / (self._daily * age.clamp(min=1).sqrt()))
        lift = self._drift * days.clamp(min=0) + _between(self._lift, age, place, smiles.PLACES)
        row = age * len(MONEYNESS) + number.clamp(0, len(MONEYNESS) - 1).long()
        return lift, volatility * _between(self._ratio, row, place, smiles.PLACES)

    def today(self, volatility: Tensor, strike: Tensor, days: Tensor) -> Terms:
        return self._drift * days + self._listed_lift, volatility * self._listed_ratio


_FAIR: dict[str, type[_Fair]] = {
    "brownian": _Brownian,
    "jumps": _Jumps,
    "stochastic": _Stochastic,
    "regime": _Regime,
}


def _place(value: Tensor, reach: float = smiles.REACH, count: int = smiles.PLACES) -> Tensor:
    """Where in a table that reaches from -reach to reach, as a fractional place; the ends stand for all beyond."""
    return ((value + reach) * ((count - 1) / (2.0 * reach))).clamp(0.0, count - 1.0)


def _split(place: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The place below, and the fraction of the way to the next one."""
    below = place.floor().clamp(max=count - 2.0)
    return below.long(), place - below


def _between(table: Tensor, row: Tensor, place: Tensor, count: int) -> Tensor:
    """Linear interpolation in a row of a flattened table with `count` places a row."""
    below, part = _split(place, count)
    at = row * count + below
    return torch.lerp(table[at], table[at + 1], part)

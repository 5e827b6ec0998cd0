"""Recorded option chains on the device: what is listed today, and the quotes of contracts that are held.

E: accounts, R: bars of the data, Q: quotes. Everything is looked up by the bar that an account is at, so that a step
needs neither loops nor the host.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from lockstep.workloads.trading.market.chains import DAY_BITS, STRIKE_BITS, Chains
from lockstep.workloads.trading.market.pricing import Sheet, black_scholes, implied_volatility
from lockstep.workloads.trading.market.settings import EXPIRIES, MONEYNESS


@dataclass
class Ladder:
    """The contracts that the actions trade: calls by strike, then puts."""

    mid: Tensor
    """(..., 10) per dollar of the price; 0 = none is listed."""
    spread: Tensor
    """(..., 10) half of the spread, as a fraction of mid."""
    strike: Tensor
    """(..., 10) dollars."""
    available: Tensor
    """(..., 10) bool: whether there is such a contract."""
    days: Tensor
    """(...,) to expiry; the same for all ten."""


@dataclass
class Quote:
    """Quotes of contracts that are held."""

    found: Tensor
    """bool: whether there is one."""
    mid: Tensor
    """Dollars."""
    spread: Tensor
    """Half of the spread, as a fraction of mid."""


@lru_cache(maxsize=2)
def chains_on(device: torch.device, chains: Chains, interest: float, expiry_days: int) -> "ChainsOnDevice":
    """The chains on a device: shared by all environments of a process, since they may have millions of quotes."""
    return ChainsOnDevice(chains, interest, expiry_days, device)


class ChainsOnDevice:
    """The chains of every bar."""

    def __init__(self, chains: Chains, interest: float, expiry_days: int, device: torch.device) -> None:
        """`expiry_days`: those of the contracts that actions trade."""
        self._key = torch.from_numpy(chains.key.copy()).to(device)
        bid, ask = torch.from_numpy(chains.bid.copy()).to(device), torch.from_numpy(chains.ask.copy()).to(device)
        self._mid, self._spread = 0.5 * (bid + ask), (ask - bid) / (ask + bid)
        self._close = torch.from_numpy(chains.close.copy()).to(device)
        place = torch.from_numpy(chains.nearest_quote).to(device)
        self.available = place >= 0
        """(R, 2, 5, 5) bool: whether there is a contract near enough to the one that is meant."""
        # Quote 0 stands for contracts that are not listed; `available` hides it.
        self._place = place.clamp(min=0)
        self._interest = interest
        ladder = (slice(None), slice(None), EXPIRIES.index(expiry_days))
        self._ladder = self._ladder_of(self._place[ladder].flatten(1), self.available[ladder].flatten(1))

    def _ladder_of(self, place: Tensor, available: Tensor) -> Ladder:
        key = self._key[place]
        nominal = torch.tensor(MONEYNESS, dtype=torch.float64, device=key.device).repeat(2) * self._close[:, None]
        days = (key >> (STRIKE_BITS + 1)) & ((1 << DAY_BITS) - 1)
        return Ladder(
            mid=torch.where(available, self._mid[place] / self._close[:, None], 0.0),
            spread=torch.where(available, self._spread[place], 0.0),
            # A contract that is not listed has a strike, too, since it is a divisor.
            strike=torch.where(available, (key & ((1 << STRIKE_BITS) - 1)) / 1000.0, nominal),
            available=available,
            # All of a ladder have one expiry; 1 where nothing is listed.
            days=torch.where(available, days, 1).amax(1).double(),
        )

    def ladder(self, row: Tensor) -> Ladder:
        """Of each account's bar (E,)."""
        whole = self._ladder
        columns = (column.index_select(0, row) for column in vars(whole).values())
        return Ladder(*columns)

    def sheet(self) -> tuple[Sheet, Tensor, Tensor, Tensor, Tensor]:
        """Prices and greeks per dollar of the price, volatility, strike, days and half-spread: (R, 2, 5, 5) each.

        Greeks are those of Black-Scholes at the volatility with which it gives the recorded mid.
        """
        key, close = self._key[self._place], self._close[:, None, None, None]
        days = ((key >> (STRIKE_BITS + 1)) & ((1 << DAY_BITS) - 1)).double()
        strike = (key & ((1 << STRIKE_BITS) - 1)) / 1000.0 / close
        mid = self._mid[self._place] / close
        call = torch.tensor([True, False], device=key.device)[None, :, None, None].expand_as(mid)
        one = torch.ones_like(mid)
        volatility = implied_volatility(mid, one, strike, days, call, self._interest)
        sheet = black_scholes(one, strike, days, volatility, self._interest)
        sheet.call = sheet.put = mid
        return sheet, volatility, strike, days, self._spread[self._place]

    def held(self, row: Tensor, strike: Tensor, days: Tensor, call: Tensor) -> Quote:
        """Of contracts by the bar they are held on; all tensors broadcast."""
        whole = days.clamp(0, (1 << DAY_BITS) - 1).long()
        thousandths = torch.round(strike * 1000.0).clamp(0, (1 << STRIKE_BITS) - 1).long()
        wanted = (((row << DAY_BITS) + whole << 1) + call.long() << STRIKE_BITS) + thousandths
        place = torch.searchsorted(self._key, wanted).clamp(max=len(self._key) - 1)
        # On its last day a contract is worth its exercise value, whatever was quoted.
        found = (self._key[place] == wanted) & (days > 0)
        return Quote(found, self._mid[place], self._spread[place])

"""The option chain quoted each day around the price: 5 expiries x 5 strikes, calls and puts. E: accounts.

Everything is per dollar of the price: strikes are fractions of it, so quotes depend only on the volatility. If that is
constant they are computed once for all accounts (B = 1), else for each (B = E). Bid and ask lie around the price of
`Quotes`; the half-spread is a fraction of it that grows away from the money.

The ladder is the ten contracts of one expiry that the actions trade: the calls of the five strikes (0-4), then the
puts (5-9).
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from lockstep.workloads.trading.market.chains_on_device import ChainsOnDevice
from lockstep.workloads.trading.market.pricing import Sheet
from lockstep.workloads.trading.market.quotes import Quotes, Recorded
from lockstep.workloads.trading.market.settings import EXPIRIES, MONEYNESS, MarketSettings

STRIKES = len(MONEYNESS)
CONTRACTS = 2 * STRIKES
ROWS, COLUMNS = 20, 15
"""The shape of the chain in an observation, which is the guide's."""
_SHOWN = ((True, 2), (False, 2), (True, 3), (False, 1))
"""For each expiry an observation shows the call and put at the money, the call 5 % above and the put 5 % below it."""
_LAST, _VOLUME = 3, 4  # Columns of a row, see `_show`.
# Factors that bring the quotes and greeks to about -1..1 for the network.
_PRICE_SCALE, _GAMMA_SCALE, _THETA_SCALE, _VEGA_SCALE, _RHO_SCALE = 10.0, 0.1, 1000.0, 500.0, 1000.0


def half_spread(settings: MarketSettings, moneyness: Tensor) -> Tensor:
    """Half of the bid-ask spread as a fraction of the option's price; moneyness: price / strike."""
    return settings.half_spread + settings.spread_slope * (1.0 - moneyness).abs()


@dataclass
class Listing:
    """Contracts of recorded chains that are the ladder today."""

    strike: Tensor
    """(E, 10) dollars."""
    available: Tensor
    """(E, 10) bool: whether there is a contract near enough to the one that is meant."""
    real: Tensor
    """(E, 1) bool: whether the account trades it; the others trade simulated prices, where everything is listed."""


class Chain:
    """Today's quotes: a ladder of prices to trade at, and rows for the observation."""

    def __init__(
        self,
        settings: MarketSettings,
        count: int,
        device: torch.device,
        quotes: Quotes,
        constant: bool = False,
    ) -> None:
        """`constant`: quote once, with the configured volatility; only if all accounts are simulated."""
        self._constant, self._quotes = constant, quotes
        self._days = torch.tensor(EXPIRIES, dtype=torch.float64, device=device)
        self._strike = torch.tensor(MONEYNESS, dtype=torch.float64, device=device)
        self._expiry = EXPIRIES.index(settings.expiry_days)
        self._spread = half_spread(settings, 1.0 / self._strike)
        count = 1 if constant else count
        self.spread = self._spread.repeat(2).expand(1, CONTRACTS)
        """(1 or B, 10) half-spread of each contract of the ladder, as a fraction of its price."""
        self.expiry = torch.full((1,), float(settings.expiry_days), dtype=torch.float64, device=device)
        """(1 or B,) days to expiry of the ladder."""
        self.listing: Listing | None = None
        """The contracts of the ladder, where accounts trade recorded chains; else None."""
        self.ladder = torch.zeros(count, CONTRACTS, dtype=torch.float64, device=device)
        """(B, 10) mid prices of the contracts that the actions trade: calls by strike, then puts."""
        # Preallocated and updated in place, because a captured CUDA graph keeps tensor addresses.
        self._rows = torch.zeros(count, ROWS, COLUMNS, device=device)
        self._slopes = torch.zeros(2, count, ROWS, device=device)
        self._liquidity = _relative_volume(device)
        if quotes.recorded is not None:
            self._make_recorded(quotes.recorded, count)
        if constant:
            self._quote(torch.full((1,), settings.volatility, dtype=torch.float64, device=device))

    def quote(self, volatility: Tensor) -> None:
        """Compute the quotes for volatility (E,)."""
        if not self._constant:
            self._quote(volatility)
        if self._quotes.recorded is not None:
            self._list(self._quotes.recorded)

    def rows(self, volume_ratio: Tensor, since_open: Tensor) -> Tensor:
        """(E, 20, 15) the chain as an observation shows it; (E,) volume / mean volume, and open / close - 1."""
        # A copy: today's last price and volume are written into it.
        rows = self._rows.repeat(len(volume_ratio), 1, 1) if self._constant else self._rows.clone()
        delta, gamma = self._slopes
        moved = since_open[:, None]
        # The last trade is taken to be at the open: the closing price moved back by delta and gamma (2nd order).
        last = rows[:, :, -1] + _PRICE_SCALE * (delta * moved + 0.5 * gamma * moved * moved)
        rows[:, :, _LAST] = last.clamp(min=0.0)
        rows[:, :, _VOLUME] = self._liquidity + 0.5 * volume_ratio.log()[:, None]
        return rows

    def _make_recorded(self, recorded: Recorded, count: int) -> None:
        """Room for the ladders of recorded chains, and what an observation shows of them on every bar."""
        self.spread, self.expiry = self.spread.repeat(count, 1), self.expiry.repeat(count)
        self._nominal = self.spread.clone(), self.expiry.clone()
        ladder = recorded.ladder()
        self.listing = Listing(ladder.strike, ladder.available, recorded.historical[:, None])
        # Kept here as well as in the cache, because a captured CUDA graph keeps tensor addresses.
        self._recorded_rows, self._recorded_slopes = _recorded_columns(recorded.chains)

    def _list(self, recorded: Recorded) -> None:
        """Put what is listed today in the place of the model's quotes, for accounts on real prices."""
        assert self.listing is not None
        today, real = recorded.ladder(), recorded.historical
        nominal_spread, nominal_expiry = self._nominal
        self.ladder.copy_(torch.where(real[:, None], today.mid, self.ladder))
        self.spread.copy_(torch.where(real[:, None], today.spread, nominal_spread))
        self.expiry.copy_(torch.where(real, today.days, nominal_expiry))
        self.listing.available.copy_(today.available)
        self.listing.strike.copy_(today.strike)
        rows, slopes = self._recorded_rows.index_select(0, recorded.row), self._recorded_slopes
        self._rows.copy_(torch.where(real[:, None, None], rows, self._rows))
        self._slopes.copy_(torch.where(real[None, :, None], slopes.index_select(1, recorded.row), self._slopes))

    def _quote(self, volatility: Tensor) -> None:
        sheet, sigma = self._quotes.chain(volatility)
        # (B, 5 expiries, 5 strikes) each; the ladder is one expiry.
        self.ladder.copy_(torch.cat((sheet.call[:, self._expiry], sheet.put[:, self._expiry]), dim=1))
        self._show(sheet, sigma.expand_as(sheet.vega))

    def _show(self, sheet: Sheet, sigma: Tensor) -> None:
        """Fill the columns that depend on the quotes alone, scaled for the network."""
        count = len(self._rows)
        spread, strike = self._spread.expand(count, 5, 5), self._strike.expand(count, 5, 5)
        days = self._days[:, None].expand(count, 5, 5)
        rows, slopes = _columns(sheet, sigma, strike, days, spread, self._liquidity)
        self._rows.copy_(rows)
        self._slopes.copy_(slopes)


@lru_cache(maxsize=2)
def _recorded_columns(chains: ChainsOnDevice) -> tuple[Tensor, Tensor]:
    """(R, 20, 15) rows of an observation, and (2, R, 20) delta and gamma, on every bar: the same for all accounts."""
    rows, slopes = _columns(*chains.sheet(), _relative_volume(chains.available.device))
    available = _shown(chains.available)
    # An empty row for a contract that is not listed.
    return torch.where(available[:, :, None], rows, 0.0).float(), torch.where(available, slopes, 0.0).float()


def _columns(
    sheet: Sheet, sigma: Tensor, strike: Tensor, days: Tensor, spread: Tensor, liquidity: Tensor
) -> tuple[Tensor, Tensor]:
    """(B, 20, 15) rows of an observation, and (2, B, 20) delta and gamma.

    From (B, 5, 5), or (B, 2, 5, 5) where calls and puts have strikes, quotes and volatilities of their own, and from
    the (20,) `_relative_volume`.
    """
    one = torch.ones_like(strike)
    mid, width = _shown(sheet.call, sheet.put), _shown(spread)
    delta, gamma = _shown(sheet.call_delta, sheet.call_delta - 1.0), _shown(sheet.gamma)
    columns = (
        _PRICE_SCALE * (_shown(strike) - 1.0),
        _PRICE_SCALE * mid * (1.0 - width),
        _PRICE_SCALE * mid * (1.0 + width),
        mid,  # Placeholders for the last price and the volume, which `rows` fills in.
        mid,
        liquidity.double().expand_as(mid),  # Stands for the open interest.
        _shown(sigma),
        delta,
        _GAMMA_SCALE * gamma,
        _THETA_SCALE * _shown(sheet.call_theta, sheet.put_theta),
        _VEGA_SCALE * _shown(sheet.vega),
        _RHO_SCALE * _shown(sheet.call_rho, sheet.put_rho),
        _shown(one, 0.0 * one),
        _shown(days) / EXPIRIES[-1],
        _PRICE_SCALE * mid,
    )
    return torch.stack(columns, dim=2), torch.stack((delta, gamma))


def _relative_volume(device: torch.device) -> Tensor:
    """(20,) half the logarithm of a contract's relative volume: highest near the money and for short expiries."""
    strike, days = (torch.tensor(values, dtype=torch.float64, device=device) for values in (MONEYNESS, EXPIRIES))
    # Made up: there is no recorded option volume to fit it to.
    volume = torch.exp(-(strike - 1.0).abs() / 0.1 - days[:, None].expand(5, 5) / 60.0)
    relative = 0.5 * torch.stack([volume[:, place] for _, place in _SHOWN], 1).flatten().log()
    return relative.float()


def _shown(call: Tensor, put: Tensor | None = None) -> Tensor:
    """(B, 20) the contracts that are shown, from (B, 5, 5) or, calls and puts apart, (B, 2, 5, 5).

    `put`: if it differs from the call.
    """
    put = call if put is None else put
    call, put = (call[:, 0], put[:, 1]) if call.dim() == 4 else (call, put)
    return torch.stack([(call if is_call else put)[:, :, place] for is_call, place in _SHOWN], 2).flatten(1)

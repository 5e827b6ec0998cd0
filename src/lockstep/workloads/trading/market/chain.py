"""The option chain quoted each day around the price: 5 expiries x 5 strikes, calls and puts. E: accounts.

Everything is per dollar of the price: strikes are fractions of it, so quotes depend only on the volatility. If that is
constant they are computed once for all accounts (B = 1), else for each (B = E). Bid and ask lie around the price of
`Quotes`; the half-spread is a fraction of it that grows away from the money.

The ladder is the ten contracts of one expiry that the actions trade: the calls of the five strikes (0-4), then the
puts (5-9).
"""

import torch
from torch import Tensor

from lockstep.workloads.trading.market.pricing import Sheet
from lockstep.workloads.trading.market.quotes import Quotes
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
        self.spread = self._spread.repeat(2)
        """(10,) half-spread of each contract of the ladder."""
        count = 1 if constant else count
        self.ladder = torch.zeros(count, CONTRACTS, dtype=torch.float64, device=device)
        """(B, 10) mid prices of the contracts that the actions trade: calls by strike, then puts."""
        # Preallocated and updated in place, because a captured CUDA graph keeps tensor addresses.
        self._rows = torch.zeros(count, ROWS, COLUMNS, device=device)
        self._slopes = torch.zeros(2, count, ROWS, device=device)
        self._liquidity = self._relative_volume().float()
        if constant:
            self._quote(torch.full((1,), settings.volatility, dtype=torch.float64, device=device))

    def quote(self, volatility: Tensor) -> None:
        """Compute the quotes for volatility (E,)."""
        if not self._constant:
            self._quote(volatility)

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

        def shown(call: Tensor, put: Tensor | None = None) -> Tensor:
            """(B, 20) the contracts that are shown, from (B, 5, 5); `put`: if it differs from the call."""
            put = call if put is None else put
            return torch.stack([(call if is_call else put)[:, :, place] for is_call, place in _SHOWN], 2).flatten(1)

        one = torch.ones_like(strike)
        mid, width = shown(sheet.call, sheet.put), shown(spread)
        delta, gamma = shown(sheet.call_delta, sheet.call_delta - 1.0), shown(sheet.gamma)
        columns = (
            _PRICE_SCALE * (shown(strike) - 1.0),
            _PRICE_SCALE * mid * (1.0 - width),
            _PRICE_SCALE * mid * (1.0 + width),
            mid,  # Placeholders for the last price and the volume, which `rows` fills in.
            mid,
            self._liquidity.double().expand_as(mid),  # Stands for the open interest.
            shown(sigma),
            delta,
            _GAMMA_SCALE * gamma,
            _THETA_SCALE * shown(sheet.call_theta, sheet.put_theta),
            _VEGA_SCALE * shown(sheet.vega),
            _RHO_SCALE * shown(sheet.call_rho, sheet.put_rho),
            shown(one, 0.0 * one),
            shown(days) / EXPIRIES[-1],
            _PRICE_SCALE * mid,
        )
        self._rows.copy_(torch.stack(columns, dim=2))
        self._slopes.copy_(torch.stack((delta, gamma)))

    def _relative_volume(self) -> Tensor:
        """(20,) half the logarithm of a contract's relative volume: highest near the money and for short expiries."""
        days = self._days[:, None].expand(5, 5)
        # Made up: there is no recorded option volume to fit it to.
        volume = torch.exp(-(self._strike - 1.0).abs() / 0.1 - days / 60.0)
        return 0.5 * torch.stack([volume[:, place] for _, place in _SHOWN], 1).flatten().log()

"""The chain of options as quoted each day around the price: 5 expiries x 5 strikes, calls and puts. E: accounts.

Everything is per dollar of the price: a strike is a part of it, so quotes depend on the volatility alone, and where
that is constant they are made once for all accounts (B = 1), else for each (B = E). Bid and ask lie around the
Black-Scholes price; their half-distance is a part of it that grows away from the money.
"""

import torch
from torch import Tensor

from lockstep.workloads.trading.actions import CONTRACTS, MONEYNESS
from lockstep.workloads.trading.market_config import EXPIRIES, MarketConfig
from lockstep.workloads.trading.paths import Term
from lockstep.workloads.trading.pricing import Sheet, black_scholes, skewed

ROWS, COLUMNS = 20, 15
_SHOWN = ((True, 2), (False, 2), (True, 3), (False, 1))
"""Of each expiry an observation shows the call and put at the money, the call 5 % above and the put 5 % below it."""
_LAST, _VOLUME = 3, 4
_PRICE_SCALE, _GAMMA_SCALE, _THETA_SCALE, _VEGA_SCALE, _RHO_SCALE = 10.0, 0.1, 1000.0, 500.0, 1000.0


def half_spread(config: MarketConfig, moneyness: Tensor) -> Tensor:
    """Half the distance from bid to ask as a part of the price; moneyness: price / strike."""
    return config.half_spread + config.spread_slope * (1.0 - moneyness).abs()


class Chain:
    """Today's quotes: a ladder to trade at, and rows to look at."""

    def __init__(
        self, config: MarketConfig, count: int, device: torch.device, term: Term | None = None, constant: bool = False
    ) -> None:
        """`constant`: quote once, with the volatility of the configuration, for all accounts."""
        self._config, self._constant = config, constant
        self._term = Term(term.trend[:1], term.memory) if term and constant else term
        self._days = torch.tensor(EXPIRIES, dtype=torch.float64, device=device)
        self._strike = torch.tensor(MONEYNESS, dtype=torch.float64, device=device)
        self._expiry = EXPIRIES.index(config.expiry_days)
        self._spread = half_spread(config, 1.0 / self._strike)
        self.spread = self._spread.repeat(2)
        """(10,) half-spread of each contract of the ladder."""
        count = 1 if constant else count
        self.ladder = torch.zeros(count, CONTRACTS, dtype=torch.float64, device=device)
        """(B, 10) mid prices of the contracts that the actions trade: calls by strike, then puts."""
        self._rows = torch.zeros(count, ROWS, COLUMNS, device=device)
        self._slopes = torch.zeros(2, count, ROWS, device=device)
        self._liquidity = self._relative_volume().float()
        if constant:
            self._quote(torch.full((1,), config.volatility, dtype=torch.float64, device=device))

    def quote(self, volatility: Tensor) -> None:
        """Make the quotes for volatility (E,)."""
        if not self._constant:
            self._quote(volatility)

    def rows(self, volume_ratio: Tensor, since_open: Tensor) -> Tensor:
        """(E, 20, 15) what an observation shows; (E,) volume over its mean, and open / close - 1."""
        rows = self._rows.repeat(len(volume_ratio), 1, 1) if self._constant else self._rows.clone()
        delta, gamma = self._slopes
        moved = since_open[:, None]
        # A contract's last trade was in the morning: the close's price, taken back along its own slope and bend.
        last = rows[:, :, -1] + _PRICE_SCALE * (delta * moved + 0.5 * gamma * moved * moved)
        rows[:, :, _LAST] = last.clamp(min=0.0)
        rows[:, :, _VOLUME] = self._liquidity + 0.5 * volume_ratio.log()[:, None]
        return rows

    def _quote(self, volatility: Tensor) -> None:
        base = volatility[:, None, None]
        if self._term:
            base = self._term.quoted(base, self._days[:, None])
        sigma = skewed(base, 1.0 / self._strike, self._config.skew)
        sheet = black_scholes(1.0, self._strike, self._days[:, None], sigma, self._config.interest)
        self.ladder.copy_(torch.cat((sheet.call[:, self._expiry], sheet.put[:, self._expiry]), dim=1))
        self._show(sheet, sigma.expand_as(sheet.vega))

    def _show(self, sheet: Sheet, sigma: Tensor) -> None:
        count = len(self._rows)
        spread, strike = self._spread.expand(count, 5, 5), self._strike.expand(count, 5, 5)
        days = self._days[:, None].expand(count, 5, 5)

        def shown(call: Tensor, put: Tensor | None = None) -> Tensor:
            put = call if put is None else put
            return torch.stack([(call if is_call else put)[:, :, place] for is_call, place in _SHOWN], 2).flatten(1)

        one = torch.ones_like(strike)
        mid, width = shown(sheet.call, sheet.put), shown(spread)
        delta, gamma = shown(sheet.call_delta, sheet.call_delta - 1.0), shown(sheet.gamma)
        columns = (
            _PRICE_SCALE * (shown(strike) - 1.0),
            _PRICE_SCALE * mid * (1.0 - width),
            _PRICE_SCALE * mid * (1.0 + width),
            mid,  # The place of the last price and the volume, which `rows` fills in.
            mid,
            self._liquidity.double().expand_as(mid),
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
        """(20,) half the logarithm of a contract's usual volume over 100: most is traded near the money, and soon."""
        days = self._days[:, None].expand(5, 5)
        volume = torch.exp(-(self._strike - 1.0).abs() / 0.1 - days / 60.0)
        return 0.5 * torch.stack([volume[:, place] for _, place in _SHOWN], 1).flatten().log()

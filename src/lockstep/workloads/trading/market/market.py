"""The prices that accounts trade: simulated ones, or bars of real days. E: accounts, R: bars of the data.

When an account restarts, its simulated market continues, so that there are always past bars to observe; prices are only
rescaled so that the episode starts at 100. An account on real days restarts on a random day, drawn with a counter-based
generator.
"""

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.trading.market.chains_on_device import chains_on
from lockstep.workloads.trading.market.history import TRADING_DAYS, History, Split
from lockstep.workloads.trading.market.indicators import BARS, CLOSE, HIGH, LOW, VOLUME, Indicators, larger_movement
from lockstep.workloads.trading.market.paths import Dice, Paths
from lockstep.workloads.trading.market.pricing import DAYS_PER_YEAR
from lockstep.workloads.trading.market.quotes import START_PRICE, Quotes, Recorded
from lockstep.workloads.trading.market.settings import MarketSettings


class Records:
    """The bars of the data on the device."""

    def __init__(self, history: History, split: Split, settings: MarketSettings, device: torch.device) -> None:
        starts, self.episode_length = history.starts(split, settings.episode_length)
        self.starts = torch.from_numpy(starts).to(device)
        """(N,) bars at which an episode may start."""
        self.symbol = torch.from_numpy(history.symbol).to(device)
        bars = torch.from_numpy(history.bars)
        self.close = bars[:, CLOSE].clone().to(device)
        self.volatility = torch.from_numpy(history.volatility).to(device)
        self.days = torch.from_numpy(history.day).diff(prepend=torch.from_numpy(history.day[:1])).double().to(device)
        """(R,) calendar days since the bar before."""
        terms = (settings.interest, settings.expiry_days)
        self.chains = chains_on(device, history.chains, *terms) if history.chains else None
        """Recorded option chains; None = options are priced by the model."""
        # float32: bars are only observed. Money is computed from `close`, which is float64.
        self.bars = bars.float().to(device)
        # From float64, as the float32 bars do not tell a tie from a small difference. Row 0 has no day before it.
        larger = torch.nn.functional.pad(larger_movement(bars[:, HIGH], bars[:, LOW]), (1, 0))
        self._larger = larger.to(device)

    def window(self, row: Tensor) -> Tensor:
        """(E, 5, 20) the bars up to and including each row."""
        return self.bars.unfold(0, BARS, 1).index_select(0, row - (BARS - 1))

    def larger(self, row: Tensor) -> Tensor:
        """(E, 19) the `larger_movement` of each bar of that window but the first."""
        return self._larger.unfold(0, BARS - 1, 1).index_select(0, row - (BARS - 2))


class Market:
    """Each account's market. All state is updated in place, because a captured CUDA graph keeps tensor addresses."""

    def __init__(
        self,
        settings: MarketSettings,
        index: Tensor,
        seed: int,
        device: torch.device,
        historical: Tensor,
        records: Records | None,
        dice: Dice,
    ) -> None:
        """`historical` (E,) bool: which accounts trade the records; none if `records` is None."""
        assert records is not None or not bool(historical.any())
        self._index, self._seed = index, seed
        self.paths, self._records, self._indicators = Paths(settings), records, Indicators(device)
        self.historical = historical.to(device)
        # Decided once: asking a GPU tensor in every step would wait for the device.
        self._simulates = not bool(historical.all())
        self._replays = bool(historical.any())
        self.constant_volatility = self.paths.constant_volatility and not self._replays
        self.dice = dice
        # Created once: `random.random_words` would create it in every step.
        self._first_draw = torch.zeros((), dtype=torch.int64, device=device)
        self.days_per_year = torch.where(self.historical, TRADING_DAYS, DAYS_PER_YEAR)
        """(E,) bars in a year."""
        self._make_state(len(index), device)
        self.quotes = Quotes(settings, historical, device)
        if records is not None and records.chains is not None:
            self.quotes.recorded = Recorded(records.chains, self.row, self.historical)

    def _make_state(self, count: int, device: torch.device) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros(count, *shape, dtype=dtype, device=device)

        self.clock, self.row = zeros(dtype=torch.int64), zeros(dtype=torch.int64)
        """(E,) days since the start of the run, which is the counter of the random numbers; the bar of the data."""
        self.spot, self.volatility, self.regime = zeros(), zeros(), zeros()
        """(E,) price, yearly volatility of the options' quotes, and the hidden regime: 1 rising, -1 falling, 0 none."""
        self.first_spot = zeros()
        """(E,) the price when the episode started."""
        self.days = zeros() + 1.0
        """(E,) calendar days that the last bar took."""
        self.bars = zeros(5, BARS, dtype=torch.float32)
        """(E, 5, 20) open, high, low, close, volume of the last 20 bars, the oldest first."""

    @property
    def bar_count(self) -> int:
        """Rows of the data; 1 without data, as row 0 then stands for none."""
        return len(self._records.close) if self._records else 1

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to continue."""
        names = ("clock", "row", "spot", "volatility", "regime", "first_spot", "days", "bars")
        return {name: getattr(self, name) for name in names}

    def begin(self) -> None:
        """Simulate the first bars, so that the first observation has a past."""
        if not self._simulates:
            return
        self.spot.fill_(START_PRICE)
        self.volatility.fill_(self.paths.mean_volatility)
        self.regime.copy_(self.paths.first_regime(self.dice.next(self.clock)))
        self.bars.fill_(START_PRICE)
        self.bars[:, VOLUME] = 1.0
        # These replace all bars filled in above.
        for _ in range(BARS):
            self.advance()

    def advance(self) -> None:
        """Advance one day. The bars of historical accounts are read in `restart`, once their rows are known."""
        self.clock.add_(1)
        if self._simulates:
            self._simulate()
        if self._replays:
            assert self._records is not None
            # Simulated accounts, and accounts past their episode's end, stop at the last row.
            self.row.add_(1).clamp_(max=len(self._records.close) - 1)
            self._take(self.spot, self._records.close)
            self._take(self.volatility, self._records.volatility)
            self._take(self.days, self._records.days)

    def _simulate(self) -> None:
        day = self.paths.day(self.volatility, self.regime, self.dice.next(self.clock))
        prices = self.spot[:, None] * torch.stack((torch.ones_like(day.close), day.high, day.low, day.close), dim=1)
        self.spot.copy_(prices[:, CLOSE])
        bar = torch.cat((prices, day.volume[:, None]), dim=1).float()
        self.bars.copy_(torch.cat((self.bars[:, :, 1:], bar[:, :, None]), dim=2))
        self.volatility.copy_(day.volatility)
        self.regime.copy_(day.regime)

    def restart(self, ended: Tensor) -> None:
        """Restart the episodes of the accounts in the mask (E,), and read every account's last bars."""
        if self._simulates:
            # Historical accounts are rescaled, too, but `_replay` overwrites them.
            unit = torch.where(ended, START_PRICE / self.spot, 1.0)
            self.spot.mul_(unit)
            self.bars[:, :VOLUME].mul_(unit.float()[:, None, None])
        if self._replays:
            self._replay(ended)
        self.first_spot.copy_(torch.where(ended, self.spot, self.first_spot))

    def _replay(self, ended: Tensor) -> None:
        records = self._records
        assert records is not None
        # A 32-bit word times N, shifted by 32 bits, is a uniform number from 0 to N - 1.
        word = random.random_words(self._seed, "trading-start", self._index, self.clock, self._first_draw)[0]
        start = records.starts.index_select(0, (word * len(records.starts)) >> 32)
        self.move(torch.where(ended & self.historical, start, self.row))

    def move(self, row: Tensor) -> None:
        """Put historical accounts at bars (E,) of the data, and read every account's last bars."""
        records = self._records
        assert records is not None
        self.row.copy_(row)
        self._take(self.spot, records.close)
        self._take(self.volatility, records.volatility)
        # Simulated accounts have row 0, before which there is no window; theirs is not used.
        bars = records.window(self.row.clamp(min=BARS - 1))
        self.bars.copy_(torch.where(self.historical[:, None, None], bars, self.bars) if self._simulates else bars)
        # Nobody knows the regime of real days: a rule that follows it holds.
        self.regime.masked_fill_(self.historical, 0.0)

    def _take(self, tensor: Tensor, column: Tensor) -> None:
        """Copy a column of the data at each historical account's row."""
        found = column.index_select(0, self.row)
        # Without simulated accounts there is nothing to keep.
        tensor.copy_(torch.where(self.historical, found, tensor) if self._simulates else found)

    def symbol(self) -> Tensor:
        """(E,) the number of each historical account's symbol; 0 for simulated accounts, which have none."""
        if self._records is None:
            return torch.zeros_like(self.row)
        return self._records.symbol.index_select(0, self.row)

    def indicators(self, logs: Tensor) -> Tensor:
        """(E, 20) the technical indicators; logs (E, 20): logarithms of the closes."""
        larger = self._larger() if self._replays else None
        return self._indicators.read(self.bars, logs, self.volatility.float(), self.days_per_year, larger)

    def _larger(self) -> Tensor:
        """(E, 19) the `larger_movement` of each day in the observation."""
        assert self._records is not None
        larger = self._records.larger(self.row.clamp(min=BARS - 1))
        if not self._simulates:
            return larger
        simulated = larger_movement(self.bars[:, HIGH].double(), self.bars[:, LOW].double())
        return torch.where(self.historical[:, None], larger, simulated)

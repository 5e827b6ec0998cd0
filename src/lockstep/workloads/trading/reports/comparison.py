"""Results of a comparison: a row for each trader, as JSON, text and a chart. T: days, N: episodes."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.reporting.drawing.chart import Band, Chart
from lockstep.reporting.text_table import aligned_lines

# Names of rows, which are keys of the JSON report.
TRAINED, FORGETFUL, EQUAL_RISK = "trained", "memory_cleared", "buy_and_hold_at_equal_risk"
EQUITY = "equity.png"
RATIOS = ("volatility", "sharpe", "sortino", "drawdown", "turnover", "exposure", "win_rate")
"""Columns of a row. volatility: yearly standard deviation of the account's daily changes / initial capital, over all
episodes; the others are means over the episodes in which they are defined, None if there are none."""

# Columns of the first of the two tables that a row is printed in.
_FIRST_TABLE = 5


@dataclass(frozen=True)
class Interval:
    """A mean over episodes with its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float], independent: int | None = None) -> "Interval":
        """The interval by Student's t-distribution; infinite for one value.

        `independent`: how many of the values are independent; the others do not narrow the interval.
        """
        # All values estimate the mean and the deviation; only the independent ones count as samples.
        mean, count = fmean(values), min(len(values), independent or len(values))
        half = _student(count - 1) * stdev(values) / math.sqrt(count) if count > 1 else math.inf
        return cls(mean, mean - half, mean + half)

    def __gt__(self, other: "Interval") -> bool:
        """Above the other without overlap."""
        return self.low > other.high


def _student(degrees: int) -> float:
    """The 97.5 % quantile of Student's t-distribution (Cornish-Fisher expansion; within 1 % from 4 degrees on)."""
    # Computed here, because SciPy is not a dependency. z is the normal distribution's quantile.
    z = 1.959964
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


@dataclass(frozen=True)
class Row:
    """One trader's results: profit with its confidence interval, one number per ratio, and the account by day."""

    profit: Interval
    ratios: dict[str, float | None] = field(default_factory=dict)
    equity: NDArray[np.float64] | None = None
    """(T + 1, N) dollars."""

    def summary(self) -> dict[str, float | None]:
        """As JSON; bounds are null if there are too few episodes for an interval."""
        # JSON has no infinity.
        bounds = {"low": self.profit.low, "high": self.profit.high}
        return {
            "profit": self.profit.mean,
            **{name: bound if math.isfinite(bound) else None for name, bound in bounds.items()},
            **self.ratios,
        }


@dataclass(frozen=True)
class Span:
    """The days of the data that a section covers."""

    first: str
    last: str
    episodes: int
    length: int
    """Days of an episode."""
    independent: int
    """The largest number of episodes that share no day of a symbol."""
    scale: float
    """Fraction of the capital that buy-and-hold at equal risk has in the underlying."""

    def lines(self) -> list[str]:
        """Notes below the table: what its intervals and the equal-risk row mean."""
        return [
            f"  {self.first} to {self.last}: {self.episodes:,} episodes of {self.length} days. At most "
            f"{self.independent} such episodes share no day of a symbol;",
            "  intervals count no more than that. If symbols are correlated, even these intervals are too narrow.",
            f"  at equal risk: buy-and-hold with {self.scale:.2f} of the capital, which gives it the trained policy's "
            "volatility; no costs, dividends or interest.",
        ]

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "first_day": self.first,
            "last_day": self.last,
            "episodes": self.episodes,
            "episode_days": self.length,
            "episodes_that_share_no_day": self.independent,
            "equal_risk": "buy-and-hold with equal_risk_scale of the capital in the underlying, which gives it the "
            "trained policy's volatility; no costs, dividends or interest",
            "equal_risk_scale": self.scale,
        }


@dataclass(frozen=True)
class Section:
    """All traders on the same episodes of one kind of prices."""

    title: str
    rows: dict[str, Row]
    span: Span | None = None

    def lines(self) -> list[str]:
        """Tables of mean profit with its 95 % interval and of the ratios; conclusions and notes below them."""
        head = ["", "profit $", "95 % interval", *map(_readable, RATIOS)]
        rows = [
            [
                _readable(name),
                f"{row.profit.mean:,.0f}",
                _bounds(row.profit),
                *(_cell(row.ratios.get(key)) for key in RATIOS),
            ]
            for name, row in self.rows.items()
        ]
        lines = [self.title]
        # All columns in one table would be wider than most terminals.
        for first, end in ((1, _FIRST_TABLE), (_FIRST_TABLE, len(head))):
            cells = [[line[0], *line[first:end]] for line in (head, *rows)]
            to_left = [column == 0 for column in range(len(cells[0]))]
            lines += [f"  {line}" for line in aligned_lines(cells[0], cells[1:], to_left, (), None)]
        return lines + self._verdict() + (self.span.lines() if self.span else [])

    def _verdict(self) -> list[str]:
        """Which traders are beaten significantly, the share of the oracle's profit, and the lead over buy-and-hold."""
        # The oracle is no competitor: it knows what nobody can.
        mine = self.rows[TRAINED].profit
        beaten = [name for name in self.rows if name not in (TRAINED, "oracle") and mine > self.rows[name].profit]
        lines = [f"  significantly above (intervals do not overlap): {', '.join(map(_readable, beaten)) or 'nobody'}"]
        if "oracle" in self.rows:
            # A share of next to nothing, or of a loss, is a number without a meaning.
            share = f"{mine.mean / self.oracle.mean:.0%}" if self.oracle.low > 0 else "- (its own interval includes 0)"
            lines.append(f"  share of the profit of the oracle, which knows the hidden regime: {share}")
        lead = self.lead
        if lead is not None:
            lines.append(f"  trained less {_readable(EQUAL_RISK)}: {lead.mean:,.0f} (95 % interval {_bounds(lead)})")
        return lines

    @property
    def oracle(self) -> Interval:
        """The profit of the rule that knows the hidden regime."""
        return self.rows["oracle"].profit

    @property
    def lead(self) -> Interval | None:
        """The trained policy's profit less that of buy-and-hold at equal risk, episode by episode; None without it."""
        if self.span is None or EQUAL_RISK not in self.rows:
            return None
        # Differences of the same episodes: the luck of the prices cancels, so the interval is narrower.
        mine, other = self.rows[TRAINED].equity, self.rows[EQUAL_RISK].equity
        assert mine is not None and other is not None
        return Interval.of((mine[-1] - other[-1]).tolist(), self.span.independent)

    def summary(self) -> dict[str, Any]:
        """As JSON: rows by trader, and the section's days under `about`."""
        rows: dict[str, Any] = {name: row.summary() for name, row in self.rows.items()}
        if self.span is None:
            return rows
        about = self.span.summary()
        if self.lead is not None:
            about["trained_less_equal_risk"] = Row(self.lead).summary()
        return rows | {"about": about}


@dataclass(frozen=True)
class Report:
    """All sections. The last one is the most important: days kept from training, if there are any."""

    sections: dict[str, Section]

    def summary(self) -> dict[str, Any]:
        """As JSON: by section and trader."""
        return {key: section.summary() for key, section in self.sections.items()}

    def table(self) -> str:
        """As text."""
        return "\n\n".join("\n".join(section.lines()) for section in self.sections.values())

    def write(self, folder: Path) -> list[Path]:
        """Draw every trader's mean account by day, with a band for the middle 80 % of the trained policy's episodes."""
        section = list(self.sections.values())[-1]
        curves = {name: row.equity for name, row in section.rows.items() if row.equity is not None}
        low, high = np.quantile(curves[TRAINED], (0.1, 0.9), axis=1)
        means = {name: equity.mean(1) for name, equity in curves.items()}
        title = f"account in dollars, {section.title}: means; shaded: 80 % of the trained policy's episodes"
        path = folder / EQUITY
        Chart(title, means, band=Band(low, high, TRAINED)).draw().save(path)
        return [path]


def _cell(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _readable(name: str) -> str:
    return name.replace("_", " ")


def _bounds(interval: Interval) -> str:
    return f"{interval.low:,.0f} to {interval.high:,.0f}" if math.isfinite(interval.low) else "-"

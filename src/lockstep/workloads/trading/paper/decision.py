"""What was decided on a day, and why, as text and JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.config.values import shown
from lockstep.config.yaml_text import shown_path
from lockstep.output import counted

_LISTED = 4
"""Actions whose probabilities are printed, and reasons; JSON has all of them."""


@dataclass(frozen=True)
class Decision:
    """One day."""

    day: str
    price: float
    value: float
    """Of the account at the day's close, before the action."""
    cash: float
    positions: int
    action: str
    probabilities: Mapping[str, float]
    """Of all actions."""
    without: Mapping[str, float]
    """Its probability if a part of what the policy observes, or its memory, is replaced by zeros: the reason for it."""
    trained_on: bool
    """Whether the policy was trained on this day, so that its decision proves nothing."""

    def line(self) -> str:
        """The day in one line."""
        return f"{self.day} at {self.price:,.2f}: account {self.value:,.2f} dollars, {self.action}"

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class TradingDays:
    """The days that were new to an account; the last is today."""

    symbol: str
    began: str
    profit: float
    """Dollars since the account began."""
    decisions: list[Decision]
    contracts: int
    """Contracts of each leg that today's action opens; 0 = none."""
    paid: float
    """Dollars that it pays, costs included; negative if it receives them."""
    costs: float
    bankrupt: bool
    file: str
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        days = [decision.summary() for decision in self.decisions]
        names = ("symbol", "began", "profit", "contracts", "paid", "costs", "bankrupt", "file")
        return {name: getattr(self, name) for name in names} | {"days": days, "notes": list(self.notes)}

    def table(self) -> str:
        """As text: earlier new days a line each, then today's decision."""
        *earlier, today = self.decisions
        lines = [f"{'data':10} {note}" for note in self.notes]
        lines += [f"{'missed':10} {decision.line()}" for decision in earlier]
        seen = "; the policy was trained on this day" if today.trained_on else ""
        positions = counted(today.positions, "position")
        lines += [
            f"{'day':10} {today.day}, {shown(self.symbol)} at {today.price:,.2f}{seen}",
            f"{'account':10} {today.value:,.2f} dollars, of which cash {today.cash:,.2f}; {positions}; "
            f"{self.profit:+,.2f} since {self.began}",
        ]
        if self.bankrupt:
            lines.append(f"{'action':10} none: the account is bankrupt")
        else:
            lines += self._action(today)
        return "\n".join([*lines, f"{'kept in':10} {shown_path(self.file)}"])

    def _action(self, today: Decision) -> list[str]:
        order = ""
        if self.contracts:
            way = "pays" if self.paid >= 0 else "receives"
            order = f", {counted(self.contracts, 'contract')} of each leg: {way} {abs(self.paid):,.2f} dollars"
        elif self.costs:
            order = f": receives {-self.paid:,.2f} dollars" if self.paid < 0 else f": pays {self.paid:,.2f} dollars"
        cost = f", of which {self.costs:,.2f} are costs" if self.costs else ""
        likely = sorted(today.probabilities.items(), key=lambda item: -item[1])[:_LISTED]
        # What the probability falls to without it: the lower, the more it is the reason.
        reasons = sorted(today.without.items(), key=lambda item: item[1])[:_LISTED]
        return [
            f"{'action':10} {today.action}{order}{cost}",
            f"{'policy':10} {', '.join(f'{name} {share:.0%}' for name, share in likely)}",
            f"{'reason':10} {today.action} would have "
            + ", ".join(f"{share:.0%} without the {name.replace('_', ' ')}" for name, share in reasons),
        ]

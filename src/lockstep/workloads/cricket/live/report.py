"""A forecast of a match as text and as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.output import counted
from lockstep.workloads.cricket.columns import OUTCOME_RUNS, OUTCOMES
from lockstep.workloads.cricket.live.simulation import Endings
from lockstep.workloads.cricket.live.situation import BALLS, NextBall, Situation
from lockstep.workloads.cricket.matches.match import Match

_BAR = 30
"""Characters of the longest bar."""
_QUANTILES = (5, 25, 50, 75, 95)
_LEAST = 0.02
"""Changes of log-odds below this are not worth a line."""


@dataclass(frozen=True)
class MatchForecast:
    """What is expected of a match."""

    match: Match
    at: Situation | None
    """Where it stands; None if there is nothing to forecast."""
    note: str = ""
    """What there is to know about it; why there is nothing to forecast."""
    ball: NextBall | None = None
    probabilities: Tensor = field(default_factory=lambda: torch.zeros(len(OUTCOMES)))
    """(7,) of the next ball."""
    moved: Mapping[str, Tensor] = field(default_factory=dict)
    """By group of features: the change (7,) of each outcome's log-odds that it makes."""
    endings: Endings | None = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to forecast."""
        return self.at is None

    def summary(self) -> dict[str, Any]:
        """The forecast as JSON values."""
        match = self.match
        about = {"match": match.file, "teams": list(match.teams), "date": match.date, "venue": match.venue}
        if self.at is None or self.ball is None:
            return {**about, "note": self.note}
        names = list(self.at.match.players)
        found: dict[str, Any] = {
            **about,
            "innings": self.at.innings + 1,
            "batting": self.at.batting,
            "runs": self.at.runs,
            "wickets": self.at.wickets,
            "legal_balls": int(self.at.legal.sum()),
            "target": self.at.target or None,
            "next_ball": {
                "over": self.ball.over,
                "ball": self.ball.ball_in_over + 1,
                "striker": names[self.ball.striker],
                "nonstriker": names[self.ball.nonstriker],
                "bowler": names[self.ball.bowler],
                "guessed": list(self.ball.guessed),
                "probabilities": _by_outcome(self.probabilities),
                "expected_runs": self._expected_runs(),
                "moved_by": {group: _by_outcome(change) for group, change in self.moved.items()},
            },
        }
        if self.note:
            found["note"] = self.note
        return found if self.endings is None else found | {"simulation": self._simulation(self.endings)}

    def table(self) -> str:
        """The forecast as lines."""
        match = self.match
        about = ", ".join(part for part in (match.date, match.venue) if part)
        lines = [f"{match.teams[0]} v {match.teams[1]}" + (f" ({about})" if about else "")]
        if self.at is None or self.ball is None:
            return "\n".join([*lines, f"{self.note}: nothing to forecast"])
        names, legal = list(self.at.match.players), int(self.at.legal.sum())
        needed = (
            f", {self.at.target - self.at.runs} needed from {counted(self.at.allotted - legal, 'ball')}"
            if self.at.target
            else ""
        )
        score = f"{self.at.runs}/{self.at.wickets} after {legal // BALLS}.{legal % BALLS}"
        striker, nonstriker = names[self.ball.striker], names[self.ball.nonstriker]
        guessed = f"   (guessed: {', '.join(self.ball.guessed)})" if self.ball.guessed else ""
        lines += [f"{self.at.batting} {score}{needed}", f"next: {names[self.ball.bowler]} to {striker}{guessed}"]
        lines += [f"      {nonstriker} at the other end", "", *self._bars(), "", *self._reasons()]
        if self.endings is not None:
            lines += ["", *self._outlook(self.endings)]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _expected_runs(self) -> float:
        return float(self.probabilities @ torch.tensor(OUTCOME_RUNS, dtype=self.probabilities.dtype))

    def _bars(self) -> list[str]:
        most = float(self.probabilities.max())
        return [
            f"{outcome:7} {share:6.1%}  {'█' * round(_BAR * share / most)}"
            for outcome, share in zip(OUTCOMES, self.probabilities.tolist(), strict=True)
        ] + [f"expected runs {self._expected_runs():.2f}"]

    def _reasons(self) -> list[str]:
        """The two outcomes that each group moves most, the strongest group first."""
        lines = ["what moved it: change of log-odds against the same ball without"]
        for group, change in sorted(self.moved.items(), key=lambda item: -float(item[1].abs().max())):
            most = change.abs().argsort(descending=True)[:2].tolist()
            told = [f"{OUTCOMES[place]} {float(change[place]):+.2f}" for place in most if abs(change[place]) >= _LEAST]
            if told:
                lines.append(f"  {group:18} {', '.join(told)}")
        return lines

    def _simulation(self, endings: Endings) -> dict[str, Any]:
        assert self.at is not None
        first = self.at.match.innings[0].team
        chase = self.at.other(first)
        final = endings.second if self.at.innings else endings.first
        return {
            "games": len(final),
            "final_score": {
                "team": self.at.batting,
                "mean": float(final.mean()),
                "deviation": float(final.std()),
                **{f"p{share:02d}": float(np.percentile(final, share)) for share in _QUANTILES},
            },
            "wins": {first: 1 - endings.chase_wins, chase: endings.chase_wins},
            "tie": endings.ties,
        }

    def _outlook(self, endings: Endings) -> list[str]:
        told = self._simulation(endings)
        score, wins = told["final_score"], told["wins"]
        (one, first), (other, second) = wins.items()
        return [
            f"played out {told['games']:,} times:",
            f"  {score['team']} make {score['mean']:.0f} ± {score['deviation']:.0f}, half of the time "
            f"{score['p25']:.0f} to {score['p75']:.0f}, nine times out of ten {score['p05']:.0f} to {score['p95']:.0f}",
            f"  {one} win {first:.1%}, {other} {second:.1%} (a tie, {told['tie']:.1%}, counts half for each)",
        ]


def _by_outcome(values: Tensor) -> dict[str, float]:
    return dict(zip(OUTCOMES, values.tolist(), strict=True))

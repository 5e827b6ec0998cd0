"""Momentum and pressure, from the last deliveries of the innings. Definitions and constants: the original program's."""

import numpy as np

from lockstep.compute.device_array import look_up
from lockstep.workloads.cricket.features.match_state import progress_phase, required_rate
from lockstep.workloads.cricket.features.running_sums import ratio
from lockstep.workloads.cricket.features.scoreboard import Scoreboard

_WINDOW = 12
"""Deliveries that count as recent."""
_DECAY = 0.7
"""Weight of a delivery relative to the one after it."""
_EXPECTED_RATE = np.array([7.5, 8.0, 10.0])
"""Usual runs an over in powerplay, middle and death overs."""


def dynamics(scoreboard: Scoreboard) -> dict[str, dict[str, np.ndarray]]:
    """Features by node type and name, (N,) each."""
    momentum = _momentum(scoreboard)
    return {
        "batting_momentum": {"momentum": momentum},
        "bowling_momentum": {"momentum": -momentum},
        "pressure_index": {"pressure": _pressure(scoreboard)},
        "dot_pressure": _dot_pressure(scoreboard),
    }


def _momentum(scoreboard: Scoreboard) -> np.ndarray:
    recent = scoreboard.in_innings.recent(scoreboard.book["total_runs"], _WINDOW)
    rate = ratio(recent * 6, np.minimum(scoreboard.deliveries, _WINDOW))
    expected = look_up(_EXPECTED_RATE, progress_phase(scoreboard))
    return np.where(scoreboard.deliveries > 0, np.clip(rate / expected - 1, -1, 1), 0)


def _pressure(scoreboard: Scoreboard) -> np.ndarray:
    wickets = scoreboard.wickets / 10
    progress = scoreboard.legal_balls / np.maximum(scoreboard.allotted_balls, 1)
    chase = 0.4 * np.minimum(required_rate(scoreboard) / 15, 1) + 0.3 * wickets + 0.3 * np.minimum(progress, 1)
    return np.where(scoreboard.target > 0, chase, 0.5 * wickets)


def _dot_pressure(scoreboard: Scoreboard) -> dict[str, np.ndarray]:
    innings, so_far = scoreboard.in_innings, scoreboard.deliveries

    def since(events: np.ndarray) -> np.ndarray:
        """Deliveries since the last event; all of the innings if there was none."""
        last = innings.since(events)
        return np.where(last > 0, last - 1, so_far)

    # A dot ball adds pressure, a boundary releases it.
    pressure = scoreboard.dot.astype(np.float64) - scoreboard.boundary
    weighted, weights = (np.zeros(len(so_far), like=so_far) for _ in range(2))
    for lag in range(1, _WINDOW + 1):
        weighted += innings.lagged(pressure, lag) * _DECAY ** (lag - 1)
        weights += np.where(so_far >= lag, _DECAY ** (lag - 1), 0)
    half = _WINDOW // 2
    late = innings.recent(pressure, half)
    early = innings.recent(pressure, _WINDOW) - late
    return {
        "dots": np.minimum(since(scoreboard.dot == 0) / 6, 2),
        "since_boundary": np.minimum(since(scoreboard.boundary > 0) / 12, 3),
        "since_wicket": np.minimum(since(scoreboard.book["wickets"] > 0) / 30, 3),
        "weighted": ratio(weighted, weights),
        "trend": np.where(so_far >= _WINDOW, (late - early) / half, 0),
    }

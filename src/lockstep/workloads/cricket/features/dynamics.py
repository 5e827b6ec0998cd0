"""Where the innings is heading: momentum and pressure from the last deliveries."""

import numpy as np

from lockstep.workloads.cricket.features.ledger import Ledger
from lockstep.workloads.cricket.features.running import ratio
from lockstep.workloads.cricket.features.situation import progress_phase, required_rate

_WINDOW = 12
_DECAY = 0.7
_EXPECTED_RATE = np.array([7.5, 8.0, 10.0])
"""Runs an over that are usual in each phase."""


def dynamics(ledger: Ledger) -> dict[str, dict[str, np.ndarray]]:
    """The node types of the dynamics, each with its columns."""
    momentum = _momentum(ledger)
    return {
        "batting_momentum": {"momentum": momentum},
        "bowling_momentum": {"momentum": -momentum},
        "pressure_index": {"pressure": _pressure(ledger)},
        "dot_pressure": _dot_pressure(ledger),
    }


def _momentum(ledger: Ledger) -> np.ndarray:
    recent = ledger.in_innings.recent(ledger.book["total_runs"], _WINDOW)
    rate = ratio(recent * 6, np.minimum(ledger.deliveries, _WINDOW))
    expected = _EXPECTED_RATE[progress_phase(ledger)]
    return np.where(ledger.deliveries > 0, np.clip(rate / expected - 1, -1, 1), 0)


def _pressure(ledger: Ledger) -> np.ndarray:
    wickets = ledger.wickets / 10
    progress = ledger.legal_balls / np.maximum(ledger.allotted_balls, 1)
    chase = 0.4 * np.minimum(required_rate(ledger) / 15, 1) + 0.3 * wickets + 0.3 * np.minimum(progress, 1)
    return np.where(ledger.target > 0, chase, 0.5 * wickets)


def _dot_pressure(ledger: Ledger) -> dict[str, np.ndarray]:
    innings, so_far = ledger.in_innings, ledger.deliveries

    def since(events: np.ndarray) -> np.ndarray:
        """Deliveries after the last event, all of the innings where there was none."""
        last = innings.since(events)
        return np.where(last > 0, last - 1, so_far)

    # A dot ball adds pressure, a boundary releases it.
    pressure = ledger.dot.astype(np.float64) - ledger.boundary
    weighted, weights = np.zeros(len(so_far)), np.zeros(len(so_far))
    for lag in range(1, _WINDOW + 1):
        there = so_far >= lag
        weighted += np.where(there, np.roll(pressure, lag) * _DECAY ** (lag - 1), 0)
        weights += np.where(there, _DECAY ** (lag - 1), 0)
    half = _WINDOW // 2
    late = innings.recent(pressure, half)
    early = innings.recent(pressure, _WINDOW) - late
    return {
        "dots": np.minimum(since(ledger.dot == 0) / 6, 2),
        "since_boundary": np.minimum(since(ledger.boundary > 0) / 12, 3),
        "since_wicket": np.minimum(since(ledger.book["wickets"] > 0) / 30, 3),
        "weighted": ratio(weighted, weights),
        "trend": np.where(so_far >= _WINDOW, (late - early) / half, 0),
    }

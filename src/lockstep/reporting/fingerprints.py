"""The hash of the weights in the log: what shows, log point by log point, that two runs are the same run."""

import time
from collections.abc import Callable

SHARE = 0.005
"""The part of a run's time that hashing for the log may take."""


class Fingerprints:
    """Hashes the weights at log points, as often as it is cheap.

    Every update if it can, else every second, fourth, eighth ... one: two runs of different speed then still have
    points in common, which they would not if each chose freely.
    """

    def __init__(self, hash_weights: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._hash, self._clock = hash_weights, clock
        self._known: tuple[int, str] | None = None
        self._started: tuple[int, float] | None = None
        self._cost = 0.0

    def take(self, update: int) -> str:
        """The hash of the weights now, after so many updates."""
        began = self._clock()
        fingerprint = self._hash()
        seconds = self._clock() - began
        # The least so far: a process that had to wait for its core measured something else.
        self._cost = min(self._cost or seconds, seconds)
        self._known = (update, fingerprint)
        return fingerprint

    def for_log(self, update: int) -> str | None:
        """The hash for a log point after so many updates; None if it would cost too much this time."""
        if self._started is None:
            self._started = (update, self._clock())
        # Just compared over all ranks: that costs nothing more.
        if self._known is not None and self._known[0] == update:
            return self._known[1]
        return self.take(update) if update % self._stride(update) == 0 else None

    def _stride(self, update: int) -> int:
        """Updates between two hashes, a power of two."""
        assert self._started is not None
        first, began = self._started
        updates, seconds = update - first, self._clock() - began
        stride = 1
        # Two clock readings in the same tick would say that updates take no time.
        while updates and self._cost > SHARE * stride * max(seconds / updates, 1e-6):
            stride *= 2
        return stride

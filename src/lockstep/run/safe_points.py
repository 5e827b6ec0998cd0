"""Safe points: places inside a long update at which all ranks can abandon it together, to stop within seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from lockstep.distributed.world import World

# The wanted seconds between two questions: less would only cost time, more would let a user wait.
_SHORTEST, _LONGEST = 0.5, 1.0
# A question carries the request and, below it, the milliseconds since the last question.
_REQUEST = 1 << 32


class UpdateAbandoned(Exception):
    """All ranks left an update halfway because a stop was requested; what the learner holds now is of no use."""

    def __init__(self, request: int) -> None:
        super().__init__(f"stop request {request}")
        self.request = request


class SafePoints:
    """Asks the world at some of the safe points whether any rank was told to stop. Closed, it costs nothing.

    Every rank must pass the same safe points in the same order, between the same collectives. A question is a
    collective itself, so ranks take the choice of the points at which they ask from what they have agreed on before.
    """

    def __init__(self, world: World, requested: Callable[[], int]) -> None:
        """`requested`: this rank's stop request, 0 if there is none."""
        self._world, self._requested = world, requested
        self._open = False
        self._paces: dict[str, _Pace] = {}
        self._asked = 0.0

    def open(self, is_open: bool) -> None:
        """Start asking in the update that begins now, or leave it alone. Every rank says the same."""
        self._open, self._paces, self._asked = is_open, {}, time.monotonic()

    def __call__(self, part: str) -> None:
        """Pass a safe point in a part of the update (acting, learning); UpdateAbandoned on all ranks to stop."""
        if not self._open:
            return
        # Points of one part may be seconds apart where those of another are milliseconds apart.
        pace = self._paces.setdefault(part, _Pace())
        pace.until_next -= 1
        if not pace.until_next:
            self._ask(pace)

    def _ask(self, pace: "_Pace") -> None:
        since = min(int(1000 * (time.monotonic() - self._asked)), _REQUEST - 1)
        # The largest over all ranks: any request counts, else the slowest rank's time.
        request, slowest = divmod(self._world.agree(_REQUEST * self._requested() + since), _REQUEST)
        if request:
            raise UpdateAbandoned(request)
        if pace.is_new:
            # The time since the last question was spent in another part.
            pace.is_new = False
        elif slowest < 1000 * _SHORTEST:
            pace.every *= 2
        elif slowest > 1000 * _LONGEST and pace.every > 1:
            pace.every //= 2
        pace.until_next, self._asked = pace.every, time.monotonic()


@dataclass
class _Pace:
    """At which safe points of a part the world is asked."""

    every: int = 1
    until_next: int = 1
    is_new: bool = True

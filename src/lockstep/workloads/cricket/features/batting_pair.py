"""Both batters at every delivery, because a batter's innings continues while the other one faces."""

from functools import cached_property

import numpy as np

from lockstep.workloads.cricket.features.running_sums import Groups
from lockstep.workloads.cricket.matches.scorebook import Scorebook

_ENDS = ("batter", "nonstriker")


class BattingPair:
    """Each delivery twice, for the striker and then the non-striker: 2N rows in the order of deliveries."""

    def __init__(self, book: Scorebook) -> None:
        self._innings = np.repeat(book.innings_of, 2)
        self.delivery = np.repeat(np.arange(len(book)), 2)
        self.on_strike = np.tile([1, 0], len(book))
        self.player = np.stack([book[end] for end in _ENDS], 1).reshape(-1)
        # A player in an innings; there are fewer than 2**20 players.
        self._key = self._innings * (1 << 20) + self.player
        self.groups = Groups(self._key)

    def sum(self, events: np.ndarray) -> np.ndarray:
        """The sum of `events` (N,) over the deliveries that the player faced earlier in the innings."""
        return self.groups.before(events[self.delivery] * self.on_strike)

    def since(self, events: np.ndarray) -> np.ndarray:
        """How many deliveries, with the player at either end, ago he last faced one of `events` (N,); 0 if never."""
        return self.groups.since((events[self.delivery] * self.on_strike) > 0)

    def recent(self, events: np.ndarray, rows: int) -> np.ndarray:
        """Like `sum`, over the last `rows` deliveries at which the player was at either end."""
        return self.groups.recent(events[self.delivery] * self.on_strike, rows)

    @cached_property
    def arrives(self) -> np.ndarray:
        """Whether it is the player's first delivery of the innings, at either end."""
        return self.groups.before(np.ones(len(self._key), np.int64)) == 0

    @cached_property
    def position(self) -> np.ndarray:
        """The player's place in the batting order, from 0: how many came in before."""
        return self.on_arrival(Groups(self._innings).before(self.arrives.astype(np.int64)))

    def on_arrival(self, values: np.ndarray) -> np.ndarray:
        """The value (2N,) at the delivery at which the player came in."""
        _, player = np.unique(self._key, return_inverse=True)
        found = np.zeros(int(player.max(initial=-1)) + 1, values.dtype)
        found[player[self.arrives]] = values[self.arrives]
        return found[player]

    @staticmethod
    def ends(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A column (2N,), split into the striker's and the non-striker's (N,)."""
        return column[0::2], column[1::2]

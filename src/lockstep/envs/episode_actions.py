"""The actions of an episode that is restored by acting it out again. Needs no torch."""

from collections.abc import Iterator

import numpy as np

from lockstep.envs.simulation import Floats, State
from lockstep.errors import UserError

LONGEST_REPLAY = 10_000
"""Steps of an episode that are kept for replay if the environment has no time limit."""
_TOO_LONG = np.array([-1.0])
"""The state of an episode with more steps than are kept."""


class EpisodeActions:
    """Keeps the actions of the current episode, up to a limit."""

    def __init__(self, source: str, size: int, longest: int = LONGEST_REPLAY) -> None:
        """`source`: the environment, for error messages. `size`: numbers of an action's row. `longest`: the limit."""
        self._source, self._size, self._longest = source, size, longest
        self._taken: list[Floats] = []

    def clear(self) -> None:
        """Begin another episode."""
        self._taken.clear()

    def add(self, action: Floats) -> None:
        """Keep one more action."""
        if len(self._taken) <= self._longest:
            # A copy: the array may be a view of a buffer that the caller uses again.
            self._taken.append(action.copy())

    def save(self) -> State:
        """All actions in one row. An episode that is too long fails at the resume, and not at every checkpoint."""
        return _TOO_LONG if len(self._taken) > self._longest else np.array(self._taken, np.float64).ravel()

    def read(self, state: State) -> Iterator[Floats]:
        """The actions that `save` returned; UserError if the episode was too long."""
        if np.array_equal(state, _TOO_LONG):
            raise UserError(
                f"{self._source}: an episode of more than {self._longest:,} steps cannot be replayed; set "
                "--max-episode-steps, or --resume-by restart to begin new episodes"
            )
        # float32 numbers pass through float64 unchanged, so the replay gets the same actions to the last bit.
        yield from state.astype(np.float32).reshape(-1, self._size)

"""Learning from what others did: a memory that was filled before the run, in the place of a collector."""

from collections.abc import Mapping

from torch import Tensor

from lockstep.reporting.metrics import Stats
from lockstep.rl.sequence_replay import SequenceReplay


class Library:
    """One cohort's part of the data. Nothing happens in it, and it is read again when a run is resumed."""

    def __init__(self, lanes: range, memory: SequenceReplay, data_digest: str) -> None:
        """`data_digest`: tells all of the data from other data."""
        self.lanes, self.memory, self.data_digest = lanes, memory, data_digest

    def decide(self, number: int, wildly: bool) -> None:
        """Nobody acts."""

    def act(self, number: int) -> None:
        """Nobody acts."""

    def report(self) -> Stats:
        """No episode ends."""
        return {}

    def state(self, written: int) -> dict[int, dict[str, Tensor]]:
        """Nothing that is not in the data."""
        return {lane: {} for lane in self.lanes}

    def load(self, lanes: Mapping[int, Mapping[str, Tensor]], written: int) -> None:
        """Nothing to take up."""

"""How far several runs hold the same weights, from comparisons of their hashes in the order of steps."""

from dataclasses import dataclass


@dataclass
class Comparison:
    """The steps at which hashes of all runs were compared, so far."""

    steps: int = 0
    """How many they were."""
    agreed_to: int | None = None
    """The last step up to which every comparison was equal; None if there was none."""
    parted_at: int | None = None
    """The first step whose hashes differ; None as long as all agree."""

    def add(self, step: int, *, same: bool) -> None:
        """Add a comparison; steps only grow."""
        self.steps += 1
        # Runs that have parted may meet again by accident, such as at a saturated weight, but are no longer the same.
        if self.parted_at is None:
            if same:
                self.agreed_to = step
            else:
                self.parted_at = step

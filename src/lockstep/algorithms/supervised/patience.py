"""Early stopping and learning rate plateaus, from the validation losses so far."""

from dataclasses import asdict, dataclass
from typing import Any

from lockstep.algorithms.supervised.settings import SupervisedSettings


@dataclass
class Patience:
    """The history of validations. Equal on every rank, since the losses are sums over all ranks."""

    best: float = float("inf")
    """Lowest validation loss so far."""
    waited: int = 0
    """Epochs since then."""
    waited_for_rate: int = 0
    """Epochs without improvement since the learning rate last fell."""
    factor: float = 1.0
    """Product of the learning rate factors of all plateaus so far."""

    def note(self, loss: float, settings: SupervisedSettings) -> None:
        """Record the validation of another epoch; a NaN loss is no improvement."""
        # Every comparison with NaN is false, so it falls through to the epochs without improvement.
        if loss < self.best - settings.min_delta:
            self.best, self.waited, self.waited_for_rate = loss, 0, 0
            return
        self.waited += 1
        self.waited_for_rate += 1
        if settings.lr_schedule == "plateau" and self.waited_for_rate >= settings.plateau_patience:
            self.factor *= settings.plateau_factor
            self.waited_for_rate = 0  # the lower rate gets as many epochs to prove itself

    def over(self, epochs: int, settings: SupervisedSettings) -> bool:
        """Whether early stopping ends the run after so many epochs."""
        # Compared when asked, not stored: a run that is resumed with more patience continues.
        return bool(settings.patience) and self.waited >= settings.patience and epochs >= settings.min_epochs

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint; None for infinity, which JSON does not have."""
        return asdict(self) | {"best": None if self.best == float("inf") else self.best}

    @classmethod
    def load(cls, state: dict[str, Any]) -> "Patience":
        """Restore what `state` returned."""
        return cls(**state | {"best": float("inf") if state["best"] is None else state["best"]})

"""When a run has learned enough: validation scores, remembered, and what follows from them."""

from dataclasses import asdict, dataclass
from typing import Any

from lockstep.algorithms.supervised.config import SupervisedConfig


@dataclass
class Patience:
    """What the validations so far have come to. Every rank has the same, since every rank sees the same losses."""

    best: float = float("inf")
    """The lowest validation log loss."""
    waited: int = 0
    """Epochs since then."""
    waited_for_rate: int = 0
    """Epochs without a gain since the learning rate last fell."""
    factor: float = 1.0
    """What the plateaus so far have made of the learning rate."""

    def note(self, log_loss: float, config: SupervisedConfig) -> None:
        """Take in the validation after another epoch; a loss that is not a number is no gain."""
        if log_loss < self.best - config.min_delta:
            self.best, self.waited, self.waited_for_rate = log_loss, 0, 0
            return
        self.waited += 1
        self.waited_for_rate += 1
        if config.lr_schedule == "plateau" and self.waited_for_rate >= config.plateau_patience:
            self.factor *= config.plateau_factor
            self.waited_for_rate = 0

    def over(self, epochs: int, config: SupervisedConfig) -> bool:
        """Whether patience is at its end after so many epochs; a run that is given more of it goes on."""
        return bool(config.patience) and self.waited >= config.patience and epochs >= config.min_epochs

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs; JSON has no infinity."""
        return asdict(self) | {"best": None if self.best == float("inf") else self.best}

    @classmethod
    def load(cls, state: dict[str, Any]) -> "Patience":
        """The state of a checkpoint."""
        return cls(**state | {"best": float("inf") if state["best"] is None else state["best"]})

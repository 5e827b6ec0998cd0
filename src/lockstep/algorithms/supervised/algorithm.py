"""Supervised learning as an algorithm for any workload with labelled samples."""

from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.algorithms.algorithm import Algorithm
from lockstep.algorithms.supervised.settings import SupervisedSettings
from lockstep.config.config import AlgorithmSettings

if TYPE_CHECKING:
    from torch import nn

    from lockstep.algorithms.supervised.problem import DataProblem
    from lockstep.distributed.world import World
    from lockstep.run.learner import Learner


class Supervised(Algorithm):
    """Trains a network on labelled samples, and validates it on others after every epoch."""

    name = "supervised"
    summary = "supervised learning: classes, numbers, or any loss"
    settings: ClassVar[type[AlgorithmSettings]] = SupervisedSettings

    @property
    def takes(self) -> type:
        """Labelled samples."""
        # Imported late here and below: listing algorithms must not import torch.
        from lockstep.algorithms.supervised.problem import DataProblem

        return DataProblem

    def learner(self, config: Any, world: "World", problem: "DataProblem", network: "nn.Module") -> "Learner":
        """Create the learner for a problem. Called by every rank."""
        from lockstep.algorithms.supervised.learner import SupervisedLearner

        return SupervisedLearner(config, world, problem, network)

"""The contract of an algorithm: its own settings, and a learner for any problem of the kind that it accepts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.config.config import AlgorithmSettings, AnyConfig, NetworkSettings
from lockstep.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from lockstep.distributed.world import World
    from lockstep.run.learner import Learner


class Algorithm(ABC):
    """A learning algorithm. Instances have no state (the learner has it); importing one must not import torch."""

    name: ClassVar[str]
    """The value of --algorithm, and the prefix of its flags (--ppo.learning-rate)."""
    summary: ClassVar[str]
    """What it is, in one line."""
    settings: ClassVar[type[AlgorithmSettings]]
    networks: ClassVar[Mapping[str, type[NetworkSettings]]] = {}
    """Networks that work for any problem, the default first; a workload's own networks come before them."""
    function_network: ClassVar[type[NetworkSettings] | None] = None
    """Settings of a network that a user's function makes (`--network module:function`); None = not possible."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values for a workload's preset of the same name, if the workload has none for this algorithm."""

    @property
    @abstractmethod
    def takes(self) -> type:
        """The class of problems that it accepts."""

    @abstractmethod
    def learner(self, config: Any, world: "World", problem: Any, network: "nn.Module") -> "Learner":
        """Create the learner for a problem and a network on this rank. Called by every rank."""

    def build(self, config: AnyConfig, world: "World", problem: Any) -> "Learner":
        """Build the network and the learner; UserError for a problem of another kind. Called by every rank."""
        if not isinstance(problem, self.takes):
            kind = self.takes.__name__.removesuffix("Problem").lower()
            raise UserError(f"algorithm {self.name}: needs a problem of kind {kind}; choose another --algorithm")
        network = config.network.build(problem, config)
        _refuse_batch_norm(network)
        return self.learner(config, world, problem, network)


def _refuse_batch_norm(network: "nn.Module") -> None:
    """Raise UserError for layers that keep moments of their batches: those would depend on the division into ranks."""
    from torch import nn

    batch = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    lazy = (nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d)
    instance = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
    for name, layer in network.named_modules():
        if isinstance(layer, (*batch, *lazy)) or (isinstance(layer, instance) and layer.track_running_stats):
            raise UserError(
                f"network: {name or 'it'} is {type(layer).__name__}, whose moments depend on the rank's batch; "
                "use nn.LayerNorm or nn.GroupNorm"
            )

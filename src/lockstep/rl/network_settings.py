"""Settings of networks that work for any problem. Nothing here needs torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from lockstep.config.config import AnyConfig, NetworkSettings
from lockstep.config.fields import Range

if TYPE_CHECKING:
    from torch import nn

    from lockstep.rl.problem import EnvProblem


@dataclass(frozen=True, kw_only=True)
class MLPSettings(NetworkSettings):
    """Two multi-layer perceptrons, one for the policy and one for the value."""

    mlp_width: Annotated[int, Range(at_least=1, at_most=16_384)] = 64
    """Units of each hidden layer."""
    mlp_layers: Annotated[int, Range(at_least=1, at_most=64)] = 2
    """Number of hidden layers."""
    mlp_activation: Literal["tanh", "relu", "elu"] = "tanh"
    """Activation after each hidden layer."""
    initial_log_std: Annotated[float, Range(at_least=-20, at_most=2)] = 0.0
    """For continuous actions: initial logarithm of their standard deviation."""

    def build(self, problem: "EnvProblem", config: AnyConfig) -> "nn.Module":
        """Build the network for a problem's observations and actions."""
        from lockstep.rl.networks import MLPActorCritic

        return MLPActorCritic(
            problem.observation_shape,
            problem.actions,
            self.mlp_width,
            self.mlp_layers,
            self.mlp_activation,
            self.initial_log_std,
            config.run.seed,
        )

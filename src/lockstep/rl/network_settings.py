"""Settings of networks that work for any problem. Nothing here needs torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from lockstep.config.config import AnyConfig, NetworkSettings
from lockstep.config.fields import Range

if TYPE_CHECKING:
    from torch import nn

    from lockstep.rl.normalisers import ObservationNormaliser
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
            _normaliser(problem, config),
        )


@dataclass(frozen=True, kw_only=True)
class AutoSettings(MLPSettings):
    """Chosen by what is observed: MLPs for vectors, convolutions for images, an LSTM if asked for."""

    cnn_features: Annotated[int, Range(at_least=1, at_most=16_384)] = 512
    """Features of each image after its convolutions."""
    lstm_size: Annotated[int, Range(at_least=0, at_most=16_384)] = 0
    """Units of an LSTM between features and heads, so that it remembers; 0 = none."""

    @property
    def recurrent(self) -> bool:
        """Whether it has an LSTM."""
        return self.lstm_size > 0

    def build(self, problem: "EnvProblem", config: AnyConfig) -> "nn.Module":
        """Build the network for a problem's observations and actions."""
        from lockstep.rl.auto_network import AutoActorCritic, RecurrentAutoActorCritic, Sizes

        sizes = Sizes(
            self.mlp_width,
            self.mlp_layers,
            self.mlp_activation,
            self.cnn_features,
            self.lstm_size,
            self.initial_log_std,
        )
        kind = RecurrentAutoActorCritic if self.recurrent else AutoActorCritic
        return kind(problem, sizes, _normaliser(problem, config), config.run.seed)


@dataclass(frozen=True, kw_only=True)
class FunctionSettings(NetworkSettings):
    """A network of your own: `--network module:function` or `./file.py:function`, function(problem) -> nn.Module."""

    recurrent: bool = False
    """Whether the network has a memory (`first_memory` and `sequence`), and so learns from sequences of steps."""

    def build(self, problem: "EnvProblem", config: AnyConfig) -> "nn.Module":
        """Call the function with the problem, with the same random numbers on every rank."""
        from lockstep.rl.own_network import network_from

        return network_from(config.run.network, problem, config.run.seed, self.recurrent)


def _normaliser(problem: "EnvProblem", config: AnyConfig) -> "ObservationNormaliser | None":
    """The normaliser of observations, if the algorithm has such a setting and it is on."""
    if not getattr(config.algorithm, "normalize_observation", False):
        return None
    from lockstep.rl.normalisers import ObservationNormaliser, parts_of

    return ObservationNormaliser(parts_of(problem))

"""The settings of Snake and its network. Nothing here needs torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.config.config import AnyConfig, Config, NetworkSettings, WorkloadSettings
from lockstep.config.fields import Range
from lockstep.workloads.snake.rules import SnakeRules

if TYPE_CHECKING:
    from lockstep.rl.networks import ActorCritic
    from lockstep.rl.problem import EnvProblem


@dataclass(frozen=True, kw_only=True)
class SnakeSettings(SnakeRules, WorkloadSettings):
    """Snake: the game and its rewards."""

    exact_on: ClassVar[tuple[str, ...]] = ("cuda",)
    only_values: ClassVar[Mapping[str, str]] = {
        "policy": "CnnPolicy",
        "use_sde": "false",
        "sde_sample_freq": "-1",
        "normalize_images": "false",
        # Runs of earlier versions have these two in their files.
        "max_n_envs": "0",
        "max_batch_size": "0",
    }


@dataclass(frozen=True, kw_only=True)
class SnakeCNNSettings(NetworkSettings):
    """Convolutions over the board."""

    policy_arch: Literal["tiny", "scalable", "deep"] = "scalable"
    """The network: tiny (fixed size), scalable (width and depth) or deep (width, with a skip connection)."""
    policy_width: Annotated[int, Range(at_least=16, at_most=512)] = 32
    """Channels of the network's convolutions."""
    policy_depth: Annotated[int, Range(at_least=1, at_most=4)] = 2
    """Convolutions of the scalable network."""

    def build(self, problem: "EnvProblem", config: AnyConfig) -> "ActorCritic":
        """The network for a board's channels and size."""
        from lockstep.workloads.snake.model import network

        channels, grid_size, _ = problem.observation_shape
        return network(self.policy_arch, channels, grid_size, self.policy_width, self.policy_depth, config.run.seed)


SnakeConfig = Config[PPOSettings, SnakeSettings, SnakeCNNSettings]

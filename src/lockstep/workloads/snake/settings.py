"""The settings of Snake and its network. Nothing here needs torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.config.config import AnyConfig, Config, NetworkSettings, WorkloadSettings
from lockstep.config.fields import OffOrCount, Range
from lockstep.errors import UserError
from lockstep.workloads.snake.rules import SnakeRules

if TYPE_CHECKING:
    from lockstep.rl.networks import ActorCritic
    from lockstep.rl.problem import EnvProblem


@dataclass(frozen=True, kw_only=True)
class SnakeSettings(SnakeRules, WorkloadSettings):
    """Sizes chosen for the device."""

    auto_scale: bool = False
    """Choose environments, steps, batch and network for the device, unless they are given."""
    max_utilization: bool = False
    """Like auto_scale, but fill the device."""
    max_n_envs: OffOrCount = 0
    """The most environments that auto_scale may choose, over all ranks; 0 = no limit."""
    max_batch_size: OffOrCount = 0
    """The largest batch that auto_scale may choose, over all ranks; 0 = no limit."""

    only_values: ClassVar[Mapping[str, str]] = {
        "policy": "CnnPolicy",
        "use_sde": "false",
        "sde_sample_freq": "-1",
        "normalize_images": "false",
    }

    def validate(self) -> None:
        """Raise UserError if a limit on auto_scale is given without auto_scale."""
        for name in ("max_n_envs", "max_batch_size"):
            if getattr(self, name) and not (self.auto_scale or self.max_utilization):
                limit = f"{name} {getattr(self, name)}"
                raise UserError(f"{limit} only limits what auto_scale chooses; add --auto-scale or leave it out")


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

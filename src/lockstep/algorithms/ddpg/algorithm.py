"""DDPG as an algorithm for any workload with teams of agents."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.algorithms.algorithm import Algorithm
from lockstep.algorithms.ddpg.settings import DDPGSettings, MADDPGSettings, TeamMLPSettings
from lockstep.config.config import AlgorithmSettings, AnyConfig, NetworkSettings

if TYPE_CHECKING:
    from torch import nn

    from lockstep.distributed.world import World
    from lockstep.rl.problem import TeamProblem
    from lockstep.run.learner import Learner


class DDPG(Algorithm):
    """Deep deterministic policy gradients for teams, or for one agent; with variants BiCNet and MADDPG."""

    name = "ddpg"
    summary = "multi-agent deep deterministic policy gradients"
    settings: ClassVar[type[AlgorithmSettings]] = DDPGSettings
    networks: ClassVar[Mapping[str, type[NetworkSettings]]] = {"mlp": TeamMLPSettings}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "debug": {
            "n_envs": 8,
            "n_steps": 16,
            "update_interval": 4,
            "batch_size": 32,
            "buffer_size": 2048,
            "hidden_size": 32,
            "total_timesteps": 20 * 8 * 16,
        },
        "base": {
            "n_envs": 32,
            "n_steps": 100,
            "update_interval": 2,
            "batch_size": 512,
            "a_lr": 1e-3,
            "c_lr": 1e-3,
            "total_timesteps": 1_000_000,
        },
    }

    @property
    def takes(self) -> type:
        """Environments in which a team of agents acts; an agent alone is a team of one."""
        from lockstep.rl.problem import TeamProblem

        return TeamProblem

    def build(self, config: AnyConfig, world: "World", problem: Any) -> "Learner":
        """Build the networks and the learner, for a team or for one agent. Called by every rank."""
        from lockstep.rl.problem import EnvProblem
        from lockstep.rl.team_of_one import as_team

        return super().build(config, world, as_team(problem) if isinstance(problem, EnvProblem) else problem)

    def learner(self, config: Any, world: "World", problem: "TeamProblem", network: "nn.Module") -> "Learner":
        """Create the DDPG learner for a problem. Called by every rank."""
        from lockstep.algorithms.ddpg.learner import DDPGLearner
        from lockstep.algorithms.ddpg.networks import TeamNetworks

        assert isinstance(network, TeamNetworks), "the network for ddpg is a TeamNetworks"
        return DDPGLearner(config, world, problem, network)


class MADDPG(DDPG):
    """The same with another default: during training each agent's critic sees what all agents see and do."""

    name = "maddpg"
    summary = "multi-agent DDPG with critics that see all agents"
    settings: ClassVar[type[AlgorithmSettings]] = MADDPGSettings

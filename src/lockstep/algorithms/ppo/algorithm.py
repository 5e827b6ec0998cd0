"""PPO as an algorithm for any workload with single-agent environments."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.algorithms.algorithm import Algorithm
from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.config.config import AlgorithmSettings, NetworkSettings
from lockstep.errors import UserError
from lockstep.rl.network_settings import MLPSettings

if TYPE_CHECKING:
    from torch import nn

    from lockstep.distributed.world import World
    from lockstep.rl.problem import EnvProblem
    from lockstep.run.learner import Learner


class PPO(Algorithm):
    """Proximal policy optimisation, for discrete and continuous actions, with or without a recurrent network."""

    name = "ppo"
    summary = "proximal policy optimisation"
    settings: ClassVar[type[AlgorithmSettings]] = PPOSettings
    networks: ClassVar[Mapping[str, type[NetworkSettings]]] = {"mlp": MLPSettings}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "debug": {"n_envs": 8, "n_steps": 32, "batch_size": 64, "n_epochs": 2, "total_timesteps": 20 * 8 * 32},
        "small": {"n_envs": 16, "n_steps": 128, "batch_size": 256, "n_epochs": 10, "total_timesteps": 500_000},
        "base": {"n_envs": 64, "n_steps": 128, "batch_size": 1024, "n_epochs": 10, "total_timesteps": 5_000_000},
    }

    @property
    def takes(self) -> type:
        """Environments with one agent each."""
        from lockstep.rl.problem import EnvProblem

        return EnvProblem

    def learner(self, config: Any, world: "World", problem: "EnvProblem", network: "nn.Module") -> "Learner":
        """Create the PPO learner for a problem. Called by every rank."""
        from lockstep.algorithms.ppo.learner import PPOLearner

        if config.algorithm.pretrain_bc and problem.teacher is None:
            raise UserError(
                f"pretrain_bc {config.algorithm.pretrain_bc}: {problem.name} has no expert to imitate; set it to 0"
            )
        if problem.tasks is not None and len(problem.tasks) > 1:
            raise UserError(
                f"algorithm ppo: learns one task, and {problem.name} has {len(problem.tasks)} here; choose one of them"
            )
        return PPOLearner(config, world, problem, network)

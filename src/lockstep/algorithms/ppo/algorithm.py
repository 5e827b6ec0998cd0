"""PPO as an algorithm for any workload with single-agent environments."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.algorithms.algorithm import Algorithm
from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.config.config import AlgorithmSettings, NetworkSettings
from lockstep.errors import UserError
from lockstep.rl.network_settings import AutoSettings, FunctionSettings, MLPSettings

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
    networks: ClassVar[Mapping[str, type[NetworkSettings]]] = {"auto": AutoSettings, "mlp": MLPSettings}
    function_network: ClassVar[type[NetworkSettings] | None] = FunctionSettings
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

        _check_bricks(config, problem, network)
        if config.algorithm.pretrain_bc and problem.teacher is None:
            raise UserError(
                f"pretrain_bc {config.algorithm.pretrain_bc}: {problem.name} has no expert to imitate; set it to 0"
            )
        if problem.tasks is not None and len(problem.tasks) > 1:
            raise UserError(
                f"algorithm ppo: learns one task, and {problem.name} has {len(problem.tasks)} here; choose one of them"
            )
        return PPOLearner(config, world, problem, network)


def _check_bricks(config: Any, problem: "EnvProblem", network: "nn.Module") -> None:
    """Raise UserError where the problem or the network does not have what a setting changes."""
    from lockstep.rl.normalisers import normaliser_of
    from lockstep.rl.problem import Continuous

    if config.algorithm.squash and not isinstance(problem.actions, Continuous):
        raise UserError(
            f"squash true: is for continuous actions, and those of {problem.name} are discrete; set it to false"
        )
    if not config.algorithm.normalize_observation:
        return
    normaliser = normaliser_of(network)
    if normaliser is None:
        raise UserError(
            f"normalize_observation true: network {config.run.network} does not normalise; set it to false, or choose "
            "--network auto"
        )
    if len(normaliser) == 0:
        raise UserError(
            f"normalize_observation true: {problem.name} shows images, which are scaled anyway; set it to false"
        )

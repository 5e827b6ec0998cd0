"""TD-MPC2 as an algorithm for any workload with continuous actions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.algorithms.algorithm import Algorithm
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.world_model import WorldModelSettings
from lockstep.config.config import AlgorithmSettings, NetworkSettings

if TYPE_CHECKING:
    from torch import nn

    from lockstep.distributed.world import World
    from lockstep.rl.problem import EnvProblem
    from lockstep.run.learner import Learner


class TDMPC2(Algorithm):
    """Model-based control: plans in a latent world model that is learned from replayed sequences."""

    name = "tdmpc2"
    summary = "TD-MPC2: planning in a learned world model"
    settings: ClassVar[type[AlgorithmSettings]] = TDMPC2Settings
    networks: ClassVar[Mapping[str, type[NetworkSettings]]] = {"world_model": WorldModelSettings}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Networks and plans small enough that a round takes seconds on a CPU.
        "debug": {
            "num_envs": 4,
            "n_steps": 10,
            "seed_steps": 40,
            "pretrain_updates": 2,
            "updates_per_step": 0.25,
            "batch_size": 16,
            "buffer_size": 2000,
            "steps": 10 * 40,
            "enc_dim": 16,
            "mlp_dim": 32,
            "latent_dim": 16,
            "num_q": 3,
            "iterations": 2,
            "num_samples": 16,
            "num_elites": 4,
            "num_pi_trajs": 4,
        },
    }

    @property
    def takes(self) -> type:
        """Environments with one agent each."""
        # Imported late here and below: listing algorithms must not import torch.
        from lockstep.rl.problem import EnvProblem

        return EnvProblem

    def learner(self, config: Any, world: "World", problem: "EnvProblem", network: "nn.Module") -> "Learner":
        """Create the TD-MPC2 learner for a problem. Called by every rank."""
        from lockstep.algorithms.tdmpc2.learner import TDMPC2Learner
        from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model

        assert isinstance(network, TDMPC2Model), "the network for tdmpc2 is a TDMPC2Model"
        return TDMPC2Learner(config, world, problem, network)

"""The network that TD-MPC2 learns with, by its settings. Nothing here needs torch before it is built."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings, WorldModelSettings
from lockstep.config.config import AnyConfig

if TYPE_CHECKING:
    from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model
    from lockstep.rl.problem import EnvProblem


@dataclass(frozen=True, kw_only=True)
class WorldModel(WorldModelSettings):
    """The world model, its values and its policy prior."""

    def build(self, problem: "EnvProblem", config: AnyConfig) -> "TDMPC2Model":
        """The networks for a problem's observations, actions and tasks."""
        from lockstep.algorithms.tdmpc2.problem import build_model

        assert isinstance(config.algorithm, TDMPC2Settings)
        return build_model(self, problem, config.algorithm.episodic, config.run.seed)

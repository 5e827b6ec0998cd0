"""Settings of environments from outside. Nothing here needs torch or an environment."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from lockstep.config import outside
from lockstep.config.config import AlgorithmSettings, Config, Headline, NetworkSettings, WorkloadSettings
from lockstep.config.fields import Range
from lockstep.config.values import shown
from lockstep.errors import UserError


@dataclass(frozen=True, kw_only=True)
class GymSettings(WorkloadSettings):
    """The environment."""

    env_id: str = "CartPole-v1"
    """A registered id (CartPole-v1, package.envs:Maze-v0), or a class or function (package.envs:Maze, maze.py:Maze)."""
    env_kwargs: str = ""
    """Arguments for the environment, as a JSON object: {"continuous": true}."""
    max_episode_steps: Annotated[int, Range(at_least=0, at_most=10_000_000)] = 0
    """Steps after which an episode is truncated; 0 = the environment's own limit."""
    frame_stack: Annotated[int, Range(at_least=1, at_most=64)] = 1
    """Consecutive observations that are stacked into one."""
    frame_skip: Annotated[int, Range(at_least=1, at_most=64)] = 1
    """Steps for which every action is repeated; their rewards add up."""
    shrink_images: Annotated[int, Range(at_least=0, at_most=64)] = 0
    """Factor by which images become smaller; 0 = none, and for several agents until no side is longer than 84."""
    resume_by: Literal["auto", "state", "replay", "restart"] = "auto"
    """How unfinished episodes continue after a resume: saved state, replayed actions, or new ones; auto = found out."""
    env_workers: Annotated[int, Range(at_least=0, at_most=1024)] = 0
    """Worker processes for a rank's environments; 0 = one per thread if steps are slow, 1 = in the rank itself."""
    env_timeout: Annotated[float, Range(above=0, at_most=86_400)] = 300.0
    """Seconds after which a reset or step that has not returned ends the run; it can be resumed."""

    headline: ClassVar[Headline] = (
        ("rollout/return_mean", "return", ".1f"),
        ("rollout/length_mean", "length", ".0f"),
        ("eval/return_mean", "eval", ".1f"),
    )
    aliases: ClassVar[Mapping[str, str]] = {"env": "env_id"}

    def validate(self) -> None:
        """Check the arguments of the environment; a file's path is made absolute, so that any folder can resume."""
        self.arguments()
        object.__setattr__(self, "env_id", outside.absolute_name(self.env_id))

    def arguments(self) -> dict[str, Any]:
        """The arguments for the environment."""
        if not self.env_kwargs:
            return {}
        try:
            found = json.loads(self.env_kwargs)
        except ValueError as error:
            raise UserError(
                f'env_kwargs {shown(self.env_kwargs)}: not JSON ({error}); write it like {{"continuous": true}}'
            ) from None
        if not isinstance(found, dict):
            raise UserError(f'env_kwargs {shown(self.env_kwargs)}: not an object; write it like {{"continuous": true}}')
        return found


GymConfig = Config[AlgorithmSettings, GymSettings, NetworkSettings]

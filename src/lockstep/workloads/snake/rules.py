"""The rules of the game, as a user sets them. Nothing here needs torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lockstep.config.fields import Range
from lockstep.config.settings import Settings


@dataclass(frozen=True, kw_only=True)
class SnakeRules(Settings):
    """Snake: the game and its rewards."""

    grid_size: Annotated[int, Range(at_least=4, at_most=128)] = 12
    """Side of the square board, in cells."""
    max_steps: Annotated[int | None, Range(at_least=1, at_most=1_000_000)] = None
    """Steps after which an episode ends; none = 200 x grid_size."""
    time_limit: Literal["death", "truncation"] = "death"
    """What running out of steps means: a death with its penalty, or a truncation whose value is bootstrapped."""
    step_penalty: float = -0.01
    """Reward of a step that neither eats nor dies."""
    death_penalty: float = -1.0
    """Reward of the step that dies."""
    food_reward: float = 1.0
    """Reward of the step that eats."""
    distance_reward_scale: Annotated[float, Range(at_least=0)] = 0.0
    """Extra reward for each cell that a step comes closer to the food (Manhattan distance); 0 = none."""
    frame_stack: Annotated[int, Range(at_least=1, at_most=16)] = 1
    """How many of the last observations the network sees, the oldest first."""

    @property
    def cells(self) -> int:
        """Cells of the board."""
        return self.grid_size**2

    @property
    def step_limit(self) -> int:
        """Steps after which an episode ends."""
        return 200 * self.grid_size if self.max_steps is None else self.max_steps

    @property
    def truncates(self) -> bool:
        """Whether the time limit truncates an episode instead of ending it as a death."""
        return self.time_limit == "truncation"

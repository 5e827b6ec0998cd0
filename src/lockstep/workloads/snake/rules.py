"""The numbers of the game, as a user states them; needs no torch."""

from dataclasses import dataclass
from typing import Literal, get_args

from lockstep.errors import UserError

TimeLimit = Literal["death", "truncation"]


@dataclass(frozen=True)
class SnakeRules:
    """One game of Snake on a square board."""

    grid_size: int = 12
    """Cells along each side of the board, 4 or more."""
    max_steps: int | None = None
    """Steps after which an episode ends; empty: 200 times the grid size."""
    step_penalty: float = -0.01
    """Reward of a step that neither eats nor dies."""
    death_penalty: float = -1.0
    """Reward of the step that dies."""
    food_reward: float = 1.0
    """Reward of the step that eats."""
    distance_reward_scale: float = 0.0
    """Extra reward for each cell the head came nearer to the food (row and column distances added); 0: none."""
    frame_stack: int = 1
    """Frames in one observation, the oldest first."""
    time_limit: TimeLimit = "death"
    """What the step limit is: "death", or "truncation" with the step's ordinary reward."""

    def __post_init__(self) -> None:
        for name, least in (("grid_size", 4), ("frame_stack", 1), ("max_steps", 1), ("distance_reward_scale", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"{name} is {value}; allowed: {least} or more")
        if self.time_limit not in get_args(TimeLimit):
            raise UserError(f'time_limit is "{self.time_limit}"; allowed: {" or ".join(get_args(TimeLimit))}')

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
        """Whether the time limit cuts an episode instead of ending it by the rules."""
        return self.time_limit == "truncation"

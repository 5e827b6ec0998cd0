"""The rules of the game. Needs no torch."""

from dataclasses import dataclass
from typing import ClassVar

from lockstep.errors import UserError

UP, DOWN, LEFT, RIGHT = range(4)
"""Actions and directions; `^ 1` gives the opposite one."""
EMPTY, BEAN, FIRST_SNAKE = range(3)
"""Public codes of a cell's content; player p's snake is FIRST_SNAKE + p."""
BEAN_BIT = 1
"""Internally a cell is a byte with at most one bit set: this one for a bean, or `snake_bit`."""


@dataclass(frozen=True)
class GameRules:
    """One game of several snakes on a torus, in teams or each for itself."""

    width: int = 20
    """Columns of the board, 4 or more."""
    height: int = 10
    """Rows of the board, 4 or more."""
    players: int = 6
    """Snakes on the board, 1 to 6."""
    teams: tuple[tuple[int, ...], ...] = ((0, 1, 2), (3, 4, 5))
    """The players of each team; every player is in one of them."""
    beans: int = 5
    """Beans on the board, 1 to 5."""
    max_steps: int = 200
    """Steps after which an episode ends."""
    start_length: ClassVar[int] = 3
    """Cells of a new snake; fixed, because the rule for respawning is about three cells."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("width", 4, None),
            ("height", 4, None),
            ("players", 1, 6),
            ("beans", 1, 5),
            ("max_steps", 1, None),
        ):
            value = getattr(self, name)
            if value < least or (most is not None and value > most):
                allowed = f"{least} or more" if most is None else f"{least} to {most}"
                raise UserError(f"{name} is {value}; allowed: {allowed}")
        # At most 240, because cells are stored in bytes and some values mean "nowhere". At least 7 for each player: a
        # snake of three cells blocks at most 14 of the board's 2 * cells initial places, so there is always one left.
        if not 7 * self.players + self.beans <= self.cells <= 240:
            needed = 7 * self.players + self.beans
            raise UserError(f"width * height is {self.cells}; allowed: {needed} (for the players and beans) to 240")
        if sorted(player for team in self.teams for player in team) != list(range(self.players)):
            raise UserError(f"teams are {self.teams}; allowed: each of the players 0 to {self.players - 1} in one team")

    @property
    def cells(self) -> int:
        """Cells of the board."""
        return self.width * self.height

    def team_of(self, player: int) -> int:
        """The number of the team that a player is in."""
        return next(number for number, team in enumerate(self.teams) if player in team)


def snake_bit(player: int) -> int:
    """The bit for the cells of a player's snake."""
    return 2 << player


SNAKES_3V3 = GameRules()
SNAKES_5P = GameRules(players=5, teams=((0,), (1,), (2,), (3,), (4,)))

"""What it takes to let teams play against each other: who plays, how, and what comes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lockstep.distributed.world import World
    from lockstep.run.learner import Learner


@dataclass(frozen=True)
class Contestant:
    """Who plays a team: a trained model, or (without a learner) a baseline of the workload by its name."""

    name: str
    config: Any
    learner: "Learner | None" = None


@dataclass(frozen=True)
class ArenaRequest:
    """How the games of an arena are played."""

    games: int
    """Games of every two players."""
    seed: int
    time_limit: float
    """Seconds that a submission has for the moves of its team."""
    memory: int
    """Bytes that a process of a submission may use."""
    trust: bool = False
    """Run submissions with the user's own rights."""
    save: Path | None = None
    """Folder to write every game to; None = games are not kept."""


class Results(Protocol):
    """The results of a contest."""

    def summary(self) -> dict[str, Any]:
        """As JSON."""

    def table(self) -> str:
        """As text."""


@runtime_checkable
class Contests(Protocol):
    """Lets two teams play against each other."""

    def contest(
        self, config: Any, team: Contestant, against: Contestant, games: int, seed: int, world: "World"
    ) -> Results:
        """Play games, half of them from each side."""


@runtime_checkable
class HoldsArenas(Protocol):
    """Lets any number of players meet: trained models, baselines and other people's submissions."""

    def arena(
        self,
        players: Sequence[Contestant | Path],
        request: ArenaRequest,
        world: "World",
        say: Callable[[str], None],
    ) -> Results:
        """Let every two players play; a path is a submission. `say`: told the progress, a line each."""

    def is_submission(self, path: Path) -> bool:
        """Whether a path is a submission."""

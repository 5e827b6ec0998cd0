"""All deliveries of all matches as columns, in the order of file, innings and ball."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from lockstep.workloads.cricket.matches.match import Innings, Match, Row

_PEOPLE = ("batter", "bowler", "nonstriker", "player_out", "fielder")


@dataclass
class Scorebook:
    """N deliveries, the innings and matches they belong to, and everybody who played."""

    matches: list[Match]
    """Without their rows."""
    innings: list[Innings]
    columns: dict[str, np.ndarray]
    """Field of Row -> (N,) integers; people are indices into `names`, -1 is nobody."""
    match: np.ndarray
    """(N,) int64: index into `matches`."""
    innings_of: np.ndarray
    """(N,) int64: index into `innings`."""
    innings_match: np.ndarray
    """(innings,) int64: index into `matches`."""
    names: list[str]
    keys: list[str]
    """Unique keys of people; names are not always unique."""
    squads: list[dict[str, list[int]]] = field(default_factory=list)
    """For each match: team -> indices into `names`."""

    def __getitem__(self, column: str) -> np.ndarray:
        """A column as int64."""
        # Stored narrow to save memory; sums and keys computed from it need the width.
        return self.columns[column].astype(np.int64)

    def __len__(self) -> int:
        """The number of deliveries."""
        return len(self.match)

    @cached_property
    def first(self) -> np.ndarray:
        """(N,) int64: the row of the innings' first delivery."""
        starts = np.flatnonzero(np.diff(self.innings_of, prepend=-1))
        return starts[np.searchsorted(starts, np.arange(len(self)), side="right") - 1]


def collect(matches: Iterable[Match]) -> Scorebook:
    """Build one scorebook from many matches; their rows are moved into it, to save memory."""
    kept: list[Match] = []
    innings: list[Innings] = []
    index: dict[str, int] = {}
    names: list[str] = []
    blocks, match_of, innings_of, innings_match, squads = [], [], [], [], []
    for number, match in enumerate(matches):
        # One entry more than players: index -1 (nobody) maps to the last, which stays -1.
        people = np.full(len(match.players) + 1, -1, np.int32)
        for local, (name, key) in enumerate(match.players.items()):
            if key not in index:
                index[key] = len(names)
                names.append(name)
            people[local] = index[key]
        block = match.rows.astype(np.int32)
        for column in map(Row._fields.index, _PEOPLE):
            block[:, column] = people[block[:, column]]
        blocks.append(block)
        match_of.append(np.full(len(block), number, np.int64))
        innings_of.append(block[:, 0].astype(np.int64) + len(innings))
        squads.append({team: people[numbers].tolist() for team, numbers in match.squads.items()})
        innings_match += [number] * len(match.innings)
        innings += match.innings
        # Free the match's rows; the block above is a copy.
        match.rows = match.rows[:0]
        kept.append(match)
    table = np.concatenate(blocks) if blocks else np.empty((0, len(Row._fields)), np.int32)
    columns = {
        name: table[:, number].astype(np.int32 if name in _PEOPLE else np.int8)
        for number, name in enumerate(Row._fields)
    }
    return Scorebook(
        matches=kept,
        innings=innings,
        columns=columns,
        match=np.concatenate(match_of) if match_of else np.empty(0, np.int64),
        innings_of=np.concatenate(innings_of) if innings_of else np.empty(0, np.int64),
        innings_match=np.array(innings_match, np.int64),
        names=names,
        keys=sorted(index, key=index.__getitem__),
        squads=squads,
    )

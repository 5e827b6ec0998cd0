"""The players at each delivery, as their innings or spell has gone so far, and the partnership."""

import numpy as np

from lockstep.workloads.cricket.ledger import Ledger
from lockstep.workloads.cricket.running import Groups, ratio

_ENDS = ("batter", "nonstriker")


def actors(ledger: Ledger) -> dict[str, dict[str, np.ndarray]]:
    """The node types of the players, each with its columns."""
    striker, nonstriker = _batters(ledger)
    return {
        "striker_state": striker,
        "nonstriker_state": nonstriker,
        "bowler_state": _bowler(ledger),
        "partnership": _partnership(ledger),
    }


def batting_positions(ledger: Ledger) -> tuple[np.ndarray, np.ndarray]:
    """The place in the batting order (0 = first) of striker and non-striker at each delivery."""
    crease = _Crease(ledger)
    position, _ = crease.arrivals()
    return crease.ends(position)


def arrivals(ledger: Ledger) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every batter's coming in: who (index of the scorebook), place in the order, and at which delivery."""
    crease = _Crease(ledger)
    position, _ = crease.arrivals()
    comes = crease.arrives()
    return crease.player[comes], position[comes], crease.delivery[comes]


class _Crease:
    """Each delivery twice, once for the batter at either end: 2N rows in the order of deliveries."""

    def __init__(self, ledger: Ledger) -> None:
        book, count = ledger.book, len(ledger.book)
        self.ledger = ledger
        self.delivery = np.repeat(np.arange(count), 2)
        self.on_strike = np.tile([1, 0], count)
        self.player = np.stack([book[end] for end in _ENDS], 1).reshape(-1)
        self.key = book.innings_of[self.delivery] * (1 << 20) + self.player
        self.groups = Groups(self.key)

    def sum(self, events: np.ndarray) -> np.ndarray:
        """Events of the deliveries that the same player faced earlier in the innings."""
        return self.groups.before(events[self.delivery] * self.on_strike)

    def recent(self, events: np.ndarray, rows: int) -> np.ndarray:
        """As `sum`, over the last deliveries at which the player was at either end."""
        return self.groups.recent(events[self.delivery] * self.on_strike, rows)

    def arrives(self) -> np.ndarray:
        """Whether the player was not there at any earlier delivery of the innings."""
        return self.groups.before(np.ones(len(self.key), np.int64)) == 0

    def arrivals(self) -> tuple[np.ndarray, np.ndarray]:
        """The player's place in the batting order, and the legal balls bowled when the player came in."""
        arrives = self.arrives()
        before = Groups(self.ledger.book.innings_of[self.delivery]).before(arrives.astype(np.int64))
        _, player = np.unique(self.key, return_inverse=True)
        position, entry = np.zeros((2, int(player.max(initial=-1)) + 1), np.int64)
        position[player[arrives]] = before[arrives]
        entry[player[arrives]] = self.ledger.legal_balls[self.delivery[arrives]]
        return position[player], entry[player]

    @staticmethod
    def ends(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A column over both ends, split into striker's and non-striker's."""
        return column[0::2], column[1::2]


def _batters(ledger: Ledger) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    crease, book, label = _Crease(ledger), ledger.book, ledger.label
    faced = ledger.faced
    runs, balls = crease.sum(book["batter_runs"]), crease.sum(faced)
    position, entry = crease.arrivals()
    since_faced = crease.groups.since((faced[crease.delivery] * crease.on_strike) > 0)
    scored = (book["batter_runs"][crease.delivery] * crease.on_strike) > 0
    boundaries = crease.sum(ledger.boundary)
    columns = {
        "runs": runs / 100,
        "balls": balls / 60,
        "strike_rate": np.minimum(ratio(runs * 100, balls), 600) / 200,
        "dot_share": ratio(crease.sum((label == 0) * faced), balls),
        "is_set": balls > 10,
        "boundaries": boundaries / 10,
        "not_yet_faced": balls == 0,
        "since_last_faced": np.where(since_faced > 0, np.minimum(since_faced / 12, 1), 1),
        "position": position / 11,
        "entry": entry / 120,
        "log_balls": np.log1p(balls) / 4,
        "single_share": ratio(crease.sum(label == 1), balls + 5),
        "two_share": ratio(crease.sum(label == 2), balls + 5),
        "four_share": ratio(crease.sum(label == 4), balls + 5),
        "six_share": ratio(crease.sum(label == 5), balls + 5),
        "recent_runs": crease.recent(book["batter_runs"], 12) / 20,
        "recent_balls": crease.recent(faced, 12) / 12,
        "since_scored": np.minimum(crease.groups.since(scored) / 12, 1),
        "average_pace": (runs + 6) / (balls + 5) / 2,
    }
    halves = {name: crease.ends(column) for name, column in columns.items()}
    striker, nonstriker = ({name: ends[end] for name, ends in halves.items()} for end in (0, 1))
    return striker, nonstriker


def _bowler(ledger: Ledger) -> dict[str, np.ndarray]:
    book, spell, duel = ledger.book, ledger.by_player("bowler"), ledger.by_player("bowler", "batter")
    balls, runs = spell.before(ledger.legal), spell.before(ledger.conceded)
    wickets = spell.before(ledger.credited)
    economy = np.minimum(ratio(runs * 6, balls), 36)
    a_wicket_an_over = ratio(wickets * 6, balls)
    quiet = np.where(balls > 0, np.maximum(1 - economy / 10, 0), 0)
    duel_balls = duel.before(ledger.faced)
    return {
        "balls": balls / 24,
        "runs": runs / 50,
        "wickets": wickets / 5,
        "economy": economy / 15,
        "dot_share": ratio(spell.before(ledger.dot), balls),
        "threat": np.clip(0.5 * a_wicket_an_over + 0.5 * quiet, 0, 1),
        "first_ball": balls == 0,
        "single_share": ratio(spell.before(ledger.label == 1), balls + 6),
        "four_share": ratio(spell.before(ledger.label == 4), balls + 6),
        "six_share": ratio(spell.before(ledger.label == 5), balls + 6),
        "wide_share": ratio(spell.before(book["wides"] > 0), balls + 6),
        "last_over_runs": spell.recent(ledger.conceded, 6) / 12,
        "last_over_wickets": spell.recent(ledger.credited, 6),
        "duel_balls": duel_balls / 12,
        "duel_runs": duel.before(book["batter_runs"]) / 20,
        "duel_dot_share": ratio(duel.before(ledger.dot), duel_balls + 3),
    }


def _partnership(ledger: Ledger) -> dict[str, np.ndarray]:
    book = ledger.book
    one, other = np.minimum(book["batter"], book["nonstriker"]), np.maximum(book["batter"], book["nonstriker"])
    pair = one * (1 << 20) + other
    # Counted by changes of the pair: two who meet again (after one retired hurt) begin a new partnership.
    changed = (np.diff(pair, prepend=-1) != 0) | (np.diff(book.innings_of, prepend=-1) != 0)
    groups = Groups(np.cumsum(changed))
    runs, balls = groups.before(book["total_runs"]), groups.before(ledger.legal)
    return {
        "runs": runs / 100,
        "balls": balls / 60,
        "rate": np.minimum(ratio(runs * 6, balls), 36) / 10,
        "stability": np.minimum(balls / 30, 1),
    }

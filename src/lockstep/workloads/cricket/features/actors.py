"""The players at each delivery, as their innings or spell has gone so far, and the partnership."""

import numpy as np

from lockstep.workloads.cricket.features.ledger import Ledger
from lockstep.workloads.cricket.features.running import Groups, ratio


def actors(ledger: Ledger) -> dict[str, dict[str, np.ndarray]]:
    """The node types of the players, each with its columns."""
    striker, nonstriker = _batters(ledger)
    return {
        "striker_state": striker,
        "nonstriker_state": nonstriker,
        "bowler_state": _bowler(ledger),
        "partnership": _partnership(ledger),
    }


def _batters(ledger: Ledger) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    crease, book, label = ledger.crease, ledger.book, ledger.label
    faced = ledger.faced
    runs, balls = crease.sum(book["batter_runs"]), crease.sum(faced)
    entry = crease.on_arrival(ledger.legal_balls[crease.delivery])
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
        "position": crease.position / 11,
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

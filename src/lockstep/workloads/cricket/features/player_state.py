"""The state of the players before each delivery: the batters' innings, the bowler's spell, and the partnership."""

import numpy as np

from lockstep.workloads.cricket.features.running_sums import ratio
from lockstep.workloads.cricket.features.scoreboard import Scoreboard


def player_state(scoreboard: Scoreboard) -> dict[str, dict[str, np.ndarray]]:
    """Features by node type and name, (N,) each."""
    striker, nonstriker = _batters(scoreboard)
    return {
        "striker_state": striker,
        "nonstriker_state": nonstriker,
        "bowler_state": _bowler(scoreboard),
        "partnership": _partnership(scoreboard),
    }


def _batters(scoreboard: Scoreboard) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    batters, book, label = scoreboard.batters, scoreboard.book, scoreboard.label
    faced = scoreboard.faced
    runs, balls = batters.sum(book["batter_runs"]), batters.sum(faced)
    since_faced = batters.since(faced)
    boundaries = batters.sum(scoreboard.boundary)
    columns = {
        "runs": runs / 100,
        "balls": balls / 60,
        "strike_rate": np.minimum(ratio(runs * 100, balls), 600) / 200,
        "dot_share": ratio(batters.sum((label == 0) * faced), balls),
        # The original program's threshold for a batter who is "set".
        "is_set": balls > 10,
        "boundaries": boundaries / 10,
        "not_yet_faced": balls == 0,
        "since_last_faced": np.where(since_faced > 0, np.minimum(since_faced / 12, 1), 1),
        "position": batters.position / 11,
        "entry": scoreboard.batting_entries / 120,
        "log_balls": np.log1p(balls) / 4,
        # Five extra balls, so that the shares of a batter who has faced one or two do not jump to 0 or 1.
        "single_share": ratio(batters.sum(label == 1), balls + 5),
        "two_share": ratio(batters.sum(label == 2), balls + 5),
        "four_share": ratio(batters.sum(label == 4), balls + 5),
        "six_share": ratio(batters.sum(label == 5), balls + 5),
        "recent_runs": batters.recent(book["batter_runs"], 12) / 20,
        "recent_balls": batters.recent(faced, 12) / 12,
        "since_scored": np.minimum(batters.since(book["batter_runs"]) / 12, 1),
        "average_pace": (runs + 6) / (balls + 5) / 2,
    }
    by_end = {name: batters.ends(column) for name, column in columns.items()}
    striker, nonstriker = ({name: ends[end] for name, ends in by_end.items()} for end in (0, 1))
    return striker, nonstriker


def _bowler(scoreboard: Scoreboard) -> dict[str, np.ndarray]:
    book, spell, duel = scoreboard.book, scoreboard.by_player("bowler"), scoreboard.by_player("bowler", "batter")
    balls, runs = spell.before(scoreboard.legal), spell.before(scoreboard.conceded)
    wickets = spell.before(scoreboard.credited)
    economy = np.minimum(ratio(runs * 6, balls), 36)
    wickets_per_over = ratio(wickets * 6, balls)
    thrift = np.where(balls > 0, np.maximum(1 - economy / 10, 0), 0)
    duel_balls = duel.before(scoreboard.faced)
    return {
        "balls": balls / 24,
        "runs": runs / 50,
        "wickets": wickets / 5,
        "economy": economy / 15,
        "dot_share": ratio(spell.before(scoreboard.dot), balls),
        "threat": np.clip(0.5 * wickets_per_over + 0.5 * thrift, 0, 1),
        "first_ball": balls == 0,
        "single_share": ratio(spell.before(scoreboard.label == 1), balls + 6),
        "four_share": ratio(spell.before(scoreboard.label == 4), balls + 6),
        "six_share": ratio(spell.before(scoreboard.label == 5), balls + 6),
        "wide_share": ratio(spell.before(book["wides"] > 0), balls + 6),
        "last_over_runs": spell.recent(scoreboard.conceded, 6) / 12,
        "last_over_wickets": spell.recent(scoreboard.credited, 6),
        "duel_balls": duel_balls / 12,
        "duel_runs": duel.before(book["batter_runs"]) / 20,
        "duel_dot_share": ratio(duel.before(scoreboard.dot), duel_balls + 3),
    }


def _partnership(scoreboard: Scoreboard) -> dict[str, np.ndarray]:
    groups = scoreboard.in_partnership
    runs, balls = groups.before(scoreboard.book["total_runs"]), groups.before(scoreboard.legal)
    return {
        "runs": runs / 100,
        "balls": balls / 60,
        "rate": np.minimum(ratio(runs * 6, balls), 36) / 10,
        "stability": np.minimum(balls / 30, 1),
    }

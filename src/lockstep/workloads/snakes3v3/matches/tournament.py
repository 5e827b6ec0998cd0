"""An arena: everybody plays everybody, from both sides, and the results become ratings."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lockstep.compute.random import derive_seed
from lockstep.errors import UserError
from lockstep.reporting.text_table import aligned_lines
from lockstep.workloads.contests import ArenaRequest, Contestant
from lockstep.workloads.snakes3v3.competition.gamelog import record_game, write_log
from lockstep.workloads.snakes3v3.competition.submission_player import SubmissionTeam
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, GameRules
from lockstep.workloads.snakes3v3.matches.arena import play_games
from lockstep.workloads.snakes3v3.matches.elo import Ratings, rate
from lockstep.workloads.snakes3v3.matches.players import contestant_policy
from lockstep.workloads.snakes3v3.opponents.scripted import Policy

_BOARDS = 8
"""Boards that are played at once with a submission: each needs a process of it."""
_MOST_BOARDS = 512
_WIDTH = 80


@dataclass(frozen=True)
class Entrant:
    """Who plays, under which name."""

    name: str
    policy: Policy

    def failures(self) -> list[dict[int, str]]:
        """For each batch of games so far: the boards on which it broke the rules, and how."""
        return self.policy.failures if isinstance(self.policy, SubmissionTeam) else []


@dataclass
class Tally:
    """The results of all games. P: players."""

    names: list[str]
    wins: Any
    """(P, P): games that the row's player won."""
    draws: Any
    scores: list[list[float]]
    """Every game's team score, by player."""
    forfeits: dict[str, list[str]] = field(default_factory=dict)
    """How a player lost games by breaking the rules."""

    def ratings(self) -> Ratings:
        """The players' Elo ratings."""
        return rate(self.wins, self.draws)

    def note(self, one: int, other: int, points: float, scores: tuple[float, float]) -> None:
        """Add a game; `points` of the first player: 1 won, a half drawn, 0 lost."""
        if points == 0.5:
            self.draws[one, other] += 1
            self.draws[other, one] += 1
        else:
            self.wins[(one, other) if points else (other, one)] += 1
        self.scores[one].append(scores[0])
        self.scores[other].append(scores[1])

    def summary(self) -> dict[str, Any]:
        """The table as JSON."""
        ratings = self.ratings()
        order = _order(ratings)
        return {
            "players": [self._row(ratings, player) for player in order],
            "differences": [
                dict(zip(("difference", "low", "high"), ratings.difference(one, other), strict=True))
                | {"players": [self.names[one], self.names[other]]}
                for one, other in combinations(order, 2)
            ],
            "forfeits": self.forfeits,
        }

    def _row(self, ratings: Ratings, player: int) -> dict[str, Any]:
        low, high = ratings.interval(player)
        counts = {
            "wins": self.wins[player].sum(),
            "draws": self.draws[player].sum(),
            "losses": self.wins[:, player].sum(),
        }
        scores = self.scores[player]
        return {
            "name": self.names[player],
            "elo": float(ratings.elo[player]),
            "low": low,
            "high": high,
            **{name: int(count) for name, count in counts.items()},
            "score": sum(scores) / len(scores),
            "forfeits": len(self.forfeits.get(self.names[player], [])),
        }

    def table(self) -> str:
        """The players by rating, and how sure the order is."""
        ratings = self.ratings()
        order = _order(ratings)
        rows = []
        for place, player in enumerate(order):
            row = self._row(ratings, player)
            ahead = ratings.difference(player, order[place + 1]) if place + 1 < len(order) else None
            rows.append(
                [
                    row["name"],
                    f"{row['elo']:+.0f}",
                    f"{row['low']:+.0f} to {row['high']:+.0f}",
                    f"{row['wins']}/{row['draws']}/{row['losses']}",
                    f"{row['score']:.1f}",
                    f"{ahead[0]:+.0f} ({ahead[1]:+.0f} to {ahead[2]:+.0f})" if ahead else "",
                ]
            )
        head = ["player", "Elo", "95%", "won/drawn/lost", "score", "ahead of the next"]
        lines = aligned_lines(head, rows, (True, False, True, False, False, True), (0,), _WIDTH)
        for name, reasons in self.forfeits.items():
            lines.append(f"{name}: lost {len(reasons)} games by breaking the rules; the first: {reasons[0]}")
        return "\n".join(lines)


def _order(ratings: Ratings) -> list[int]:
    return [int(player) for player in np.argsort(-ratings.elo, kind="stable")]


def hold_arena(
    players: Sequence[Contestant | Path],
    request: ArenaRequest,
    device: torch.device,
    say: Callable[[str], None] = lambda line: None,
) -> Tally:
    """Let every two players play `request.games` games, half of them from each side."""
    names = [player.name if isinstance(player, Contestant) else str(player) for player in players]
    if request.games % 2:
        raise UserError(f"games {request.games}: half of them are played from each side; allowed: 2, 4, 6, ...")
    rules = _common_rules(players)
    square = (len(names), len(names))
    tally = Tally(names, np.zeros(square), np.zeros(square), [[] for _ in names])
    with ExitStack() as stack, torch.no_grad():
        entrants = [_entrant(player, request, stack) for player in players]
        for one, other in combinations(range(len(entrants)), 2):
            pairing = _Pairing((entrants[one], entrants[other]), (one, other), tally, request, rules, device)
            pairing.play()
            say(f"{names[one]} and {names[other]}: {int(tally.wins[one, other])} : {int(tally.wins[other, one])}")
    return tally


def _common_rules(players: Sequence[Contestant | Path]) -> GameRules:
    """The rules of the trained players, which must be the same; the competition's if there are none."""
    trained = [player for player in players if isinstance(player, Contestant) and player.learner is not None]
    found = {player.config.workload.rules: player.name for player in trained}
    if len(found) > 1:
        raise UserError(
            f"{' and '.join(found.values())}: trained with another game_name or episode_length; they cannot meet"
        )
    rules = next(iter(found), SNAKES_3V3)
    if len(rules.teams) != 2:
        raise UserError(f"{next(iter(found.values()))}: its game has {len(rules.teams)} teams; an arena is for two")
    return rules


def _entrant(player: Contestant | Path, request: ArenaRequest, stack: ExitStack) -> Entrant:
    if isinstance(player, Contestant):
        return Entrant(player.name, contestant_policy(player))
    team = SubmissionTeam(player, request.time_limit, request.memory, isolated=not request.trust)
    return Entrant(str(player), stack.enter_context(team))


def _by_game(batches: Sequence[dict[int, str]], boards: int) -> dict[int, str]:
    return {number * boards + board: why for number, batch in enumerate(batches) for board, why in batch.items()}


@dataclass(frozen=True)
class _Pairing:
    """The games of two players."""

    pair: tuple[Entrant, Entrant]
    places: tuple[int, int]
    """Their numbers in the tally."""
    tally: Tally
    request: ArenaRequest
    rules: GameRules
    device: torch.device

    def play(self) -> None:
        """Play all games, and count them."""
        if self.request.save is None:
            self._in_batches()
        else:
            self._one_by_one(self.request.save)

    def _in_batches(self) -> None:
        """Many boards at once."""
        pair, request = self.pair, self.request
        hosted = any(isinstance(entrant.policy, SubmissionTeam) for entrant in pair)
        largest, done = 2 * (_BOARDS if hosted else _MOST_BOARDS), 0
        while done < request.games:
            count = min(largest, request.games - done)
            seed = derive_seed(request.seed, f"arena games from {done}") if done else request.seed
            before = [len(entrant.failures()) for entrant in pair]
            names = (pair[0].name, pair[1].name)
            result = play_games(pair[0].policy, pair[1].policy, count, seed, self.rules, self.device, names=names)
            # Two batches, one for each side, and in the scores one after the other.
            failed = [
                _by_game(entrant.failures()[start:], count // 2) for entrant, start in zip(pair, before, strict=True)
            ]
            for game, scores in enumerate(result.scores.T.tolist()):
                self._count((failed[0].get(game), failed[1].get(game)), (scores[0], scores[1]))
            done += count

    def _one_by_one(self, folder: Path) -> None:
        """One game after another, each written to a file."""
        pair, rules, seed = self.pair, self.rules, self.request.seed
        folder.mkdir(parents=True, exist_ok=True)
        for game in range(self.request.games):
            number, swapped = divmod(game, 2)
            sides = pair[::-1] if swapped else pair
            before = [len(entrant.failures()) for entrant in pair]
            log = record_game([side.policy for side in sides], [side.name for side in sides], rules, seed, number)
            failed = [
                next((batch[0] for batch in entrant.failures()[start:] if batch), None)
                for entrant, start in zip(pair, before, strict=True)
            ]
            scores = [sum(log["n_return"][player] for player in team) for team in rules.teams[:2]]
            scores = scores[::-1] if swapped else scores
            self._count((failed[0], failed[1]), (scores[0], scores[1]))
            one, other = (place + 1 for place in self.places)
            write_log(log, folder / f"{one}-{other}-game-{game + 1:04d}.json")

    def _count(self, failed: tuple[str | None, str | None], scores: tuple[float, float]) -> None:
        """Count a game; who broke the rules has lost it, whatever the score, and if both did it is drawn."""
        for entrant, why in zip(self.pair, failed, strict=True):
            if why is not None:
                self.tally.forfeits.setdefault(entrant.name, []).append(why)
        ours, theirs = (why is None for why in failed)
        if ours != theirs:
            points = float(ours)
        else:
            points = 0.5 if not ours or scores[0] == scores[1] else float(scores[0] > scores[1])
        self.tally.note(*self.places, points, scores)

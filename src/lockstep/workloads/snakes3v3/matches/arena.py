"""Plays games between two policies and reports the results. N: games."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lockstep.config.fields import nearest
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.workloads.contests import Contestant
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, GameRules
from lockstep.workloads.snakes3v3.matches.players import contestant_policy
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS, Policy

_Z = 1.959964
"""Standard deviations on either side of 95% of a normal distribution."""


@dataclass
class ArenaResult:
    """How the games of policy A against policy B went."""

    names: tuple[str, str]
    scores: Tensor
    """(2, N) float32: the score of A's and of B's team; if B plays several teams, that of the best."""
    deaths: Tensor
    """(2, N) float32: deaths of A's team, and of all others."""

    @property
    def games(self) -> int:
        """N."""
        return self.scores.shape[1]

    @property
    def wins(self) -> int:
        """Games in which A had the higher score."""
        return int((self.scores[0] > self.scores[1]).sum())

    @property
    def losses(self) -> int:
        """Games in which B had the higher score."""
        return int((self.scores[0] < self.scores[1]).sum())

    @property
    def draws(self) -> int:
        """Games with equal scores."""
        return self.games - self.wins - self.losses

    def share(self, count: int) -> tuple[float, float, float]:
        """A count as a share of the games, with the ends of its 95% interval (Wilson)."""
        share, games = count / self.games, self.games
        # Wilson's interval is valid near 0% and 100% too, where the normal one is empty.
        middle = (share + _Z**2 / (2 * games)) / (1 + _Z**2 / games)
        width = _Z * math.sqrt(share * (1 - share) / games + _Z**2 / (4 * games**2)) / (1 + _Z**2 / games)
        return share, max(middle - width, 0.0), min(middle + width, 1.0)

    def score(self, side: int) -> tuple[float, float]:
        """The mean score of A (0) or B (1) and half the width of its 95% interval (normal)."""
        scores = self.scores[side]
        # The standard deviation of a single game is undefined.
        deviation = float(scores.std()) if self.games > 1 else 0.0
        return float(scores.mean()), _Z * deviation / math.sqrt(self.games)

    def summary(self) -> dict[str, Any]:
        """The result as plain numbers, for JSON."""
        counts = {"wins": self.wins, "losses": self.losses, "draws": self.draws}
        scores = (self.score(0), self.score(1))
        sides = [
            {"name": name, "score": mean, "score_margin": margin, "deaths": self._mean_deaths(side)}
            for side, (name, (mean, margin)) in enumerate(zip(self.names, scores, strict=True))
        ]
        intervals = {f"{name}_share": list(self.share(count)) for name, count in counts.items()}
        return {"games": self.games, "sides": sides, **counts, **intervals}

    def table(self) -> str:
        """The result as text, with 95% intervals."""
        width = max(len(name) for name in self.names)
        lines = [f"{self.names[0]} against {self.names[1]}, {self.games} games (95% intervals)"]
        for side, name in enumerate(self.names):
            mean, margin = self.score(side)
            lines.append(f"  {name:{width}}  score {mean:6.2f} ± {margin:.2f}   deaths {self._mean_deaths(side):5.1f}")
        for name, count in (("wins", self.wins), ("losses", self.losses), ("draws", self.draws)):
            share, low, high = self.share(count)
            lines.append(f"  {name:7} {count:5}   {share:6.1%}   ({low:.1%} to {high:.1%})")
        return "\n".join(lines)

    def _mean_deaths(self, side: int) -> float:
        return float(self.deaths[side].mean())


def play_games(
    policy_a: Policy | str,
    policy_b: Policy | str,
    games: int,
    seed: int,
    rules: GameRules = SNAKES_3V3,
    device: torch.device | None = None,
    *,
    both_sides: bool = True,
    names: tuple[str, str] | None = None,
) -> ArenaResult:
    """Play A's team against all others, played by B; with `both_sides`, A plays the second team in half of the games.

    Policies are functions of the game and a team's players, or names from OPPONENTS. Both halves start from the same
    positions, so that neither policy has an advantage from its side.
    """
    if games < 1 or (both_sides and games % 2):
        # Each side gets half of the games, so their number is even.
        raise UserError(f"episodes {games}: allowed: {'2, 4, 6, ...' if both_sides else '1 or more'}")
    count, sides = (games // 2, (0, 1)) if both_sides else (games, (0,))
    policies = _policy(policy_a), _policy(policy_b)
    where = device or torch.device("cpu")
    # The same seed and boards for both sides, so that the halves start from the same positions.
    halves = [_play(policies, SnakesGame(rules, torch.arange(count), seed, where), side) for side in sides]
    scores, deaths = (torch.cat(parts, dim=1).cpu() for parts in zip(*halves, strict=True))
    return ArenaResult(names or (_name(policy_a), _name(policy_b)), scores, deaths)


def contest(
    rules: GameRules, team: Contestant, against: Contestant, games: int, seed: int, world: World
) -> ArenaResult:
    """Games of one contestant against another, half of them from each side."""
    policies = contestant_policy(team), contestant_policy(against)
    with torch.no_grad():
        return play_games(*policies, games, seed, rules, world.device, names=(team.name, against.name))


def _play(policies: tuple[Policy, Policy], game: SnakesGame, side: int) -> tuple[Tensor, Tensor]:
    """Play one game on each board, A as team number `side`; returns scores and deaths, (2, N) each."""
    teams = game.rules.teams
    # Actions are computed team by team; this permutation restores the order of the players.
    order = torch.tensor([player for team in teams for player in team], device=game.device).argsort()
    returns = torch.zeros(game.count, game.rules.players, device=game.device)
    deaths, playing = torch.zeros_like(returns), torch.ones(game.count, 1, dtype=torch.bool, device=game.device)
    game.reset()
    # All boards run for max_steps, without waiting for the GPU to say which have ended; `playing` masks later steps.
    for _ in range(game.rules.max_steps):
        action = torch.cat([policies[number != side](game, team) for number, team in enumerate(teams)], dim=1)
        done = game.step(action.index_select(1, order))
        returns += done.reward * playing
        deaths += done.dead & playing
        playing &= ~done.ended[:, None]
        game.restart(done.ended)
    own = list(teams[side])
    others = [list(team) for number, team in enumerate(teams) if number != side]
    # Against several teams, the best of them is the rival.
    rival = torch.stack([returns[:, team].sum(1) for team in others]).amax(0)
    # Deaths of all other teams together, but the score of the best one.
    lost = deaths[:, own].sum(1)
    return torch.stack((returns[:, own].sum(1), rival)), torch.stack((lost, deaths.sum(1) - lost))


def _policy(policy: Policy | str) -> Policy:
    if not isinstance(policy, str):
        return policy
    if policy not in OPPONENTS:
        near = nearest(policy, list(OPPONENTS)) or "greedy"
        raise UserError(f'opponent "{policy}": unknown; the nearest is {near}; known: {", ".join(OPPONENTS)}')
    return OPPONENTS[policy]


def _name(policy: Policy | str) -> str:
    return policy if isinstance(policy, str) else getattr(policy, "__name__", "policy")

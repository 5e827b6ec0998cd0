"""Policies that play a team: scripted, by name, or a trained network. B: boards, A: players, D: observation size."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from lockstep.workloads.contests import Contestant
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.observations.observe import observe
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS, Policy
from lockstep.workloads.snakes3v3.settings import ObservationKind

Act = Callable[[Tensor], tuple[Tensor, Any]]
"""Maps observations (B, A, D) to actions (B, A) and a second value, which is ignored."""


def policy_of(act: Act | str, observation: ObservationKind) -> Policy:
    """The policy of a scripted opponent, or of a network that sees this kind of observation."""
    if isinstance(act, str):
        return OPPONENTS[act]

    def policy(game: SnakesGame, players: Sequence[int]) -> Tensor:
        return act(observe(game, observation, tuple(players)))[0].to(game.device)

    return policy


def contestant_policy(contestant: Contestant) -> Policy:
    """A scripted team by name, or a network with the kind of observation it was trained with."""
    if contestant.learner is None:
        return OPPONENTS[contestant.name]
    model = contestant.learner.model

    def most_probable(observation: Tensor) -> tuple[Tensor, None]:
        return model(observation)[0].argmax(-1), None

    return policy_of(most_probable, contestant.config.workload.observation)

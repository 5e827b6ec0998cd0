"""3v3 Snakes as a learner: the game, its opponents, the networks and DDPG put together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lockstep.algorithms.ddpg.learner import DDPGLearner
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import evaluate
from lockstep.rl.target_networks import PastSelves
from lockstep.workloads.snakes3v3.arena import ArenaResult, play_games
from lockstep.workloads.snakes3v3.competition import export_submission
from lockstep.workloads.snakes3v3.config import ACTIONS, SnakesConfig
from lockstep.workloads.snakes3v3.env import SnakesTeamEnv
from lockstep.workloads.snakes3v3.game import SnakesGame
from lockstep.workloads.snakes3v3.model import networks, stored_weights, whole_model
from lockstep.workloads.snakes3v3.observations import observe
from lockstep.workloads.snakes3v3.opponents import OPPONENTS, Policy
from lockstep.workloads.snakes3v3.opposition import Opposition, Schedule
from lockstep.workloads.snakes3v3.rules import SNAKES_3V3, SNAKES_5P, GameRules

TEAM = 0
"""The team that is trained."""


class Contestant(Protocol):
    """Somebody who plays a team."""

    name: str
    config: Any
    """What it was trained with."""
    learner: Any
    """Holds its network; None where it is a scripted team."""


def rules_of(config: SnakesConfig) -> GameRules:
    """The game that a configuration asks for."""
    rules = SNAKES_5P if config.game_name == "snakes_5p" else SNAKES_3V3
    return replace(rules, max_steps=config.episode_length)


def build_learner(config: SnakesConfig, world: World) -> DDPGLearner:
    """DDPG on 3v3 Snakes. Called by every rank."""
    actor, critic = networks(config)
    actor.to(world.device)
    past = PastSelves(actor, config.self_play) if config.self_play else None

    def make_env(index: Tensor, seed: int) -> SnakesTeamEnv:
        return training_env(config, index, seed, world.device, past)

    return DDPGLearner(
        config,
        world,
        actor,
        critic,
        make_env,
        lambda index, seed: evaluation_env(config, index, seed, world.device),
        name="snakes3v3",
        action_count=ACTIONS,
        past=past,
        past_every=config.self_play_every,
        first_weights=(lambda: stored_weights(config)) if config.load_model else None,
    )


def training_env(
    config: SnakesConfig, index: Tensor, seed: int, device: torch.device, past: PastSelves | None = None
) -> SnakesTeamEnv:
    """Boards to learn on: shaped rewards for each snake, opponents by the schedule and from the past."""
    schedule = Schedule(
        config.opponent,
        config.opponent_difficulty_strategy,
        config.episode_length,
        config.episodes,
        config.opponent_evasion_start_episode if config.enable_opponent_evasion else None,
    )
    rules = rules_of(config)
    opposition = Opposition(schedule, _rivals(rules), config.observation, past.networks if past else ())
    return SnakesTeamEnv(
        rules,
        index,
        seed,
        device,
        team=TEAM,
        observation=config.observation,
        opposition=opposition,
        reward=config.reward,
        death_penalty=config.death_penalty,
    )


def evaluation_env(config: SnakesConfig, index: Tensor, seed: int, device: torch.device) -> SnakesTeamEnv:
    """Boards to be measured on: one reward for the team, always the same opponent."""
    rules = rules_of(config)
    opposition = Opposition(Schedule(config.eval_opponent), _rivals(rules))
    observation = config.observation
    return SnakesTeamEnv(
        rules, index, seed, device, team=TEAM, observation=observation, opposition=opposition, reward=None
    )


def evaluate_baseline(name: str, config: SnakesConfig, world: World, episodes: int, seed: int) -> Evaluation:
    """How good a scripted team is against the evaluation's opponent. Called by every rank."""
    team = rules_of(config).teams[TEAM]
    return evaluate(
        world,
        lambda index: evaluation_env(config, index, seed, world.device),
        lambda _, env: OPPONENTS[name](env.game, team),
        episodes,
        seed,
        tag="snakes3v3",
    )


def contest(
    config: SnakesConfig, team: Contestant, against: Contestant, games: int, seed: int, world: World
) -> ArenaResult:
    """Games of one contestant against another, half of them from each side."""
    names = (team.name, against.name)
    with torch.no_grad():
        return play_games(policy_of(team), policy_of(against), games, seed, rules_of(config), world.device, names=names)


def policy_of(contestant: Contestant) -> Policy:
    """Who plays: a scripted team by its name, or a network with what it was trained to see."""
    if contestant.learner is None:
        return OPPONENTS[contestant.name]
    model, observation = contestant.learner.model, contestant.config.observation

    def policy(game: SnakesGame, players: Sequence[int]) -> Tensor:
        return model(observe(game, observation, tuple(players)))[0].argmax(-1)

    return policy


def export_team(config: SnakesConfig, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write a trained team for the competition's platform."""
    model = whole_model(config)
    model.load_state_dict(dict(weights))
    assert isinstance(model.actor, nn.Sequential)
    export_submission(model.actor, config.observation, folder)


def _rivals(rules: GameRules) -> list[tuple[int, ...]]:
    return [players for number, players in enumerate(rules.teams) if number != TEAM]

"""3v3 Snakes as a learning problem: environments for one team, with built-in opponents."""

import torch
from torch import Tensor

from lockstep.algorithms.ddpg.model import untrained_model
from lockstep.distributed.world import World
from lockstep.envs.spaces import Discrete
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import evaluate
from lockstep.rl.opponent_pool import OpponentPool
from lockstep.rl.problem import TeamProblem
from lockstep.workloads.snakes3v3.engine.rules import GameRules
from lockstep.workloads.snakes3v3.observations.observe import SIZES
from lockstep.workloads.snakes3v3.opponents.opposition import Opposition, Schedule, past_actor
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS
from lockstep.workloads.snakes3v3.settings import TEAM, SnakesConfig, SnakesSettings
from lockstep.workloads.snakes3v3.training.env import SnakesTeamEnv

NAME = "snakes3v3"


def snakes_problem(config: SnakesConfig, device: torch.device) -> TeamProblem:
    """Boards on a device, with earlier versions of the actor as opponents if self_play is set."""
    settings = config.workload
    schedule = training_schedule(settings, config.length)
    # Boards have no sums whose bits could depend on their number. Opponents from the pool do, as networks.
    boards_of_lane = config.algorithm.n_envs // config.effective_lanes

    def make_env(index: Tensor, seed: int) -> SnakesTeamEnv:
        cohorts = len(index) // boards_of_lane if config.sync_on(device.type) == "exact" else 1
        return training_env(settings, schedule, index, seed, device, problem.opponent_pool, cohorts)

    problem = TeamProblem(
        name=NAME,
        observation_shape=(settings.team_size, SIZES[settings.observation]),
        actions=Discrete(SnakesTeamEnv.action_count),
        make_env=make_env,
        make_test=lambda index, seed: evaluation_env(settings, index, seed, device),
        pool_update_every=settings.self_play_every,
        batch_invariant=True,
    )
    if settings.self_play:
        # Built from the same settings and seed, the pool's networks start with the same weights as the actor.
        problem.opponent_pool = OpponentPool(untrained_model(problem, config).actor.to(device), settings.self_play)
    return problem


def training_schedule(settings: SnakesSettings, steps: int) -> Schedule:
    """The scripted opponents over a run of `steps` steps."""
    return Schedule(
        settings.opponent,
        settings.opponent_difficulty_strategy,
        settings.episode_length,
        settings.episodes(steps),
        settings.opponent_evasion_start_episode if settings.enable_opponent_evasion else None,
    )


def training_env(
    settings: SnakesSettings,
    schedule: Schedule,
    index: Tensor,
    seed: int,
    device: torch.device,
    pool: OpponentPool | None = None,
    cohorts: int = 1,
) -> SnakesTeamEnv:
    """Boards for training: a reward for each snake, opponents by the schedule and from the pool.

    cohorts: equal groups of boards, in order, each of which the pool's networks play as if it were alone.
    """
    rules = settings.rules
    past_actors = [past_actor(network, cohorts, device) for network in pool.networks] if pool else ()
    opposition = Opposition(schedule, _rivals(rules), settings.observation, past_actors)
    return SnakesTeamEnv(
        rules,
        index,
        seed,
        device,
        team=TEAM,
        observation=settings.observation,
        opposition=opposition,
        reward=settings.reward,
        death_penalty=settings.death_penalty,
    )


def evaluation_env(settings: SnakesSettings, index: Tensor, seed: int, device: torch.device) -> SnakesTeamEnv:
    """Boards for evaluation: one reward for the team, and a fixed opponent."""
    rules, observation = settings.rules, settings.observation
    opposition = Opposition(Schedule(settings.eval_opponent), _rivals(rules))
    return SnakesTeamEnv(
        rules, index, seed, device, team=TEAM, observation=observation, opposition=opposition, reward=None
    )


def evaluate_baseline(name: str, settings: SnakesSettings, world: World, episodes: int, seed: int) -> Evaluation:
    """Evaluate a scripted team against eval_opponent. Called by every rank."""
    team = settings.rules.teams[TEAM]
    return evaluate(
        world,
        lambda index: evaluation_env(settings, index, seed, world.device),
        lambda _, env: OPPONENTS[name](env.game, team),
        episodes,
        seed,
        tag=NAME,
    )


def _rivals(rules: GameRules) -> list[tuple[int, ...]]:
    return [players for number, players in enumerate(rules.teams) if number != TEAM]

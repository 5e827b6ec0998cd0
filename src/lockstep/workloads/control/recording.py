"""Whole episodes as they are played, kept to be learned from. E: environments."""

from pathlib import Path

import torch
from torch import Tensor

from lockstep.workloads.control.baselines import BASELINES, Act
from lockstep.workloads.control.env import ControlEnv, TaskChoice, make_env, task_facts
from lockstep.workloads.control.episodes import Episode, EpisodeWriter

_SIDE_BY_SIDE = 64
"""Episodes that are played at once."""


def record_episodes(config: TaskChoice, act: Act | str, episodes: int, seed: int, folder: Path) -> tuple[int, int]:
    """Play episodes 0..episodes-1 of a seed, each in the environment of its number, and write them.

    Returns how many episodes and steps there are. `act` is a policy that notices by `env.steps` where one begins, or
    the name of one of BASELINES.
    """
    policy = BASELINES[act] if isinstance(act, str) else act
    facts = task_facts(config)
    writer = EpisodeWriter(folder, facts.tasks)
    steps = 0
    for first in range(0, episodes, _SIDE_BY_SIDE):
        index = torch.arange(first, min(first + _SIDE_BY_SIDE, episodes))
        for episode in _play(make_env(config, index, seed, torch.device("cpu")), policy):
            steps += len(episode.action)
            writer.add(episode)
    writer.flush()
    return writer.count, steps


@torch.no_grad()
def _play(env: ControlEnv, act: Act) -> list[Episode]:
    """The first episode of every environment."""
    observation = env.reset()
    seen, done, earned, over = [observation], list[Tensor](), list[Tensor](), list[Tensor]()
    length = torch.zeros(env.count, dtype=torch.int64)
    playing = torch.ones(env.count, dtype=torch.bool)
    while bool(playing.any()):
        action = act(observation, env).cpu()
        transition = env.step(action)
        ended = transition.terminated | transition.truncated
        length += playing
        playing &= ~ended
        assert transition.final_observation is not None
        observation = transition.observation
        # An episode's last row is what was seen at its end, not what the next one begins with.
        seen.append(torch.where(ended[:, None], transition.final_observation, observation))
        done.append(action * env.action_mask)
        earned.append(transition.reward)
        over.append(transition.terminated)
    everything, actions, rewards, ends = (torch.stack(rows, 1) for rows in (seen, done, earned, over))
    return [
        Episode(everything[i, : t + 1], actions[i, :t], rewards[i, :t], ends[i, :t], int(env.task[i]))
        for i, t in enumerate(length.tolist())
    ]

"""Plays whole episodes and writes them as training data. E: environments."""

from pathlib import Path

import torch
from torch import Tensor

from lockstep.errors import UserError
from lockstep.workloads.control.baselines import Act, Player, policy_of
from lockstep.workloads.control.env import ControlEnv, make_env, task_facts
from lockstep.workloads.control.episodes import Episode, EpisodeWriter
from lockstep.workloads.control.settings import ControlSettings

_AT_ONCE = 64
"""Episodes played at the same time; bounds how many environments a process holds."""


def record_episodes(
    settings: ControlSettings, player: Player | str, episodes: int, seed: int, folder: Path
) -> tuple[int, int]:
    """Play episodes 0..episodes-1 of a seed, episode i in environment i, and write them to `folder`.

    Returns how many episodes and steps were written. `player` is the name of one of BASELINES, or a model, which reads
    from `env.steps` when a new episode starts.
    """
    if settings.images:
        raise UserError("record: episodes on disk hold numbers, and this run observes images (obs rgb); record another")
    policy = policy_of(player)
    facts = task_facts(settings)
    writer = EpisodeWriter(folder, facts.tasks)
    steps = 0
    # Episode i is the first of environment i, so it does not depend on how many are played at a time.
    for first in range(0, episodes, _AT_ONCE):
        index = torch.arange(first, min(first + _AT_ONCE, episodes))
        for episode in _play(make_env(settings, index, seed, torch.device("cpu")), policy):
            steps += len(episode.action)
            writer.add(episode)
    writer.flush()
    return writer.count, steps


@torch.no_grad()
def _play(env: ControlEnv, act: Act) -> list[Episode]:
    """Play the first episode of every environment; those that finish early keep stepping, and the rest is cut off."""
    observation = env.reset()
    seen, done, earned, over = [observation], list[Tensor](), list[Tensor](), list[Tensor]()
    length = torch.zeros(env.count, dtype=torch.int64)
    playing = torch.ones(env.count, dtype=torch.bool)
    while bool(playing.any()):
        action = act(observation, env).cpu()
        transition = env.step(action)
        ended = transition.terminated | transition.truncated
        # Before `playing` changes: an episode's last step counts as well.
        length += playing
        playing &= ~ended
        assert transition.final_observation is not None
        observation = transition.observation
        # Environments reset themselves: an episode's last row is its final observation, not the next one's first.
        seen.append(torch.where(ended[:, None], transition.final_observation, observation))
        # Zeros where the task has no such action: what the policy put there had no effect.
        done.append(action * env.action_mask)
        earned.append(transition.reward)
        over.append(transition.terminated)
    everything, actions, rewards, ends = (torch.stack(rows, 1) for rows in (seen, done, earned, over))
    return [
        Episode(everything[i, : t + 1], actions[i, :t], rewards[i, :t], ends[i, :t], int(env.task[i]))
        for i, t in enumerate(length.tolist())
    ]

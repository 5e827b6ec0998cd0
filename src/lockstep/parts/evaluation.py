"""How good a policy is: whole episodes, shared out over lanes. E: environments."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.core.distributed.world import World
from lockstep.core.learner import Evaluation
from lockstep.parts.vector_env import VectorEnv

Act = Callable[[Tensor, Any], Tensor]
"""A policy: the actions for an observation, or, for one that knows the rules, for the environment itself."""
Episode = tuple[float, int, dict[str, float]]


def evaluate(
    world: World, make_env: Callable[[Tensor], VectorEnv], act: Act, episodes: int, seed: int, tag: str
) -> Evaluation:
    """Play episodes 0..episodes-1, each in the environment of its number. Called by every rank.

    What the environment says about an episode is reported under `tag`, the workload's name.
    """
    played: list[Episode] = []
    for numbers in _groups(world, episodes):
        played += play_out(make_env(numbers), act)
    everything = [episode for part in world.gather_json(played) for episode in part]
    return Evaluation(
        returns=[episode[0] for episode in everything],
        lengths=[episode[1] for episode in everything],
        seed=seed,
        extra={f"{tag}_{name}": [episode[2][name] for episode in everything] for name in everything[0][2]},
    )


def _groups(world: World, episodes: int) -> list[Tensor]:
    """The episode numbers of this rank: one batch in fast mode, lane by lane (its own shapes) in exact mode."""
    shares = world.lanes.share_out(episodes)
    groups = [range(shares[0].start, shares[-1].stop)] if world.sync == "fast" else shares
    return [torch.arange(share.start, share.stop, device=world.device) for share in groups if len(share)]


@torch.no_grad()
def play_out(env: VectorEnv, act: Act) -> list[Episode]:
    """The first episode of every environment: (return, length, info) each."""
    observation = env.reset()
    device = observation.device
    total = torch.zeros(env.count, dtype=torch.float64, device=device)
    length = torch.zeros(env.count, dtype=torch.int64, device=device)
    playing = torch.ones(env.count, dtype=torch.bool, device=device)
    info: dict[str, Tensor] = {}
    step = 0
    # Asking a GPU "all done?" makes it wait: ask now and then, the surplus steps change nothing.
    while step % 16 or bool(playing.any()):
        transition = env.step(act(observation, env))
        observation = transition.observation
        total += transition.reward * playing
        length += playing
        ended = (transition.terminated | transition.truncated) & playing
        for name, value in transition.info.items():
            info[name] = torch.where(ended, value.double(), info.get(name, torch.zeros_like(total)))
        playing &= ~ended
        step += 1
    columns = {name: value.tolist() for name, value in info.items()}
    return [
        (reward, steps, {name: column[i] for name, column in columns.items()})
        for i, (reward, steps) in enumerate(zip(total.tolist(), length.tolist(), strict=True))
    ]

"""How good a policy is: whole episodes, shared out over lanes. E: environments."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.distributed.world import World
from lockstep.envs.vector_env import BatchedEnv
from lockstep.reporting.evaluation import Evaluation

Act = Callable[[Tensor, Any], Tensor]
"""A policy: the actions for an observation, or, for one that knows the rules, for the environment itself."""
Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Turns a step into one that a GPU replays (see core.graphs), or leaves it as it is."""
Episode = tuple[float, int, dict[str, float]]


def evaluate(
    world: World,
    make_env: Callable[[Tensor], BatchedEnv],
    act: Act,
    episodes: int,
    seed: int,
    tag: str,
    record: Record = lambda step: step,
    at_once: int | None = None,
) -> Evaluation:
    """Play episodes 0..episodes-1, each in the environment of its number. Called by every rank.

    What the environment says about an episode is reported under `tag`, the workload's name. `at_once`: the most that a
    rank plays side by side; none = all.
    """
    played: list[Episode] = []
    for group in _groups(world, episodes):
        for numbers in group.split(at_once or len(group)):
            played += play_out(make_env(numbers), act, record)
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


def play_out(env: BatchedEnv, act: Act, record: Record = lambda step: step) -> list[Episode]:
    """The first episode of every environment: (return, length, info) each."""
    play = _Play(env, act)
    step = record(play.step)
    steps = 0
    # Asking a GPU "all done?" makes it wait: ask now and then, the surplus steps change nothing.
    while steps % 16 or bool(play.playing.any()):
        step()
        steps += 1
    return play.episodes()


class _Play:
    """Every environment's first episode as it goes on, in tensors that stay where they are."""

    def __init__(self, env: BatchedEnv, act: Act) -> None:
        self._env, self._act = env, act
        self._observation = env.reset().clone()
        device = self._observation.device
        self._total = torch.zeros(env.count, dtype=torch.float64, device=device)
        self._length = torch.zeros(env.count, dtype=torch.int64, device=device)
        self.playing = torch.ones(env.count, dtype=torch.bool, device=device)
        self._info: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        """One action in every environment; those whose episode has ended go on unobserved."""
        transition = self._env.step(self._act(self._observation, self._env))
        self._observation.copy_(transition.observation)
        self._total += transition.reward * self.playing
        self._length += self.playing
        ended = (transition.terminated | transition.truncated) & self.playing
        for name, value in transition.info.items():
            kept = self._info.setdefault(name, torch.zeros_like(self._total))
            kept.copy_(torch.where(ended, value.double(), kept))
        self.playing &= ~ended

    def episodes(self) -> list[Episode]:
        """What was played."""
        columns = {name: value.tolist() for name, value in self._info.items()}
        return [
            (reward, steps, {name: column[i] for name, column in columns.items()})
            for i, (reward, steps) in enumerate(zip(self._total.tolist(), self._length.tolist(), strict=True))
        ]

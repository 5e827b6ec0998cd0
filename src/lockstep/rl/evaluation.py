"""Evaluates a policy on whole episodes, distributed over lanes. E: environments."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.distributed.world import World
from lockstep.envs.vector_env import BatchedEnv
from lockstep.reporting.evaluation import Evaluation

Act = Callable[[Tensor, Any], Tensor]
"""A policy: (observation, environment) -> actions; scripted policies read the environment's state."""
Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Records a step as a CUDA graph (see compute.graphs), or returns it unchanged."""
SafePoint = Callable[[bool], bool]
"""(whether this rank is busy) -> whether any rank may be (see run.safe_points)."""
Episode = tuple[float, int, dict[str, float]]
"""Return, length, and what the environment reports about it."""
HOSTED_AT_ONCE = 128
"""Most episodes that a rank plays in parallel on the host: each may need its own simulator of a dozen megabytes."""


def evaluate(
    world: World,
    make_env: Callable[[Tensor], BatchedEnv],
    act: Act,
    episodes: int,
    seed: int,
    tag: str,
    record: Record = lambda step: step,
    at_once: int | None = None,
    safe_point: SafePoint = lambda busy: False,
) -> Evaluation:
    """Play episodes 0..episodes-1, each in the environment with its number. Called by every rank.

    `tag`: the workload's name, under which the environment's own numbers are reported. `at_once`: most episodes that a
    rank plays in parallel; None = all of them. `safe_point`: passed after every step; it may raise on all ranks.
    """
    played: list[Episode] = []
    for group in _groups(world, episodes):
        for numbers in group.split(at_once or len(group)):
            played += play_out(make_env(numbers), act, record, safe_point)
    # Episodes differ in length, and ranks in their number of episodes: this one answers until the last rank is done.
    while safe_point(False):
        pass
    # In rank order, and ranks own contiguous lanes, so the lists are in the order of episode numbers.
    everything = [episode for part in world.gather_json(played) for episode in part]
    return Evaluation(
        returns=[episode[0] for episode in everything],
        lengths=[episode[1] for episode in everything],
        seed=seed,
        extra={f"{tag}_{name}": [episode[2][name] for episode in everything] for name in everything[0][2]},
    )


def _groups(world: World, episodes: int) -> list[Tensor]:
    """The episode numbers of this rank: one batch in fast mode, one per lane in exact mode."""
    # Exact mode keeps a lane's shapes whatever the world size: kernels may round differently for other batch sizes.
    shares = world.lanes.share_out(episodes)
    groups = [range(shares[0].start, shares[-1].stop)] if world.sync == "fast" else shares
    return [torch.arange(share.start, share.stop, device=world.device) for share in groups if len(share)]


def play_out(
    env: BatchedEnv, act: Act, record: Record = lambda step: step, safe_point: SafePoint = lambda busy: False
) -> list[Episode]:
    """Play the first episode of every environment."""
    play = _Play(env, act)
    step = record(play.step)
    steps = 0
    # Reading the flag synchronizes with the GPU, so it is read every 16 steps only; extra steps change no result.
    while steps % 16 or bool(play.playing.any()):
        step()
        steps += 1
        safe_point(True)
    return play.episodes()


class _Play:
    """Every environment's first episode in progress, in tensors that are updated in place for recorded graphs."""

    def __init__(self, env: BatchedEnv, act: Act) -> None:
        self._env, self._act = env, act
        self._observation = env.reset().clone()
        device = self._observation.device
        # Sums in float64, so that long episodes lose no small rewards.
        self._total = torch.zeros(env.count, dtype=torch.float64, device=device)
        self._length = torch.zeros(env.count, dtype=torch.int64, device=device)
        self.playing = torch.ones(env.count, dtype=torch.bool, device=device)
        self._info: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Take one action in every environment; results after the first episode's end are ignored."""
        transition = self._env.step(self._act(self._observation, self._env))
        self._observation.copy_(transition.observation)
        self._total += transition.reward * self.playing
        self._length += self.playing
        # Only the first end counts: the environment has reset itself and may end again.
        ended = (transition.terminated | transition.truncated) & self.playing
        for name, value in transition.info.items():
            kept = self._info.setdefault(name, torch.zeros_like(self._total))
            kept.copy_(torch.where(ended, value.double(), kept))
        self.playing &= ~ended

    def episodes(self) -> list[Episode]:
        """The finished episodes, in the order of the environments."""
        columns = {name: value.tolist() for name, value in self._info.items()}
        return [
            (reward, steps, {name: column[i] for name, column in columns.items()})
            for i, (reward, steps) in enumerate(zip(self._total.tolist(), self._length.tolist(), strict=True))
        ]

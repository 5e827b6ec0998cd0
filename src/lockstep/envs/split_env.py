"""Batches of environments that are stepped one by one, seen as a single batch. E: environments."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from lockstep.compute.branches import Branches
from lockstep.envs.vector_env import BatchedEnv, TeamEnv, Transition

Env = TypeVar("Env", bound=BatchedEnv)


class SplitEnv:
    """Several batches of equal size as one, for environments whose bits may depend on the size of their batch."""

    def __init__(self, parts: Sequence[BatchedEnv], device: torch.device) -> None:
        self.parts = parts
        self._branches = Branches(len(parts), device)

    @property
    def count(self) -> int:
        """E."""
        return sum(part.count for part in self.parts)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of a single environment's observation."""
        return self.parts[0].observation_shape

    def reset(self) -> Tensor:
        """See BatchedEnv."""
        return torch.cat([part.reset() for part in self.parts])

    def step(self, action: Tensor) -> Transition:
        """See BatchedEnv."""
        shares = action.chunk(len(self.parts))
        steps = [partial(part.step, share) for part, share in zip(self.parts, shares, strict=True)]
        return _joined(self._branches.run(steps))

    def state(self) -> dict[str, Tensor]:
        """See BatchedEnv."""
        states = [part.state() for part in self.parts]
        return {name: torch.cat([state[name] for state in states]) for name in states[0]}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """See BatchedEnv."""
        shares = {name: value.chunk(len(self.parts)) for name, value in state.items()}
        each = enumerate(self.parts)
        return torch.cat([part.load({name: share[number] for name, share in shares.items()}) for number, part in each])


class SplitTeamEnv(SplitEnv):
    """The same for environments of teams."""

    def __init__(self, parts: Sequence[TeamEnv], device: torch.device) -> None:
        super().__init__(parts, device)
        self._teams = parts

    def prepare(self, steps: int) -> dict[str, float]:
        """See TeamEnv. All parts are in the same stage."""
        first, *_ = [team.prepare(steps) for team in self._teams]
        return first


def of_each_batch(env: BatchedEnv, function: Callable[[BatchedEnv], Tensor]) -> Tensor:
    """A function of an environment, (E, ...); of split ones, which have no attributes of their own, part by part."""
    return torch.cat([function(part) for part in env.parts]) if isinstance(env, SplitEnv) else function(env)


def in_cohorts(
    make: Callable[[Tensor], Env],
    index: Tensor,
    cohorts: int,
    together: bool,
    split: Callable[[Sequence[Env], torch.device], Env],
) -> Env:
    """The environments with these numbers (E,): as one batch if they may be together, else one for every cohort."""
    if together or cohorts == 1:
        return make(index)
    return split([make(part) for part in index.chunk(cohorts)], index.device)


def _joined(parts: Sequence[Transition]) -> Transition:
    observation, reward, terminated, truncated = (
        torch.cat([getattr(part, name) for part in parts])
        for name in ("observation", "reward", "terminated", "truncated")
    )
    final = valid = None
    # An environment may leave these out where nothing ended; then they say nothing about its rows.
    if any(part.final_observation is not None for part in parts):
        final = torch.cat([_or(part.final_observation, part.observation) for part in parts])
    if any(part.valid is not None for part in parts):
        valid = torch.cat([_or(part.valid, torch.ones_like(part.terminated)) for part in parts])
    names = dict.fromkeys(name for part in parts for name in part.info)
    info = {
        name: torch.cat([_or(part.info.get(name), torch.zeros_like(part.reward)) for part in parts]) for name in names
    }
    return Transition(observation, reward, terminated, truncated, final, info, valid)


def _or(given: Tensor | None, otherwise: Tensor) -> Tensor:
    return otherwise if given is None else given

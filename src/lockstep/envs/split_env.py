"""Batches of environments that are stepped one by one, seen as a single batch. E: environments."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from lockstep.compute.branches import Branches
from lockstep.envs.vector_env import BatchedEnv, TeamEnv, Transition


class SplitEnv:
    """Several batches of equal size as one, for environments whose bits may depend on the size of their batch."""

    def __init__(self, parts: Sequence[BatchedEnv], device: torch.device) -> None:
        self._parts = parts
        self._branches = Branches(len(parts), device)

    @property
    def count(self) -> int:
        """E."""
        return sum(part.count for part in self._parts)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of a single environment's observation."""
        return self._parts[0].observation_shape

    def reset(self) -> Tensor:
        """See BatchedEnv."""
        return torch.cat([part.reset() for part in self._parts])

    def step(self, action: Tensor) -> Transition:
        """See BatchedEnv."""
        shares = action.chunk(len(self._parts))
        steps = [partial(part.step, share) for part, share in zip(self._parts, shares, strict=True)]
        return _joined(self._branches.run(steps))

    def state(self) -> dict[str, Tensor]:
        """See BatchedEnv."""
        states = [part.state() for part in self._parts]
        return {name: torch.cat([state[name] for state in states]) for name in states[0]}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """See BatchedEnv."""
        shares = {name: value.chunk(len(self._parts)) for name, value in state.items()}
        each = enumerate(self._parts)
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


def in_cohorts(make: Callable[[Tensor], BatchedEnv], index: Tensor, cohorts: int, together: bool) -> BatchedEnv:
    """The environments with these numbers (E,): as one batch if they may be together, else one for every cohort."""
    if together or cohorts == 1:
        return make(index)
    return SplitEnv([make(part) for part in index.chunk(cohorts)], index.device)


def teams_in_cohorts(make: Callable[[Tensor], TeamEnv], index: Tensor, cohorts: int, together: bool) -> TeamEnv:
    """The same for teams."""
    if together or cohorts == 1:
        return make(index)
    return SplitTeamEnv([make(part) for part in index.chunk(cohorts)], index.device)


def _joined(parts: Sequence[Transition]) -> Transition:
    first = parts[0]

    def column(name: str) -> Tensor | None:
        return None if getattr(first, name) is None else torch.cat([getattr(part, name) for part in parts])

    observation, reward, terminated, truncated = (
        torch.cat([getattr(part, name) for part in parts])
        for name in ("observation", "reward", "terminated", "truncated")
    )
    return Transition(
        observation,
        reward,
        terminated,
        truncated,
        column("final_observation"),
        {name: torch.cat([part.info[name] for part in parts]) for name in first.info},
        column("valid"),
    )

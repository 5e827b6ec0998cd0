"""Checks environments against what training relies on: shapes, seeds, numbering, state. E: environments.

One finding for each question. The environments are tried with random actions; nothing is trained.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.envs.failures import failures_told
from lockstep.envs.spaces import Actions, Continuous, Discrete, Part
from lockstep.envs.vector_env import BatchedEnv, Transition
from lockstep.errors import LockstepError, RunFailed
from lockstep.rl.problem import EnvProblem

_COUNT = 4
"""Environments that are tried together."""


@dataclass(frozen=True)
class Finding:
    """The answer to one question about an environment."""

    subject: str
    problem: str = ""
    """What is wrong and what to do; empty if nothing is."""
    detail: str = ""
    """What was seen."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem


@dataclass
class _Trace:
    """What some steps with the same actions gave."""

    first: Tensor
    steps: list[Transition]

    def differs(self, other: "_Trace") -> int | None:
        """The first step at which another trace differs from this one; 0 = the reset, None = nowhere."""
        if not torch.equal(self.first, other.first):
            return 0
        for number, (mine, theirs) in enumerate(zip(self.steps, other.steps, strict=True), 1):
            for name in ("observation", "reward", "terminated", "truncated"):
                if not torch.equal(getattr(mine, name), getattr(theirs, name)):
                    return number
        return None


def check_environments(problem: EnvProblem, steps: int = 200, seed: int = 1) -> Iterator[Finding]:
    """Try the environments of a problem; yields a finding for each question."""
    probe = _Probe(problem, steps, seed)
    for subject, question in (
        ("steps", probe.steps_work),
        ("seeds", probe.seeds_matter),
        ("determinism", probe.repeats),
        ("numbering", probe.numbers_alone_count),
        ("resume", probe.resumes),
    ):
        finding = answered(subject, question)
        yield finding
        if subject == "steps" and not finding.good:
            # Nothing else can be tried with an environment that cannot be stepped.
            return


def answered(subject: str, question: Callable[[], Finding]) -> Finding:
    """The finding of a question; if the environment fails in it, that is the finding."""
    try:
        with failures_told(RunFailed):
            return question()
    except LockstepError as error:
        return Finding(subject, str(error))


class _Probe:
    def __init__(self, problem: EnvProblem, steps: int, seed: int) -> None:
        self._problem, self._count_steps, self._seed = problem, steps, seed
        self._whole: _Trace | None = None

    def steps_work(self) -> Finding:
        """Whether steps give what the problem says."""
        trace = self._trace(range(_COUNT))
        self._whole = trace
        shape = (_COUNT, *self._problem.observation_shape)
        if tuple(trace.first.shape) != shape:
            return Finding("steps", f"observations have shape {tuple(trace.first.shape)}; the problem says {shape}")
        rewards = torch.stack([step.reward for step in trace.steps])
        ended = torch.stack([step.terminated for step in trace.steps]).sum()
        cut = torch.stack([step.truncated for step in trace.steps]).sum()
        seen = f"{_COUNT} x {self._count_steps} steps, rewards from {rewards.min():.3g} to {rewards.max():.3g}, "
        seen += f"{int(ended)} episodes terminated, {int(cut)} truncated"
        if not bool(rewards.isfinite().all()):
            return Finding("steps", "a reward is not a finite number")
        return Finding("steps", detail=seen)

    def seeds_matter(self) -> Finding:
        """Whether environments differ from each other, and seeds from each other."""
        assert self._whole is not None
        other = self._trace(range(_COUNT), seed=self._seed + 1)
        if self._whole.differs(other) is None:
            return Finding("seeds", detail="the same whatever the seed: nothing in this environment is random")
        return Finding("seeds", detail="another seed gives other episodes")

    def repeats(self) -> Finding:
        """Whether the same seed and actions give the same episodes."""
        assert self._whole is not None
        differs = self._whole.differs(self._trace(range(_COUNT)))
        if differs is None:
            return Finding("determinism", detail="the same seed and actions give the same bits")
        advice = "draw all random numbers from what reset(seed=...) seeds (self.np_random), not from global generators"
        return Finding("determinism", f"the same seed and actions differ at {_step(differs)}; {advice}")

    def numbers_alone_count(self) -> Finding:
        """Whether an environment is the same alone as among others: then ranks do not change the experiment."""
        assert self._whole is not None
        last = _COUNT - 1
        whole, alone = self._whole, self._trace(range(last, _COUNT), steps=1)
        # Up to rounding: kernels may round differently for another number of rows. In exact mode a lane's environments
        # are always computed together, on any number of ranks.
        same = _close(whole.first[last:], alone.first)
        same &= _close(whole.steps[0].observation[last:], alone.steps[0].observation)
        if same:
            return Finding("numbering", detail="an environment does the same alone as among others")
        return Finding(
            "numbering",
            f"environment {last} does something else when it is alone; its random numbers must depend on its number, "
            "not on its position or its neighbours",
        )

    def resumes(self) -> Finding:
        """Whether a restored environment continues with the same bits."""
        if self._problem.restarts:
            return Finding(
                "resume", detail="by restart: unfinished episodes are lost, and exact mode refuses to resume"
            )
        half = self._count_steps // 2
        one = self._problem.environments(torch.arange(_COUNT), self._seed)
        seen = one.reset()
        for step in range(half):
            seen = one.step(self._actions(step, range(_COUNT), seen)).observation
        other = self._problem.environments(torch.arange(_COUNT), self._seed)
        other.reset()
        other.load({name: value.clone() for name, value in one.state().items()})
        for step in range(half, self._count_steps):
            action = self._actions(step, range(_COUNT), seen)
            mine, theirs = one.step(action.clone()), other.step(action.clone())
            seen = mine.observation
            if not torch.equal(mine.observation, theirs.observation) or not torch.equal(mine.reward, theirs.reward):
                after = step - half + 1
                return Finding(
                    "resume", f"a restored environment differs after {after} steps; `state` must hold all that changes"
                )
        return Finding(
            "resume", detail=f"restored after {half} steps, the same bits for {self._count_steps - half} more"
        )

    def _trace(self, numbers: range, seed: int | None = None, steps: int = 0) -> _Trace:
        env: BatchedEnv = self._problem.environments(torch.tensor(numbers), self._seed if seed is None else seed)
        # Copies: environments may write their results in place.
        first = seen = env.reset().clone()
        taken = []
        for step in range(steps or self._count_steps):
            taken.append(_copy(env.step(self._actions(step, numbers, seen))))
            seen = taken[-1].observation
        return _Trace(first, taken)

    def _actions(self, step: int, numbers: range, observation: Tensor) -> Tensor:
        return random_actions(self._problem.actions, self._problem.parts, observation, torch.tensor(numbers), step)


def random_actions(
    actions: Actions, parts: tuple[Part, ...], observation: Tensor, index: Tensor, step: int, seed: int = 0
) -> Tensor:
    """Actions drawn uniformly among those allowed, for environments `index` (E,) at a step."""
    if isinstance(actions, Continuous):
        return _drawn(seed, index, step, actions.size) * 2 - 1
    counts = (actions.count,) if isinstance(actions, Discrete) else actions.counts
    drawn = _drawn(seed, index, step, len(counts))
    allowed = _mask(parts, observation, sum(counts)).split(counts, dim=1)
    chosen = torch.stack([_pick(drawn[:, i], part) for i, part in enumerate(allowed)], dim=1)
    return chosen.squeeze(1) if isinstance(actions, Discrete) else chosen


def _drawn(seed: int, index: Tensor, step: int, size: int) -> Tensor:
    """(E, size) numbers from 0 to 1."""
    component = torch.arange(size, device=index.device)
    return random.uniform(seed, "random policy", index[:, None], step, component)


def _mask(parts: tuple[Part, ...], observation: Tensor, size: int) -> Tensor:
    """(E, size) 1 for every action that is allowed."""
    pieces = observation.flatten(1).split([part.size for part in parts], dim=1) if parts else ()
    masks = [piece for piece, part in zip(pieces, parts, strict=True) if part.kind == "mask"]
    return masks[0] if masks else torch.ones(len(observation), size, device=observation.device)


def _pick(drawn: Tensor, allowed: Tensor) -> Tensor:
    """(E,) one of the allowed (E, A) each, by a number from 0 to 1."""
    position = (drawn * allowed.sum(1)).floor()
    return (allowed.cumsum(1) > position[:, None]).int().argmax(1)


def _copy(done: Transition) -> Transition:
    return Transition(done.observation.clone(), done.reward.clone(), done.terminated.clone(), done.truncated.clone())


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.double(), other.double(), rtol=1e-4, atol=1e-5)


def _step(number: int) -> str:
    return f"step {number}" if number else "the reset"

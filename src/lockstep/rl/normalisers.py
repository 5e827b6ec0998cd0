"""Normalisers of observations and rewards, whose moments belong to the world. T: time, E: environments, N: numbers."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from lockstep.compute.cohorts import cohorts_of
from lockstep.compute.moments import RunningMoments, moment_sums
from lockstep.rl.problem import EnvProblem, Part

LARGEST = 10.0
"""Normalised values are clipped to it: one outlier must not shake the weights."""
_MOMENTS = ("mean", "variance", "count")


def parts_of(problem: EnvProblem) -> tuple[Part, ...]:
    """What an observation is put together from; one that is a single tensor with three axes counts as an image."""
    if problem.parts:
        return problem.parts
    shape = problem.observation_shape
    is_image = len(shape) == 3 and min(shape[1:]) >= 3
    return (Part("observation", shape, "image" if is_image else "vector"),)


class ObservationNormaliser(nn.Module):
    """Brings the vectors of observations to mean 0 and variance 1; images and masks stay as they are.

    A module of the network, so that its moments are saved with the weights. They start as 0 and 1, and only `update`
    changes them: a rollout and what is learned from it see the same moments.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self._slices: list[tuple[int, int]] = []
        start = 0
        for part in parts:
            if part.kind == "vector":
                self._slices.append((start, start + part.size))
            start += part.size
        self._width = start
        numbers = sum(stop - start for start, stop in self._slices)
        # float64: after 10^8 steps a float32 mean would no longer move.
        self.register_buffer("mean", torch.zeros(numbers, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(numbers, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.mean)

    def forward(self, vectors: Tensor) -> Tensor:
        """Normalise the vector parts of observations, (..., N), in fp32."""
        scale = (self.variance + 1e-8).rsqrt().float()
        return ((vectors.float() - self.mean.float()) * scale).clamp(-LARGEST, LARGEST)

    def within(self, flat: Tensor) -> Tensor:
        """Whole observations (B, size) with their vectors normalised in place of the raw ones."""
        vectors, pieces, done, taken = self(self.vectors(flat)), [], 0, 0
        for start, stop in self._slices:
            pieces += [flat[:, done:start], vectors[:, taken : taken + stop - start]]
            done, taken = stop, taken + stop - start
        return torch.cat((*pieces, flat[:, done:]), dim=1)

    def vectors(self, flat: Tensor) -> Tensor:
        """The vector parts of whole observations: (B, size) -> (B, N)."""
        if self._slices == [(0, self._width)]:
            return flat
        return torch.cat([flat[:, start:stop] for start, stop in self._slices], dim=1)

    @torch.no_grad()
    def sums(self, observation: Tensor) -> Tensor:
        """The moment sums (N, 3) of a cohort's observations (T, E, ...), to be added over the world."""
        return moment_sums(self.vectors(observation.flatten(0, 1).flatten(1)).t())

    @torch.no_grad()
    def update(self, sums: Tensor) -> None:
        """Take in the world's sums of a rollout, in place: a recorded graph reads these buffers."""
        RunningMoments(self.mean, self.variance, self.count).add(sums)


def normaliser_of(network: nn.Module) -> ObservationNormaliser | None:
    """The normaliser of a network's observations: its attribute `normaliser`, if it has one."""
    found = getattr(network, "normaliser", None)
    return found if isinstance(found, ObservationNormaliser) else None


class DiscountedReturns:
    """The discounted sum of rewards up to now in each environment, whose spread says how large rewards are."""

    def __init__(self, count: int, gamma: float, device: torch.device, cohorts: int = 1) -> None:
        self.value = torch.zeros(count, dtype=torch.float64, device=device)
        """(E,) in unfinished episodes."""
        self.sums = torch.zeros((cohorts, 3), dtype=torch.float64, device=device)
        """Moment sums of the values of each cohort at all steps since they were last set to zero."""
        self._gamma = gamma

    def advance(self, reward: Tensor, ended: Tensor) -> None:
        """One step, in place: rewards (E,), and whether the episodes ended with them (E,)."""
        self.value.mul_(self._gamma).add_(reward)
        # One by one: the number of sums decides how a kernel divides each.
        self.sums += torch.stack([moment_sums(part) for part in cohorts_of(self.value, len(self.sums))])
        self.value.masked_fill_(ended, 0.0)


class RewardScale:
    """What rewards are multiplied by: 1 / the standard deviation of the discounted returns of the run so far."""

    def __init__(self, device: torch.device) -> None:
        mean, variance, count = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64, device=device).unbind()
        self._moments = RunningMoments(mean, variance, count)
        self.factor = torch.ones((), device=device)
        """Changed in place: a recorded graph reads it."""

    @torch.no_grad()
    def update(self, sums: Tensor) -> None:
        """Take in the world's sums of a rollout (3,)."""
        self._moments.add(sums)
        self.factor.copy_((self._moments.variance + 1e-8).rsqrt())

    def state(self) -> dict[str, float]:
        """The moments as JSON, which keeps every bit of a float64."""
        return {name: float(getattr(self._moments, name)) for name in _MOMENTS}

    def load(self, state: Mapping[str, float]) -> None:
        """Restore what `state` returned; the factor follows with the next update."""
        for name in _MOMENTS:
            getattr(self._moments, name).fill_(state[name])


def scaled(reward: Tensor, factor: Tensor) -> Tensor:
    """Rewards divided by the deviation of the returns, clipped."""
    return (reward * factor).clamp(-LARGEST, LARGEST)

"""Divides a pass over the samples into batches and lanes. K: groups, M: batches, L: lanes, W: places of a lane.

Every sample is in exactly one batch, and every batch has its share of every group, so all batches have the same shape:
batch m of a group with n samples holds the m-th of M nearly equal parts of its order. The places of a batch are the
same for any number of ranks; those beyond its last sample are padding with weight 0.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lockstep.algorithms.supervised.dataset import Streamed
from lockstep.compute import random


@dataclass(frozen=True)
class Places:
    """Which sample is at which place of the batches of a pass, for some lanes and one group."""

    index: Tensor
    """(M, L x W) int64: sample numbers within the group."""
    weight: Tensor
    """(M, L x W) float32: 1 for a sample, 0 for padding."""
    noise: Tensor
    """(M, L x W) int64: a random 32-bit word for each sample and pass."""


class Pass:
    """The sizes of a pass: functions of the samples, the batch size and the number of lanes alone."""

    def __init__(self, sizes: tuple[int, ...], batch_size: int, lanes: int) -> None:
        self.sizes, self.lanes = sizes, lanes
        self.samples = sum(sizes)
        self.batches = -(-self.samples // batch_size)  # rounded up: every sample has a place
        self.groups = [group for group, size in enumerate(sizes) if size]
        """The groups that have samples."""

    def width(self, group: int) -> int:
        """W: places of a lane for a group in every batch."""
        # Rounded up to the same number for all batches and lanes, as recorded graphs need fixed shapes.
        return -(-self.sizes[group] // (self.batches * self.lanes))

    def counts(self) -> list[int]:
        """Number of samples in each batch, over all groups and lanes."""
        return [sum(stop - start for start, stop in self._cuts(number)) for number in range(self.batches)]

    def _cuts(self, number: int) -> list[tuple[int, int]]:
        return [(size * number // self.batches, size * (number + 1) // self.batches) for size in self.sizes]

    def places(self, group: int, lanes: range, order: Tensor, noise: Tensor, within: bool = False) -> Places:
        """The places of a group's samples. `order`: sample numbers in their order; `noise`: a word per sample.

        `within`: a batch is padded with its own first sample, so that no sample is read for two batches.
        """
        size, device = self.sizes[group], order.device
        batch = torch.arange(self.batches, device=device)
        start, stop = size * batch // self.batches, size * (batch + 1) // self.batches
        lane = torch.arange(lanes.start, lanes.stop, device=device)
        # Dealt out to the lanes in turn, so that the padding at the end is spread over all lanes.
        place = torch.arange(self.width(group), device=device) * self.lanes + lane[:, None]
        # Padding repeats other samples, the last one at the end, so that it is valid input; its weight is 0.
        position = start[:, None] + place.flatten()
        weight = (position < stop[:, None]).float()
        if within:
            position = torch.where(weight > 0, position, start[:, None])
        index = order[position.clamp(max=size - 1)]
        return Places(index, weight, noise[index])


def shuffled(
    plan: Pass,
    seed: int,
    epoch: int,
    lanes: range,
    device: torch.device,
    *,
    within: bool = False,
    keeps_order: bool = False,
) -> list[Places]:
    """The places of a training pass for each group with samples; the order is a function of (seed, epoch) alone.

    `within`: see Pass.places. `keeps_order`: samples stay in the order of the dataset.
    """
    found = []
    for group in plan.groups:
        number = torch.tensor([group], device=device)
        everyone = torch.arange(plan.sizes[group], device=device)
        order = everyone
        if not keeps_order:
            order = random.permutations(seed, "order of samples", number, epoch, plan.sizes[group])[0]
        # Per sample, not per place: dropout does not depend on the number of lanes.
        noise = random.random_words(seed, "noise of samples", everyone, epoch, group)[0]
        found.append(plan.places(group, lanes, order, noise, within))
    return found


def in_order(plan: Pass, lanes: range, device: torch.device, *, within: bool = False) -> list[Places]:
    """The places of a validation pass for each group with samples, in the order of the dataset."""
    found = []
    for group in plan.groups:
        everyone = torch.arange(plan.sizes[group], device=device)
        # No noise: validation has no dropout.
        found.append(plan.places(group, lanes, everyone, torch.zeros_like(everyone), within))
    return found


def read_ahead(dataset: Streamed, epoch: int, places: list[list[Places]], first: int) -> list[list[Places]]:
    """Let a dataset read its batches from number `first` on; returns places whose index is a position in its window.

    `places`: of each cohort of this rank, with one group each.
    """
    dataset.begin(epoch, torch.cat([place.index for (place,) in places], 1)[first:].cpu())
    found, start = [], 0
    for (place,) in places:
        stop = start + place.index.shape[1]
        position = torch.arange(start, stop, device=place.index.device).expand_as(place.index)
        found.append([replace(place, index=position)])
        start = stop
    return found

"""Fills batches from a replay buffer: sequences and random numbers, all functions of the update's number.

L: lanes, H: horizon, B: samples of a cohort, b: of a lane, A: action size, N: value functions, F: features.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2 import noise
from lockstep.algorithms.tdmpc2.experience.columns import TASK
from lockstep.algorithms.tdmpc2.experience.streaming import StreamedSequences
from lockstep.algorithms.tdmpc2.model.images import FARTHEST, shifted
from lockstep.algorithms.tdmpc2.model.networks import Sizes, Spaces
from lockstep.algorithms.tdmpc2.training.losses import Batch
from lockstep.compute import random
from lockstep.rl.sequence_replay import SequenceReplay


class Sampler:
    """Fills batches from the replay buffers of some lanes."""

    def __init__(
        self,
        memory: SequenceReplay | StreamedSequences,
        lanes: range,
        samples: int,
        sizes: Sizes,
        spaces: Spaces,
        seed: int,
    ) -> None:
        """`samples`: b, the samples of each lane."""
        self._memory, self._samples = memory, samples
        self._sizes, self._spaces, self._seed = sizes, spaces, seed
        self._lane = torch.arange(lanes.start, lanes.stop, device=memory.device)

    def empty(self, share: float, first: int) -> Batch:
        """An empty batch; `share` and `first` as in `Batch`."""
        horizon, count, device = self._memory.length, len(self._lane) * self._samples, self._memory.device

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        action, hidden, values = self._spaces.action, self._sizes.hidden, self._sizes.values
        # None without dropout, so that nothing is drawn or multiplied.
        drops = self._sizes.dropout > 0
        return Batch(
            observation=zeros(
                *(horizon + 1, count, *self._spaces.observation_shape),
                dtype=torch.float32 if self._spaces.image is None else torch.uint8,
            ),
            action=zeros(horizon, count, action),
            reward=zeros(horizon, count),
            terminated=zeros(horizon, count),
            task=zeros(count, dtype=torch.int64) if self._spaces.tasks > 1 else None,
            target_noise=zeros(horizon, count, action),
            policy_noise=zeros(horizon + 1, count, action),
            target_pair=zeros(2, dtype=torch.int64),
            policy_pair=zeros(2, dtype=torch.int64),
            values_kept=zeros(values, horizon * count, hidden) if drops else None,
            policy_kept=zeros(2, (horizon + 1) * count, hidden) if drops else None,
            latents=zeros(horizon + 1, count, self._sizes.latent),
            share=share,
            first=first,
        )

    def fill(self, batch: Batch, update: Tensor) -> None:
        """Fill the batch of an update, in place."""
        # Streamed sequences are in the batch already: see `stream`.
        if isinstance(self._memory, SequenceReplay):
            self._fill_sequences(batch, update, self._memory)
        self._fill_noise(batch, update)
        self._fill_dropout(batch, update)

    def stream(self, batches: Sequence[Batch], update: int) -> None:
        """Copy sequences from the host into the batches of these updates, if episodes are kept there.

        Not a part of a recorded step, which cannot contain what the host does.
        """
        if isinstance(self._memory, StreamedSequences):
            for number, batch in enumerate(batches):
                self._memory.copy_to(_read_from_episodes(batch), update + number)

    def _fill_sequences(self, batch: Batch, update: Tensor, memory: SequenceReplay) -> None:
        horizon = memory.length
        place = memory.draw_sequences(update, self._samples)
        if self._spaces.image is None:
            batch.observation[:horizon].copy_(memory.read("observation", place))
            # Not the next row, which may belong to another episode.
            batch.observation[horizon].copy_(memory.read("following", place[-1]))
        else:
            self._fill_images(batch, place, update, memory)
        for name in ("action", "reward", "terminated"):
            getattr(batch, name).copy_(memory.read(name, place))
        if batch.task is not None:
            # The task of the first step: a sequence lies within one episode.
            batch.task.copy_(memory.read(TASK, place[0]))

    def _fill_images(self, batch: Batch, place: Tensor, update: Tensor, memory: SequenceReplay) -> None:
        """Stacks of frames, each shifted by up to FARTHEST pixels, so that the encoder cannot rely on exact places."""
        rows = len(place) + 1
        stacks = memory.stacked("observation", place, self._spaces.frames)
        last = torch.cat((stacks[-1, :, 1:], memory.read("following", place[-1]).unsqueeze(1)), 1)
        images = torch.cat((stacks, last.unsqueeze(0))).flatten(2, 3).flatten(0, 1)
        number = torch.arange(rows * self._samples, device=place.device)
        words = random.random_words(self._seed, "shift", self._lane[:, None], update, number)[:2]
        # Multiply and shift, as for positions: whole numbers from -FARTHEST to FARTHEST, equal on every device.
        moves = (self._by_sample(((word * (2 * FARTHEST + 1)) >> 32) - FARTHEST, rows).flatten() for word in words)
        batch.observation.copy_(shifted(images, *moves).view_as(batch.observation))

    def _fill_noise(self, batch: Batch, update: Tensor) -> None:
        horizon, action = self._memory.length, self._spaces.action
        count = (2 * horizon + 1) * self._samples * action
        # Drawn per lane, so that a lane's numbers do not depend on the other lanes of its cohort.
        numbers = noise.normals(self._seed, "update", self._lane, update, count)
        target, policy = self._by_sample(numbers, 2 * horizon + 1).split((horizon, horizon + 1))
        batch.target_noise.copy_(target)
        batch.policy_noise.copy_(policy)
        # By update alone: every lane, on whichever rank, uses the same two value functions.
        batch.target_pair.copy_(noise.pair(self._seed, "target-judges", update, self._sizes.values))
        batch.policy_pair.copy_(noise.pair(self._seed, "policy-judges", update, self._sizes.values))

    def _fill_dropout(self, batch: Batch, update: Tensor) -> None:
        if batch.values_kept is None or batch.policy_kept is None:
            return
        horizon, values, hidden = self._memory.length, self._sizes.values, self._sizes.hidden
        # Rows of factors for the world model's loss (N x H) and the policy's (2 x (H + 1)), from one draw.
        parts = (values * horizon, 2 * (horizon + 1))
        count = sum(parts) * self._samples * hidden
        factors = noise.kept(self._seed, "dropout", self._lane, update, count, self._sizes.dropout)
        of_values, of_policy = self._by_sample(factors, sum(parts)).split(parts)
        batch.values_kept.copy_(of_values.unflatten(0, (values, horizon)).flatten(1, 2))
        batch.policy_kept.copy_(of_policy.unflatten(0, (2, horizon + 1)).flatten(1, 2))

    def _by_sample(self, numbers: Tensor, rows: int) -> Tensor:
        """(L, rows x b x ...) numbers drawn per lane -> (rows, L x b, ...)."""
        return numbers.view(len(self._lane), rows, self._samples, -1).transpose(0, 1).flatten(1, 2)


def _read_from_episodes(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch that come from episodes and are not drawn."""
    names = ("observation", "action", "reward", "terminated")
    read: dict[str, Tensor] = {name: getattr(batch, name) for name in names}
    return read if batch.task is None else {**read, TASK: batch.task}

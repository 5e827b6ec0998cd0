"""Samples, gathered on the device from the table of deliveries. B: samples, L: balls of padded history."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.workloads.cricket.columns import OUTCOMES
from lockstep.workloads.cricket.features.table import DeliveryTable


@dataclass(frozen=True)
class Samples:
    """The network's input. Histories are right-aligned: the last ball is at L - 1, padding comes first."""

    state: Tensor
    """(B, STATE_WIDTH)."""
    career: Tensor
    """(B, CAREER_WIDTH)."""
    ids: Tensor
    """(B, 6) ENTITIES."""
    roles: Tensor
    """(B, 3)."""
    innings: Tensor
    """(B,)."""
    phase: Tensor
    """(B,) index into PHASES."""
    people: Tensor
    """(B, 3) bowler, striker and non-striker as indices that also distinguish players unknown to training."""
    present: Tensor
    """(B, L) whether there is a ball at all."""
    ball: Tensor
    """(B, L, 18) BALL_FEATURES."""
    ball_ids: Tensor
    """(B, L, 3) ids of bowler, batter and non-striker."""
    ball_people: Tensor
    """(B, L, 3) the same people as indices that also distinguish players unknown to training."""
    over: Tensor
    """(B, L) the over of each ball."""
    ball_in_over: Tensor
    """(B, L) deliveries of the over before each ball."""

    def __len__(self) -> int:
        return len(self.state)

    def to(self, device: torch.device | str) -> "Samples":
        """The same samples on another device."""
        return Samples(**{name: value.to(device) for name, value in vars(self).items()})


class Deliveries:
    """A table as a dataset: samples in groups by the length of their history, each padded to its group's longest."""

    classes = len(OUTCOMES)

    def __init__(self, table: DeliveryTable, lengths: tuple[int, ...], balls: bool = True) -> None:
        """`lengths`: history length of each group, ascending; `balls`: whether histories are read at all."""
        self._table, self._phase = table, table.phase()
        history = table.sample - table.first[table.sample]
        # History i of an innings has i balls, so the longest group must fit the last ball of the longest innings.
        assert not len(history) or int(history.max()) <= lengths[-1], "a history is longer than the longest group"
        self.lengths = lengths if balls else (0,)
        group = torch.bucketize(history, torch.tensor(lengths, device=table.device))
        self._rows = [table.sample[group == number] for number in range(len(lengths))] if balls else [table.sample]
        self.sizes = tuple(len(rows) for rows in self._rows)

    def rows(self, group: int, index: Tensor) -> Tensor:
        """(B,) table rows of samples, given by their index in the group."""
        return self._rows[group][index]

    def labels(self, group: int, index: Tensor) -> Tensor:
        """(B,) outcomes."""
        return self._table.label[self.rows(group, index)]

    def inputs(self, group: int, index: Tensor) -> Samples:
        """Samples, given by their index in the group."""
        return gather(self._table, self._phase, self.rows(group, index), self.lengths[group])


def grouped(table: DeliveryTable, groups: int, balls: bool) -> Deliveries:
    """A table as a dataset with `groups` lengths of history; `balls`: whether histories are read at all."""
    return Deliveries(table, group_lengths(table.longest, groups), balls)


def group_lengths(longest: int, groups: int) -> tuple[int, ...]:
    """Evenly spaced history lengths; the last fits the last sample of the longest innings."""
    most = max(longest - 1, groups)
    # Negated floor division rounds up.
    return tuple(-(-most * number // groups) for number in range(1, groups + 1))


def gather(table: DeliveryTable, phase: Tensor, row: Tensor, length: int) -> Samples:
    """The samples at these rows, each with up to `length` earlier deliveries of its innings."""
    back = row[:, None] + torch.arange(-length, 0, device=row.device)
    present = back >= table.first[row][:, None]
    # Padding needs a valid row to read; `present` masks what is read there.
    back = back.clamp(min=0)
    return Samples(
        state=table.state[row],
        career=table.career[row].float(),
        ids=table.ids[row],
        roles=table.roles[row],
        innings=table.innings[row],
        phase=phase[row],
        people=table.people[row],
        present=present,
        ball=table.ball[back].float(),
        ball_ids=table.ball_ids[back],
        ball_people=table.people[back],
        over=table.over[back],
        ball_in_over=table.ball_in_over[back],
    )

"""The experience of a rank in one update. T: time, E: environments of the rank."""

from dataclasses import dataclass

import torch
from torch import Tensor

Step = int | Tensor
"""A row of the rollout; for a recorded graph a tensor (1,), which it reads anew each time."""


class Rollout:
    """Fixed storage for T steps of E environments, written step by step in place.

    `observation`: an example for shape and type, (E, ...). `action`: storage for all steps, (T, E, ...). For recurrent
    networks it also holds the state at the start of each sequence. `masked`: some steps are not valid.
    """

    def __init__(
        self,
        steps: int,
        count: int,
        observation: Tensor,
        action: Tensor,
        memory: tuple[Tensor, ...] = (),
        sequence_length: int = 1,
        masked: bool = False,
    ) -> None:
        device = observation.device

        def numbers(dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros((steps, count), dtype=dtype, device=device)

        self.observation = torch.zeros((steps, *observation.shape), dtype=observation.dtype, device=device)
        self.action = action
        self.log_probability = numbers()
        self.value = numbers()
        self.reward = numbers()
        self.ended = numbers(torch.bool)
        self.valid = numbers(torch.bool) if masked else None
        self.bootstrap = numbers()
        self.info: dict[str, Tensor] = {}
        self.advantage = numbers()
        self.target = numbers()
        # Learning replays each sequence from the recurrent state that acting had at its start.
        starts = steps // sequence_length
        self.memory = tuple(part.new_zeros((starts, *part.shape)) for part in memory)

    def write(self, step: Step, **columns: Tensor) -> None:
        """Store one row for each named column."""
        for name, row in columns.items():
            _write_row(getattr(self, name), step, row)

    def write_info(self, step: Step, info: dict[str, Tensor]) -> None:
        """Store what the environment reports about episodes that end at this step."""
        for name, row in info.items():
            if name not in self.info:
                self.info[name] = torch.zeros_like(self.ended, dtype=row.dtype)
            _write_row(self.info[name], step, row)

    def write_memory(self, sequence: int, memory: tuple[Tensor, ...]) -> None:
        """Store the recurrent state at the start of a sequence."""
        for column, part in zip(self.memory, memory, strict=True):
            column[sequence].copy_(part)

    def flat(self) -> dict[str, Tensor]:
        """The columns that learning reads, with T and E as one axis; views, not copies."""
        names = ("observation", "action", "log_probability", "value", "ended", "advantage", "target")
        columns = {name: getattr(self, name).flatten(0, 1) for name in names}
        return columns if self.valid is None else {**columns, "valid": self.valid.flatten(0, 1)}


def _write_row(column: Tensor, step: Step, row: Tensor) -> None:
    if isinstance(step, int):
        # Half the time of an index kernel, for rows as short as those of a few environments.
        column[step].copy_(row)
    else:
        column.index_copy_(0, step, row.unsqueeze(0))


@dataclass
class Episodes:
    """The episodes that ended in a rollout, ordered by environment, then by time."""

    returns: Tensor
    lengths: Tensor
    info: dict[str, Tensor]
    environment: Tensor
    """In which environment each was played, from 0 on."""

    def by_group(self, groups: int, width: int) -> "list[Episodes]":
        """The episodes of each of several groups of `width` environments."""
        if groups == 1:
            return [self]
        # Ordered by environment, so that groups are contiguous.
        counts = torch.bincount(self.environment // width, minlength=groups).tolist()
        columns = [part.split(counts) for part in (self.returns, self.lengths, self.environment)]
        info = {name: values.split(counts) for name, values in self.info.items()}
        return [
            Episodes(returns, lengths, {name: part[number] for name, part in info.items()}, environment)
            for number, (returns, lengths, environment) in enumerate(zip(*columns, strict=True))
        ]


class EpisodeLedger:
    """Keeps track of returns and lengths of episodes that span several rollouts."""

    def __init__(self, count: int, device: torch.device) -> None:
        # Of the unfinished episodes, (E,); float64 so that long episodes lose no small rewards.
        self.open_return = torch.zeros(count, dtype=torch.float64, device=device)
        self.open_length = torch.zeros(count, dtype=torch.int64, device=device)

    def close(self, reward: Tensor, ended: Tensor, info: dict[str, Tensor], valid: Tensor | None = None) -> Episodes:
        """The episodes that ended in a rollout (T, E); unfinished ones are carried over to the next.

        `valid` (T, E): False for steps that do not count.
        """
        # `nonzero` synchronizes with the GPU once; a loop would for each episode. On the transposed flags it lists the
        # ends by environment, then by time.
        earned = self.open_return[:, None] + reward.t().to(torch.float64).cumsum(1)
        steps = torch.arange(1, reward.shape[0] + 1, device=reward.device)
        lasted = self.open_length[:, None] + (steps if valid is None else valid.t().cumsum(1))
        if valid is not None:
            ended = ended & valid
        environment, time = ended.t().nonzero(as_tuple=True)
        returns, lengths = earned[environment, time], lasted[environment, time]
        # The sums run through the whole rollout: an episode's part is the difference to the previous end.
        follows = torch.zeros_like(environment, dtype=torch.bool)
        follows[1:] = environment[1:] == environment[:-1]
        own_returns = returns - torch.where(follows, returns.roll(1), 0.0)
        own_lengths = lengths - torch.where(follows, lengths.roll(1), 0)
        self._carry(earned[:, -1], lasted[:, -1], environment, returns, lengths)
        chosen = {name: rows.t()[environment, time] for name, rows in info.items()}
        return Episodes(own_returns, own_lengths, chosen, environment)

    def _carry(self, earned: Tensor, lasted: Tensor, environment: Tensor, returns: Tensor, lengths: Tensor) -> None:
        # What remains after each environment's last end belongs to its unfinished episode.
        closed_return, closed_length = torch.zeros_like(earned), torch.zeros_like(lasted)
        last = torch.ones_like(environment, dtype=torch.bool)
        last[:-1] = environment[:-1] != environment[1:]
        closed_return[environment[last]] = returns[last]
        closed_length[environment[last]] = lengths[last]
        self.open_return.copy_(earned - closed_return)
        self.open_length.copy_(lasted - closed_length)

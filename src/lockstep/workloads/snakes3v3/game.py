"""Snakes of several players on many boards at once. E: boards, R: some of them, P: players."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lockstep.compute.kernels import kernels_fit
from lockstep.workloads.snakes3v3 import beans, start
from lockstep.workloads.snakes3v3.boards import Boards
from lockstep.workloads.snakes3v3.chance import start_words
from lockstep.workloads.snakes3v3.dense import DenseStep
from lockstep.workloads.snakes3v3.rules import GameRules
from lockstep.workloads.snakes3v3.sparse import SparseStep

if TYPE_CHECKING:
    from lockstep.workloads.snakes3v3.fused import FusedStep


@dataclass
class GameStep:
    """What one step returns. A board whose episode ended means nothing after a further step, until `restart`."""

    reward: Tensor
    """(E, P) float32: 1 for a bean, 3 minus the length it had for a death, else 0."""
    dead: Tensor
    """(E, P) bool: died in this step; is back already, unless there was no room."""
    ended: Tensor
    """(E,) bool: the episode is over."""


def _fused(boards: Boards, seed: int) -> "FusedStep | None":
    if not kernels_fit(boards.device):
        return None
    from lockstep.workloads.snakes3v3.fused import FusedStep

    return FusedStep(boards, seed)


class SnakesGame(Boards):
    """E boards and the rules by which they go on."""

    def __init__(
        self, rules: GameRules, index: Tensor, seed: int, device: torch.device, sparse: bool | None = None
    ) -> None:
        """`index` (E,): each board's number over the whole run. Call `reset` or `load` before the first step.

        `sparse`: look after the dead, the beans and new games only where there are any, as a CPU can; otherwise all
        boards take part in all operations. Default: sparse on a CPU, and on a GPU kernels of our own where they can
        be built. The results are the same.
        """
        super().__init__(rules, index, device)
        self.seed = seed
        self._sparse = device.type == "cpu" if sparse is None else sparse
        self._fused = _fused(self, seed) if sparse is None else None
        self._moves = self._fused or (SparseStep(self, seed) if self._sparse else DenseStep(self, seed))

    def reset(self) -> None:
        """Start every episode anew. The clocks go on."""
        self.restart(torch.ones(self.count, dtype=torch.bool, device=self.device))

    def restart(self, mask: Tensor) -> None:
        """Start the episodes of the boards in the mask (E,) anew."""
        if self._fused is not None:
            self._fused.restart(mask)
            return
        if self._sparse:
            rows = mask.nonzero().squeeze(1)
            if len(rows) == 0:
                return
            for name, value in self._starts(self.index[rows], self.episode[rows]).items():
                self.tensors()[name].index_copy_(0, rows, value)
        else:
            for name, value in self._starts(self.index, self.episode).items():
                whole = self.tensors()[name]
                whole.copy_(torch.where(mask.view(-1, *[1] * (whole.dim() - 1)), value, whole))
        self.episode.add_(mask)

    def step(self, action: Tensor) -> GameStep:
        """Advance every board by the actions (E, P) int64 of all players."""
        return GameStep(*self._moves.step(action))

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up a state from `state`."""
        super().load(state)
        self._moves.forget()

    def _starts(self, index: Tensor, episode: Tensor) -> dict[str, Tensor]:
        """New games: those parts of the state that a start sets, for the boards of that index (R,) and episode (R,)."""
        rules = self.rules
        words = start_words(self.seed, index, episode)
        grid = torch.zeros(len(index), self.stride, dtype=torch.uint8, device=self.device)
        bodies, free = start.place(grid, self.bits, words, rules)
        head, second, tail, direction = bodies.unbind(2)
        ahead, left = torch.zeros_like(grid), torch.zeros_like(grid)
        ahead.scatter_(1, torch.cat((tail, second), dim=1), torch.cat((second, head), dim=1).to(torch.uint8))
        # As if the heads had left these cells in the steps at times -1 and 0.
        left.scatter_(1, tail, 255)
        missing = torch.full_like(index, rules.beans)
        fallen = beans.sow(grid, free, self.bits, missing, list(words[rules.players :]), rules)
        return {
            "grid": grid[:, : rules.cells],
            "trail": torch.stack((ahead, left), dim=2)[:, : rules.cells],
            "head": head,
            "tail": tail.to(torch.uint8),
            "direction": direction.to(torch.uint8),
            "length": torch.full_like(direction, rules.start_length).to(torch.uint8),
            "beans": fallen,
            "time": torch.ones_like(index),
        }

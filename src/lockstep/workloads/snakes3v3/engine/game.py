"""The game: many boards that are reset and stepped together. E: boards, R: a subset of them, P: players."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.compute.kernels import kernels_usable
from lockstep.workloads.snakes3v3.engine import beans, start
from lockstep.workloads.snakes3v3.engine.boards import Boards
from lockstep.workloads.snakes3v3.engine.random_draws import start_words
from lockstep.workloads.snakes3v3.engine.rules import GameRules
from lockstep.workloads.snakes3v3.engine.step import DenseStep, FusedStep
from lockstep.workloads.snakes3v3.engine.step_numpy import SparseStep


@dataclass
class GameStep:
    """The result of one step. When an episode has ended, its board is invalid until `restart`."""

    reward: Tensor
    """(E, P) float32: 1 for a bean; 3 minus the length before the step for a death; else 0."""
    dead: Tensor
    """(E, P) bool: died in this step. The snake has already respawned, unless there was no room."""
    ended: Tensor
    """(E,) bool: the episode is over."""


class SnakesGame(Boards):
    """E boards that can be reset and stepped."""

    def __init__(
        self, rules: GameRules, index: Tensor, seed: int, device: torch.device, sparse: bool | None = None
    ) -> None:
        """`index` (E,): each board's number over the whole run. Call `reset` or `load` before the first step.

        `sparse`: handle deaths, beans and restarts only on the boards that have any, which suits a CPU; otherwise every
        operation covers all boards. Default: sparse on a CPU; on a GPU, Triton kernels if they can be built. All
        variants give the same results, bit for bit.
        """
        super().__init__(rules, index, device)
        self.seed = seed
        self._sparse = device.type == "cpu" if sparse is None else sparse
        self._fused = FusedStep(self, seed) if sparse is None and kernels_usable(device) else None
        self._moves = self._fused or (SparseStep(self, seed) if self._sparse else DenseStep(self, seed))

    def reset(self) -> None:
        """Restart every episode. The random counters (clock and episode) are not reset."""
        # They count over the whole run, so that every episode starts differently.
        self.restart(torch.ones(self.count, dtype=torch.bool, device=self.device))

    def restart(self, mask: Tensor) -> None:
        """Restart the episodes of the boards in the mask (E,)."""
        if self._fused is not None:
            self._fused.restart(mask)
            return
        if self._sparse:
            # nonzero would wait for a GPU; on a CPU that costs nothing.
            rows = mask.nonzero().squeeze(1)
            if len(rows) == 0:
                return
            for name, value in self._starts(self.index[rows], self.episode[rows]).items():
                self.tensors()[name].index_copy_(0, rows, value)
        else:
            # New games for all boards, of which the mask selects some: no wait for the device.
            for name, value in self._starts(self.index, self.episode).items():
                whole = self.tensors()[name]
                whole.copy_(torch.where(mask.view(-1, *[1] * (whole.dim() - 1)), value, whole))
        self.episode.add_(mask)

    def step(self, action: Tensor) -> GameStep:
        """Advance every board by the actions (E, P) int64 of all players."""
        return GameStep(*self._moves.step(action))

    def load(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state` returned."""
        super().load(state)
        self._moves.discard_drawn_words()

    def _starts(self, index: Tensor, episode: Tensor) -> dict[str, Tensor]:
        """Initial states for boards with this index (R,) and episode (R,); the counters are not part of them."""
        rules = self.rules
        words = start_words(self.seed, index, episode)
        grid = torch.zeros(len(index), self.stride, dtype=torch.uint8, device=self.device)
        bodies, free = start.place_snakes(grid, self.bits, words, rules)
        head, second, tail, direction = bodies.unbind(2)
        ahead, left = torch.zeros_like(grid), torch.zeros_like(grid)
        ahead.scatter_(1, torch.cat((tail, second), dim=1), torch.cat((second, head), dim=1).to(torch.uint8))
        # As if the heads had left these cells at times -1 (255 modulo 256) and 0.
        left.scatter_(1, tail, 255)
        # One word for each snake, the following ones for the beans.
        missing = torch.full_like(index, rules.beans)
        bean_cells = beans.place_beans(grid, free, self.bits, missing, list(words[rules.players :]), rules)
        return {
            "grid": grid[:, : rules.cells],
            "trail": torch.stack((ahead, left), dim=2)[:, : rules.cells],
            "head": head,
            "tail": tail.to(torch.uint8),
            "direction": direction.to(torch.uint8),
            "length": torch.full_like(direction, rules.start_length).to(torch.uint8),
            "beans": bean_cells,
            "time": torch.ones_like(index),
        }

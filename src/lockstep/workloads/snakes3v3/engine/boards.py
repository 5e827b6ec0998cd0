"""The state of many boards as plain tensors.

E: boards, P: players, B: beans, C: cells, S: bytes of a board. A cell is its flat index row * width + column; cell C is
"nowhere", a dummy target for masked reads and writes. Tensors of the players have the layout (P, E), which makes
operations over few players and many boards fast.
"""

import torch
from torch import Tensor

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.engine import torus
from lockstep.workloads.snakes3v3.engine.bits import RowBits
from lockstep.workloads.snakes3v3.engine.rules import GameRules, snake_bit

_ALIGNMENT = 8
"""Boards start at multiples of 8 bytes."""


class Boards:
    """E boards. The state stays in the same tensors throughout, so that a step can be captured as a CUDA graph."""

    def __init__(self, rules: GameRules, index: Tensor, device: torch.device) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.rules, self.device, self.count = rules, device, len(index)
        self.index = index.to(device, torch.int64)
        """(E,) each board's number over the whole run."""
        self.neighbours = torus.neighbours(rules, device)
        """(C, 4) the cells above, below, to the left and to the right of each cell."""
        self.bits = RowBits(rules, device)
        # Masked-out writes need a target: the bytes after the last cell, and the row after the last player. There
        # are at least two such bytes: "nowhere", and the cell around it (see torus.around).
        self.stride = -(-(rules.cells + 2) // _ALIGNMENT) * _ALIGNMENT
        self.grid = zeros(self.count, self.stride, dtype=torch.uint8)
        """(E, S) what each cell holds as a bit: 0 nothing, 1 a bean, 2 << p the snake of player p."""
        self.trail = zeros(self.count, self.stride, 2, dtype=torch.uint8)
        """(E, S, 2) for each cell of a body: the next cell towards the head, and the time, modulo 256, at which the
        head left for that cell. The cell is `time - left` cells behind the head."""
        self.head = zeros(rules.players + 1, self.count)
        """(P+1, E) cells; for a snake that found no room to respawn, where it died."""
        self.tail = zeros(rules.players + 1, self.count, dtype=torch.uint8)
        """(P+1, E) cells, as bytes."""
        self.direction = zeros(rules.players + 1, self.count, dtype=torch.uint8)
        self.length = zeros(rules.players + 1, self.count, dtype=torch.uint8)
        """(P+1, E) cells of the snake; 0 if it found no room to respawn."""
        self.bean_cells = zeros(self.count, rules.beans)
        """(E, B) oldest first; C after the last."""
        self.time = zeros(self.count)
        """(E,) time within the episode: 1 before its first step."""
        self.clock, self.episode = zeros(self.count), zeros(self.count)
        """(E,) steps and episodes since the start of the run: the counters of the random numbers."""
        # Only powers of two occur as an index, because a cell has at most one bit set.
        self._code_of = zeros(snake_bit(rules.players), dtype=torch.uint8)
        for code in range(rules.players + 1):
            self._code_of[1 << code] = code + 1

    @property
    def board(self) -> Tensor:
        """(E, H, W) uint8: 0 empty, 1 bean, 2 + p snake of player p."""
        cells = self.grid[:, : self.rules.cells].reshape(self.count, self.rules.height, self.rules.width)
        return self.codes(cells)

    def codes(self, bits: Tensor) -> Tensor:
        """Translate cell bits to codes, uint8: 0 empty, 1 bean, 2 + p snake of player p."""
        return self._code_of.take(bits.long())

    @property
    def head_cells(self) -> Tensor:
        """(E, P) int64: the cell of each head."""
        return self.head[:-1].T

    @property
    def heads(self) -> Tensor:
        """(E, P, 2) int64: row and column of each head."""
        return self._row_and_column(self.head_cells)

    @property
    def beans(self) -> Tensor:
        """(E, B, 2) int64: row and column of each bean in list order; -1 after the last."""
        present = (self.bean_cells < self.rules.cells)[:, :, None]
        return torch.where(present, self._row_and_column(self.bean_cells), -1)

    @property
    def bean_count(self) -> Tensor:
        """(E,) int64."""
        return (self.bean_cells < self.rules.cells).sum(1)

    @property
    def lengths(self) -> Tensor:
        """(E, P) int64."""
        return self.length[:-1].T.long()

    @property
    def directions(self) -> Tensor:
        """(E, P) int64: 0 up, 1 down, 2 left, 3 right."""
        return self.direction[:-1].T.long()

    @property
    def score(self) -> Tensor:
        """(E, P) int64: length minus start_length."""
        return self.lengths - self.rules.start_length

    def bodies(self, board: int) -> list[list[int]]:
        """List the cells of every snake of one board, head first."""
        # The trail leads from each cell towards the head, so bodies are read from the tail and reversed.
        ahead, tails = self.trail[board, :, 0].tolist(), self.tail[:-1, board].tolist()
        snakes = []
        for cell, length in zip(tails, self.length[:-1, board].tolist(), strict=True):
            snake = [cell][:length]
            while len(snake) < length:
                snake.append(ahead[snake[-1]])
            snakes.append(snake[::-1])
        return snakes

    def state(self) -> dict[str, Tensor]:
        """Copies of everything needed to resume, each with E as its first axis."""
        # Contiguous, because the players' tensors are transposed views.
        return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in self.tensors().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state` returned."""
        for name, tensor in self.tensors().items():
            if state[name].shape != tensor.shape:
                found, expected = tuple(state[name].shape), tuple(tensor.shape)
                raise UserError(f"snakes3v3 state: {name} has shape {found}, these rules and boards need {expected}")
            tensor.copy_(state[name])

    def tensors(self) -> dict[str, Tensor]:
        """The state itself, as views with E as their first axis and without the dummy cells and players."""
        return {
            "grid": self.grid[:, : self.rules.cells],
            "trail": self.trail[:, : self.rules.cells],
            "head": self.head[:-1].T,
            "tail": self.tail[:-1].T,
            "direction": self.direction[:-1].T,
            "length": self.length[:-1].T,
            "beans": self.bean_cells,
            "time": self.time,
            "clock": self.clock,
            "episode": self.episode,
        }

    def _row_and_column(self, cells: Tensor) -> Tensor:
        return torch.stack((cells // self.rules.width, cells % self.rules.width), dim=-1)

"""A step of the game as one GPU kernel, and new games as another; the results are those of `dense`, bit for bit."""

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.snakes3v3 import fused_triton, torus
from lockstep.workloads.snakes3v3.boards import Boards
from lockstep.workloads.snakes3v3.chance import START, STEP

_WARPS = 1


class FusedStep:
    """The moves, deaths, returns and beans of a step, for every board."""

    def __init__(self, boards: Boards, seed: int) -> None:
        rules, device = boards.rules, boards.device
        self._boards = boards
        self._keys = torch.tensor([*random.key_of(seed), random.label_of(STEP), random.label_of(START)], device=device)
        self._tables = (
            boards.neighbours,
            torus.around(rules, device),
            torus.shapes(device),
            torus.newborn(rules, device),
        )
        self._straights = torus.straights(rules, device)
        self._sizes = {
            "P": rules.players,
            "C": rules.cells,
            "H": rules.height,
            "W": rules.width,
            "B": rules.beans,
            "S": boards.stride,
            "WIDE": 1 << (boards.stride - 1).bit_length(),
        }

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance all boards by the actions (E, P); returns reward, died (E, P) and ended (E,)."""
        boards, count, players = self._boards, self._boards.count, self._boards.rules.players
        reward = torch.empty(count, players, device=boards.device)
        died = torch.empty(count, players, dtype=torch.bool, device=boards.device)
        ended = torch.empty(count, dtype=torch.bool, device=boards.device)
        fused_triton.step_kernel[(count,)](
            *self._state(),
            boards.clock,
            boards.index,
            action.contiguous(),
            reward,
            died.view(torch.uint8),
            ended.view(torch.uint8),
            *self._tables,
            self._keys,
            count,
            boards.rules.max_steps,
            **self._sizes,
            num_warps=_WARPS,
        )
        return reward, died, ended

    def restart(self, mask: Tensor) -> None:
        """Start the episodes of the boards in the mask (E,) anew."""
        boards = self._boards
        fused_triton.restart_kernel[(boards.count,)](
            *self._state(),
            boards.episode,
            boards.index,
            mask.contiguous().view(torch.uint8),
            self._straights,
            self._keys,
            boards.count,
            **self._sizes,
            num_warps=_WARPS,
        )

    def forget(self) -> None:
        """Nothing is known ahead."""

    def _state(self) -> tuple[Tensor, ...]:
        b = self._boards
        return b.grid, b.trail, b.head, b.tail, b.direction, b.length, b.bean_cells, b.time

"""Beans: which are left, and where new ones fall. E: boards, B: beans of a full list, C: cells, S: bytes of a board."""

import torch
from torch import Tensor

from lockstep.workloads.snakes3v3.chance import pick
from lockstep.workloads.snakes3v3.rules import BEAN_BIT


def sow(grid: Tensor, missing: Tensor, words: list[Tensor], cells: int, most: int) -> Tensor:
    """Put missing (E,) beans, up to `most`, on free cells of the grids (E, S); returns their cells (E, most), or C.

    The words (E,) are used in turn, over and over: after two uses of one, cells differ in chance by some thousandths,
    which is for the fourth and fifth bean eaten in one step.
    """
    chosen = []
    for number in range(most):
        so_far = (grid[:, :cells] == 0).cumsum(1, dtype=torch.int16)
        nth, words[number % len(words)] = pick(words[number % len(words)], so_far[:, -1].long())
        cell = torch.searchsorted(so_far, (nth + 1).to(torch.int16)[:, None])
        falls = (missing > number)[:, None] & (so_far[:, -1:] > 0)
        cell = torch.where(falls, cell, cells)
        grid.scatter_(1, cell, falls.to(torch.uint8))
        chosen.append(cell)
    return torch.cat(chosen, dim=1)


def survivors(grid: Tensor, beans: Tensor) -> Tensor:
    """Which of the beans (E, B) still lie on their grid (E, S): (E, B) bool."""
    return grid.gather(1, beans) == BEAN_BIT


def joined(beans: Tensor, left: Tensor, new: Tensor) -> Tensor:
    """The list of the beans (E, B) that are left, in their order, and then the new ones (E, B)."""
    kept, gone = left.cumsum(1), (~left).cumsum(1)
    place = torch.where(left, kept, kept[:, -1:] + gone) - 1
    return torch.empty_like(beans).scatter_(1, place, torch.where(left, beans, new.gather(1, (gone - 1).clamp(min=0))))

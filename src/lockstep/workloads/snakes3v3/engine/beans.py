"""Beans: which remain after a step, and where new ones appear.

E: boards, B: maximum number of beans, C: cells, H: rows, S: bytes of a board.
"""

import torch
from torch import Tensor

from lockstep.workloads.snakes3v3.engine.bits import RowBits
from lockstep.workloads.snakes3v3.engine.random_draws import pick
from lockstep.workloads.snakes3v3.engine.rules import BEAN_BIT, GameRules


def place_beans(
    grid: Tensor, free: Tensor, bits: RowBits, missing: Tensor, words: list[Tensor], rules: GameRules
) -> Tensor:
    """Put `missing` (E,) beans on free (E, H) cells of the grids (E, S); returns their cells (E, B), C for none.

    The random words (E,) are used in turn, and each use leaves a remainder for the next. At the third use of a word the
    probabilities of cells differ by some thousandths; that concerns only the fourth and fifth bean eaten in one step.
    """
    chosen = []
    # Always rules.beans iterations, with masks, because a captured CUDA graph cannot depend on how many are missing.
    for number in range(rules.beans):
        chunks = bits.chunks(free)
        counted = bits.counted(chunks)
        nth, words[number % len(words)] = pick(words[number % len(words)], counted[:, -1])
        # Boards that need no more beans, or have no free cell, write to the dummy cell C.
        placed = (missing > number)[:, None] & (counted[:, -1:] > 0)
        cell = torch.where(placed, bits.nth(chunks, counted, nth[:, None]), rules.cells)
        grid.scatter_(1, cell, placed.to(torch.uint8))
        free = bits.without(free, cell)
        chosen.append(cell)
    return torch.cat(chosen, dim=1)


def remaining(grid: Tensor, beans: Tensor) -> Tensor:
    """Which of the beans (E, B) are still on their grids (E, S): (E, B) bool."""
    return grid.gather(1, beans) == BEAN_BIT


def merge(beans: Tensor, left: Tensor, new: Tensor) -> Tensor:
    """The beans (E, B) that are left, in their order, followed by the new ones (E, B)."""
    # The order matters: the 26-number observation lists it, and greedy players break ties by it.
    kept, gone = left.cumsum(1), (~left).cumsum(1)
    # A stable partition without a sort: running counts give each bean's index in the new list.
    place = torch.where(left, kept, kept[:, -1:] + gone) - 1
    return torch.empty_like(beans).scatter_(1, place, torch.where(left, beans, new.gather(1, (gone - 1).clamp(min=0))))

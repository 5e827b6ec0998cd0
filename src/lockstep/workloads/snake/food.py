"""Draws the cell of the next food with a counter-based generator. E: boards, R: some of them, C: cells.

A board's random 32-bit word is a function of (seed, index, clock, draw): clock counts the board's steps since the start
of the run, draw the foods already placed at the same clock. Four clocks in a row share one Philox block of four words.
"""

import torch
from torch import Tensor

from lockstep.compute import random

_PURPOSE = "snake-food"
_BLOCKS_AHEAD = 8  # Philox blocks drawn at once: food for 32 clocks


def food_word(seed: int, index: Tensor, clock: Tensor, draw: Tensor) -> Tensor:
    """Draw the random 32-bit word (int64) of each board."""
    block = torch.stack(random.random_words(seed, _PURPOSE, index, clock >> 2, draw))
    return block.gather(0, (clock & 3)[None]).squeeze(0)


def free_cell(body: Tensor, length: Tensor, word: Tensor) -> Tensor:
    """Pick a free cell of each board by its word: body (R, C) bool, length and word (R,); C if none is free."""
    # Multiply and shift maps a 32-bit word to 0..free-1 in integers, the same on every device.
    nth = (word * (body.shape[1] - length)) >> 32
    # The nth free cell is the first at which the count of free cells reaches n + 1.
    free_so_far = torch.logical_not(body).cumsum(1, dtype=torch.int32)
    return torch.searchsorted(free_so_far, (nth + 1).to(torch.int32)[:, None]).squeeze(1)


class WordsAhead:
    """A cache of `food_word`, drawn for all boards and many clocks at once, which is much cheaper on a CPU."""

    def __init__(self, seed: int, index: Tensor) -> None:
        self._seed, self._index = seed, index
        self.forget()

    def forget(self) -> None:
        """Drop the cache; call it when the clocks were changed."""
        self._age = 4 * _BLOCKS_AHEAD

    def tick(self) -> None:
        """Advance the cache; call it when all clocks advanced by one."""
        self._age += 1

    def of(self, rows: Tensor, clock: Tensor, draw: Tensor) -> Tensor:
        """Look up the words of the boards in rows (R,) int64; clock and draw (E,) are those of all boards."""
        if self._age >= 4 * _BLOCKS_AHEAD:
            self._draw_ahead(clock)
        word = self._words.index_select(0, self._first.index_select(0, rows) + self._age)
        draw = draw.index_select(0, rows)
        # The cache only has each clock's first draw; a second food at one clock (an end right after eating) is rare.
        if draw.any():
            again = food_word(self._seed, self._index.index_select(0, rows), clock.index_select(0, rows), draw)
            word = torch.where(draw > 0, again, word)
        return word

    def _draw_ahead(self, clock: Tensor) -> None:
        # One block more than asked for, because a board's clock may stand in the middle of its first block.
        blocks = torch.arange(_BLOCKS_AHEAD + 1, device=clock.device) + (clock >> 2)[:, None]
        words = torch.stack(random.random_words(self._seed, _PURPOSE, self._index[:, None], blocks), dim=2)
        self._words = words.flatten()
        self._first = torch.arange(len(clock), device=clock.device) * words[0].numel() + (clock & 3)
        self._age = 0

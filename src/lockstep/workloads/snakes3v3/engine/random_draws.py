"""The random numbers of a game, from a counter-based generator. E: boards, R: a subset of them.

They depend only on the seed, the board's number and its clock, so a game is the same whichever rank plays it. Two
consecutive steps share the four words of one Philox block, with the counter (index, clock // 2). A step's first word
decides where snakes turn that tried to reverse, the second where beans appear. The start of an episode has three blocks
of its own, with the episode's number as their counter.
"""

import torch
from torch import Tensor

from lockstep.compute import random

STEP, START = "snakes3v3-step", "snakes3v3-start"
_MASK = 0xFFFFFFFF


def pick(word: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """A uniform number below count from a 32-bit word, and the remainder, which serves as the next word."""
    # Multiply and shift: integers only, so all devices agree, and without the division that a modulo needs.
    product = word * count
    return product >> 32, product & _MASK


def step_words(seed: int, index: Tensor, clock: Tensor, steps: int) -> Tensor:
    """The two words of each board for this step and the next ones, by the boards' clocks (E,): (steps, 2, E) int64."""
    # One more block than the steps need, because a board's clock may be in the middle of its first block.
    blocks = torch.arange(steps // 2 + 1, device=index.device)[:, None] + (clock >> 1)
    words = random.random_words(seed, STEP, index, blocks, torch.zeros_like(clock))
    pairs = torch.stack(words, dim=1).view(-1, 2, len(clock))
    return pairs.gather(0, torch.arange(steps, device=index.device)[:, None, None].expand(-1, 2, -1) + (clock & 1))


def start_words(seed: int, index: Tensor, episode: Tensor) -> Tensor:
    """(12, R) words for the start of the episode of each board."""
    # Twelve words are enough for 6 snakes and up to 5 beans.
    draws = torch.arange(3, device=index.device)[:, None]
    return torch.cat(random.random_words(seed, START, index, episode, draws))

"""What is left to chance in a game, drawn by counter. E: boards, R: some of them.

Two steps in a row share the four words of one Philox block, known by (seed, index, clock // 2): one word of each step
says where the snakes go that asked to turn round, the other where beans fall. The start of an episode has three blocks
of its own, known by the episode's number.
"""

import torch
from torch import Tensor

from lockstep.compute import random

STEP, START = "snakes3v3-step", "snakes3v3-start"
_MASK = 0xFFFFFFFF


def pick(word: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """A number below count, uniform in the 32-bit word; also what is left of the word, to pick from once more."""
    product = word * count
    return product >> 32, product & _MASK


def step_words(seed: int, index: Tensor, clock: Tensor, steps: int) -> Tensor:
    """The two words of each board for this step and the next ones, by the boards' clocks (E,): (steps, 2, E) int64."""
    # A board's clock may stand in the middle of its first block.
    blocks = torch.arange(steps // 2 + 1, device=index.device)[:, None] + (clock >> 1)
    words = random.words(seed, STEP, index, blocks, torch.zeros_like(clock))
    pairs = torch.stack(words, dim=1).view(-1, 2, len(clock))
    return pairs.gather(0, torch.arange(steps, device=index.device)[:, None, None].expand(-1, 2, -1) + (clock & 1))


def start_words(seed: int, index: Tensor, episode: Tensor) -> Tensor:
    """(12, R) words for the start of the episode of each board."""
    draws = torch.arange(3, device=index.device)[:, None]
    return torch.cat(random.words(seed, START, index, episode, draws))

"""A step of the game as torch operations, and as a Triton kernel with bitwise identical results.

`step_numpy` is the version for a CPU. E: boards, P: players, H: rows, B: beans.
"""

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.workloads.snakes3v3.engine import beans, torus
from lockstep.workloads.snakes3v3.engine.boards import Boards
from lockstep.workloads.snakes3v3.engine.random_draws import START, STEP, pick, step_words
from lockstep.workloads.snakes3v3.engine.rules import BEAN_BIT, snake_bit

_WARPS = 1
"""Warps per board, which has only about 200 cells."""


class DenseStep:
    """Every operation covers all boards, so that a step never waits for the device and a CUDA graph can capture it."""

    def __init__(self, boards: Boards, seed: int) -> None:
        rules, device = boards.rules, boards.device
        self._boards, self._rules, self._seed = boards, rules, seed
        # Where each board starts in the flat grid: one index addresses all boards.
        self._base = torch.arange(boards.count, device=device) * boards.stride
        self._next_cell = boards.neighbours.flatten()
        player = torch.arange(rules.players, device=device)[:, None]
        # One word holds the random turns of all players, as digits to base 3.
        self._turn_radix = 3**player
        self._bit = (2 << player).to(torch.uint8)
        self._is_lower, self._is_other = player > player.T, player != player.T
        self._around, self._respawn_bodies = torus.around(rules, device), torus.respawn_bodies(rules, device)
        self._shapes = torus.shapes(device)
        # Which of the 16 cells around a start are free, as bits of the index into `shapes`.
        self._places = 1 << torch.arange(16, device=device)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance all boards by the actions (E, P); returns reward, died (E, P) and ended (E,)."""
        boards, length = self._boards, self._boards.length[:-1]
        first, second = step_words(self._seed, boards.index, boards.clock, 1)[0].unbind()
        turn, rest = self._turns(first)
        ate, died = self._move(action.T, turn)
        reward = torch.where(died, self._rules.start_length - length.to(torch.float32), ate.to(torch.float32))
        length.copy_(torch.where(died, 0, length + ate))
        # All dead bodies are removed before the first respawn, and players respawn in order: the original's rule.
        self._remove_dead(died)
        free = boards.bits.where_empty(boards.grid)
        for player in range(self._rules.players):
            free = self._respawn(player, died[player], free)
        self._refill_beans(free, [second, rest])
        boards.clock.add_(1)
        boards.time.add_(1)
        # The original counts the configured number of beans, not the beans present.
        full = length.sum(0) > self._rules.cells - self._rules.beans
        return reward.T, died.T, full | (length == 0).any(0) | (boards.time > self._rules.max_steps)

    def discard_drawn_words(self) -> None:
        """Do nothing: words are not drawn ahead."""

    def _turns(self, word: Tensor) -> tuple[Tensor, Tensor]:
        """How far each snake turns from a forbidden reversal, (P, E) in 1..3, and the remainder of the word (E,)."""
        # Added to the action modulo 4, 1..3 give each of the three other directions with equal probability.
        digits, rest = pick(word, 3**self._rules.players)
        return digits // self._turn_radix % 3 + 1, rest

    def _move(self, action: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
        """Turn and move every snake; returns ate and died, (P, E) bool each. Dead bodies stay on the grid, headless."""
        boards = self._boards
        grid, trail = boards.grid.view(-1), boards.trail.view(-1)
        head, tail, direction = boards.head[:-1], boards.tail[:-1], boards.direction[:-1]
        direction.copy_(torch.where(action == direction ^ 1, (action + turn) & 3, action))
        new = self._next_cell.index_select(0, (4 * head + direction).view(-1)).view_as(head)
        head_at, tail_at, at = ((self._base + cells).view(-1) for cells in (head, tail, new))
        same = new == new[:, None]
        bean = grid.index_select(0, at).view_as(head) == BEAN_BIT
        # If several heads reach one bean, the first player eats it.
        ate = bean & ~(same & self._is_lower[:, :, None]).any(1)
        # The order of these writes matters: link the old head to the new one, remove tails, then test for collisions.
        # So a cell that a tail has just left is safe.
        trail.scatter_(0, 2 * head_at, new.view(-1).to(torch.uint8))
        trail.scatter_(0, 2 * head_at + 1, boards.time.to(torch.uint8).repeat(len(head)))
        grid.scatter_(0, tail_at, (ate * self._bit).view(-1))
        tail.copy_(torch.where(ate, tail, trail.index_select(0, 2 * tail_at).view_as(tail)))
        # At this point the tails have moved, but new heads are not yet on the grid.
        met = grid.index_select(0, at).view_as(head)
        died = (met > BEAN_BIT) | (same & self._is_other[:, :, None]).any(1)
        # What a dead snake ran into stays, except a bean, which one of the heads there ate.
        grid.scatter_(0, at, torch.where(died, met * ~bean, self._bit).view(-1))
        head.copy_(new)
        return ate, died

    def _remove_dead(self, died: Tensor) -> None:
        """Empty the cells of the dead snakes."""
        bits = (died * self._bit).sum(0, dtype=torch.uint8)
        self._boards.grid.bitwise_and_(~bits[:, None])

    def _respawn(self, player: int, died: Tensor, free: Tensor) -> Tensor:
        """Respawn a player on the boards where it died (E,), if there is room; returns the free cells (E, H)."""
        boards, rules = self._boards, self._rules
        start = torch.where(died, boards.bits.first_with_room(free), rules.cells)
        empty = boards.grid.gather(1, self._around.index_select(0, start)) == 0
        shape = self._shapes.index_select(0, (empty * self._places).sum(1))
        # Boards where the player did not die start "nowhere", so all their writes go to dummy cells.
        body = self._respawn_bodies.index_select(0, (torus.NO_ROOM + 1) * start + shape)
        head, second, tail, direction = body.unbind(1)
        boards.grid.scatter_(1, body[:, :3], snake_bit(player))
        # As if the head had moved there in the last two steps; `trail` stores the next cell and the time.
        links = torch.stack((second, boards.time - 1, head, boards.time), dim=1)
        places = torch.stack((2 * tail, 2 * tail + 1, 2 * second, 2 * second + 1), dim=1)
        boards.trail.flatten(1).scatter_(1, places, links.to(torch.uint8))
        found = head < rules.cells
        for row, value in ((boards.head, head), (boards.tail, tail), (boards.direction, direction)):
            row[player].copy_(torch.where(found, value, row[player]))
        boards.length[player].masked_fill_(found, rules.start_length)
        return boards.bits.without(free, body[:, :3])

    def _refill_beans(self, free: Tensor, words: list[Tensor]) -> None:
        """Place new beans for those that were eaten, as far as there are free cells."""
        boards, rules = self._boards, self._rules
        left = beans.remaining(boards.grid, boards.bean_cells)
        missing = rules.beans - left.sum(1)
        new = beans.place_beans(boards.grid, free, boards.bits, missing, words, rules)
        boards.bean_cells.copy_(beans.merge(boards.bean_cells, left, new))


class FusedStep:
    """A step of all boards as one kernel, and restarts as another. Needs Triton."""

    def __init__(self, boards: Boards, seed: int) -> None:
        # Triton is missing on machines without a GPU, so it is imported only when its kernels are used.
        from lockstep.workloads.snakes3v3.engine import step_triton

        rules, device = boards.rules, boards.device
        self._boards, self._kernels = boards, step_triton
        # (4,) the two words of the random key, and the labels of both purposes.
        self._keys = torch.tensor([*random.key_of(seed), random.label_of(STEP), random.label_of(START)], device=device)
        self._tables = (
            boards.neighbours,
            torus.around(rules, device),
            torus.shapes(device),
            torus.respawn_bodies(rules, device),
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
        self._kernels.step_kernel[(count,)](
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
        """Restart the episodes of the boards in the mask (E,)."""
        boards = self._boards
        self._kernels.restart_kernel[(boards.count,)](
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

    def discard_drawn_words(self) -> None:
        """Do nothing: words are not drawn ahead."""

    def _state(self) -> tuple[Tensor, ...]:
        b = self._boards
        return b.grid, b.trail, b.head, b.tail, b.direction, b.length, b.bean_cells, b.time

"""The same step for a CPU: numpy on the boards' own memory; deaths and beans only on boards that have any.

With a thousand boards a step is many small operations. Numpy's take a third of the time of torch's, those on bytes a
fraction of that, and selecting between two bytes is faster by arithmetic than by `where`.
E: boards, R: some of them, P: players, B: beans, C: cells, S: bytes of a board.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.workloads.snakes3v3.engine import torus
from lockstep.workloads.snakes3v3.engine.boards import Boards
from lockstep.workloads.snakes3v3.engine.random_draws import step_words
from lockstep.workloads.snakes3v3.engine.rules import BEAN_BIT

Array = NDArray[Any]

_STEPS_AHEAD = 32
_MASK = 0xFFFFFFFF
_NOWHERE_AND_BEYOND = np.array([False, True])
_NO_PLACE = np.zeros(1, dtype=np.int64)


class SparseStep:
    """The moves, deaths, returns and beans of a step."""

    def __init__(self, boards: Boards, seed: int) -> None:
        rules, cpu = boards.rules, torch.device("cpu")
        self._boards, self._rules, self._seed, self._stride = boards, rules, seed, boards.stride
        self._grid, self._beans = boards.grid.numpy(), boards.bean_cells.numpy()
        self._flat_grid = self._grid.reshape(-1)
        self._trail = boards.trail.view(-1).numpy().view("<u2")
        """(E*S,) both bytes of a cell's trail as one number: the next cell, and the time in the upper half."""
        self._head, self._tail = boards.head[:-1].numpy(), boards.tail[:-1].numpy()
        self._direction, self._length = boards.direction[:-1].numpy(), boards.length[:-1].numpy()
        self._time, self._clock = boards.time.numpy(), boards.clock.numpy()
        self._base = np.arange(boards.count) * boards.stride
        self._next_cell = boards.neighbours.flatten().numpy()
        self._around, self._newborn = torus.around(rules, cpu).numpy(), torus.newborn(rules, cpu).numpy()
        self._shapes = torus.shapes(cpu).numpy()
        # Sums of powers of two, exact in float32, because only products of float matrices are quick.
        self._places = 2.0 ** np.arange(16, dtype=np.float32)
        self._make_tables()
        self.forget()

    def _make_tables(self) -> None:
        players, beans = self._rules.players, self._rules.beans
        player = np.arange(players, dtype=np.uint8)[:, None]
        self._number, self._bit, self._own, self._lower = player, 2 << player, 1 << player, (1 << player) - 1
        self._first_of = (np.arange(1 << players)[:, None] >> np.arange(players) & 1).argmax(1)
        """(2^P,) the lowest bit of a number."""
        self._turns = (np.arange(3**players) // 3 ** player.astype(np.int64) % 3 + 1).astype(np.uint8)
        """(P, 3^P) by how much each snake turns away from a reversal."""
        left = np.arange(1 << beans)[:, None] >> np.arange(beans) & 1
        self._left, self._left_first = left.sum(1), (-left).argsort(1, kind="stable")
        """(2^B,) how many beans are left, and (2^B, B) the order in which they come before the others."""

    def forget(self) -> None:
        """Discard random words drawn ahead, because the clocks were set."""
        self._words: list[Array] = []

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance all boards by the actions (E, P); returns reward, died (E, P) and ended (E,)."""
        if not self._words:
            boards = self._boards
            self._words = list(step_words(self._seed, boards.index, boards.clock, _STEPS_AHEAD).numpy())[::-1]
        first, second = self._words.pop()
        turned = first * 3**self._rules.players
        ate, died = self._move(action.numpy().T.astype(np.uint8, order="C"), self._turns.take(turned >> 32, axis=1))
        reward = self._judge(ate, died)
        dead = np.bitwise_or.reduce(died * self._own)
        rows = dead.nonzero()[0]
        if len(rows):
            self._bring_back(rows, dead.take(rows))
        self._top_up(ate, [second, turned & _MASK])
        self._clock += 1
        self._time += 1
        ended = self._length.sum(0, dtype=np.uint8) > self._rules.cells - self._rules.beans
        ended |= self._length.min(0) == 0
        ended |= self._time > self._rules.max_steps
        return torch.from_numpy(reward.T), torch.from_numpy(died.view(np.bool_).T), torch.from_numpy(ended)

    def _judge(self, ate: Array, died: Array) -> Array:
        """Reward (P, E) of the move; also sets the lengths, to 0 for the dead."""
        lives = 1 - died
        reward = (ate * lives).astype(np.float32)
        reward -= died * (self._length - self._rules.start_length)
        self._length += ate
        self._length *= lives
        return reward

    def _move(self, asked: Array, turn: Array) -> tuple[Array, Array]:
        """Turn and move every snake; returns (P, E) bytes, 0 or 1: ate, died. The dead are still there, headless."""
        grid, trail = self._flat_grid, self._trail
        head, tail, direction = self._head, self._tail, self._direction
        reversal = (asked == direction ^ 1).view(np.uint8)
        np.bitwise_and(asked + reversal * turn, 3, out=direction)
        way = head << 2
        way += direction
        new = self._next_cell.take(way)
        new_byte = new.astype(np.uint8)
        head_at, tail_at, at = head + self._base, tail + self._base, new + self._base
        same = (new_byte == new_byte[:, None]).view(np.uint8)
        company = np.bitwise_or.reduce(same << self._number[:, :, None])
        bean = (grid.take(at) == BEAN_BIT).view(np.uint8)
        # If several heads reach one bean, the first player eats it.
        ate = bean * (company & self._lower == 0).view(np.uint8)
        trail[head_at] = new.astype(np.uint16) + (self._time.astype(np.uint16) << 8)
        grid[tail_at] = ate * self._bit
        moved_on = trail.take(tail_at).astype(np.uint8)
        tail += (moved_on - tail) * (1 - ate)
        # At this point the tails have moved, but new heads are not yet on the grid.
        met = grid.take(at)
        died = ((met > BEAN_BIT) | (company != self._own)).view(np.uint8)
        # What a dead snake ran into stays, except a bean, which one of them ate.
        grid[at] = self._bit + (met - bean - self._bit) * died
        head[:] = new
        return ate, died

    def _bring_back(self, rows: Array, dead: Array) -> None:
        """Take the dead, bits of a byte (R,), off the boards in rows and put them back, in the order of the players."""
        grid = self._grid.take(rows, axis=0)
        grid &= ~(dead << 1)[:, None]
        self._grid[rows] = grid
        taken = grid != 0
        # "Nowhere" is free, so that it is found where nothing else is, and what is around it is not.
        taken[:, self._rules.cells : self._rules.cells + 2] = _NOWHERE_AND_BEYOND
        rounds = []
        while len(rows):
            body, found = self._search(taken)
            rounds.append((rows, dead, body, found))
            dead = dead & dead - found.view(np.uint8)
            if np.count_nonzero(found) < len(found):
                dead *= body[:, 0] < self._rules.cells
            waiting = dead.nonzero()[0]
            rows, dead, taken = rows.take(waiting), dead.take(waiting), taken.take(waiting, axis=0)
        rows, dead, bodies, found = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
        at = found.nonzero()[0]
        self._settle(rows.take(at), self._first_of.take(dead.take(at)), bodies.take(at, axis=0))

    def _search(self, taken: Array) -> tuple[Array, Array]:
        """Look for room from the first cell on that is not taken (R, S), and take what was found.

        Returns (R, 4) three cells, head first, and direction, and (R,) whether there are three. Where there are not,
        the first cell is taken too: nobody will find room from there.
        """
        flat, base = taken.reshape(-1), self._base[: len(taken), None]
        start = taken.argmin(1)
        is_taken = flat.take(self._around.take(start, axis=0) + base)
        shape = self._shapes.take(((~is_taken).astype(np.float32) @ self._places).astype(np.int64))
        body = self._newborn.take((torus.NO_ROOM + 1) * start + shape, axis=0)
        flat[body[:, :3] + base] = True
        return body, shape != torus.NO_ROOM

    def _settle(self, rows: Array, players: Array, bodies: Array) -> None:
        """Put each player on the board in its row, with its body and direction."""
        head, second, tail, direction = bodies.T
        base, place = self._base.take(rows), players * len(self._base) + rows
        time = self._time.take(rows).astype(np.uint16) << 8
        self._flat_grid[bodies[:, :3] + base[:, None]] = self._bit.take(players)[:, None]
        self._trail[tail + base] = second + (time - 256)
        self._trail[second + base] = head + time
        self._head.reshape(-1)[place] = head
        self._tail.reshape(-1)[place] = tail
        self._direction.reshape(-1)[place] = direction
        self._length.reshape(-1)[place] = self._rules.start_length

    def _top_up(self, ate: Array, words: list[Array]) -> None:
        """Add beans until the board is full again."""
        cells, most = self._rules.cells, self._rules.beans
        rows = (np.bitwise_or.reduce(ate) | (self._beans[:, -1] == cells)).nonzero()[0]
        if len(rows) == 0:
            return
        beans, base = self._beans.take(rows, axis=0), self._base.take(rows)
        lies = self._flat_grid.take(beans + base[:, None]) == BEAN_BIT
        pattern = (lies.astype(np.float32) @ self._places[:most]).astype(np.int64)
        # Those that are left come first, in their order; new ones and "nowhere" will follow.
        row = np.arange(0, beans.size, most)
        beans = beans.reshape(-1).take(self._left_first.take(pattern, axis=0) + row[:, None])
        number = self._left.take(pattern)
        words = [word.take(rows) for word in words]
        waiting = np.arange(len(rows))
        for turn in range(most):
            waiting = waiting.take((number.take(waiting) < most).nonzero()[0])
            if len(waiting) == 0:
                break
            cell, words[turn % 2][waiting] = self._drop(rows.take(waiting), words[turn % 2].take(waiting))
            beans.reshape(-1)[row.take(waiting) + number.take(waiting)] = cell
            number += 1
        self._beans[rows] = beans

    def _drop(self, rows: Array, word: Array) -> tuple[Array, Array]:
        """Put a bean on a free cell of each board in rows, uniform in the word; returns it, or C, and the rest."""
        cells = self._rules.cells
        free = self._grid.take(rows, axis=0)[:, :cells] == 0
        count = np.add.reduce(free.view(np.uint8), axis=1, dtype=np.uint8).astype(np.int64)
        product = word * count
        # The free cells of all these boards in one list, and a place at its end for a board that has none.
        places = np.concatenate((free.reshape(-1).nonzero()[0], _NO_PLACE))
        nth = count.cumsum() - count + (product >> 32)
        cell = places.take(nth) - np.arange(0, free.size, cells)
        has_room = count > 0
        cell[~has_room] = cells
        self._flat_grid[cell + self._base.take(rows)] = has_room
        return cell, product & _MASK

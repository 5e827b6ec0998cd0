"""A step of the game for a CPU: numpy on the boards' own memory; deaths and beans only on boards that have any.

With a thousand boards, a step is many small operations. Numpy's take a third of the time of torch's, those on bytes a
fraction of that, and selecting between two bytes is faster by arithmetic than by `where`.
E: boards, R: a subset of them, P: players, B: beans, C: cells, S: bytes of a board.
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
"""Steps whose random words are drawn in one call, because each call has a fixed cost."""
_MASK = 0xFFFFFFFF
_NOWHERE_AND_BEYOND = np.array([False, True])
"""Whether the dummy cells C and C + 1 count as taken in the search for a respawn place."""
_NO_PLACE = np.zeros(1, dtype=np.int64)


class SparseStep:
    """Moves, deaths, respawns and beans of a step. Writes through views into the tensors of `boards`."""

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
        self._around, self._respawn_bodies = torus.around(rules, cpu).numpy(), torus.respawn_bodies(rules, cpu).numpy()
        self._shapes = torus.shapes(cpu).numpy()
        # Bits are packed by a matrix product, which is fast only for floats; these sums are exact in float32.
        self._places = 2.0 ** np.arange(16, dtype=np.float32)
        self._make_tables()
        self.discard_drawn_words()

    def _make_tables(self) -> None:
        players, beans = self._rules.players, self._rules.beans
        # Lookup tables over all patterns of P or B bits replace loops and sorts over players and beans.
        player = np.arange(players, dtype=np.uint8)[:, None]
        self._number, self._bit, self._own, self._lower = player, 2 << player, 1 << player, (1 << player) - 1
        self._first_of = (np.arange(1 << players)[:, None] >> np.arange(players) & 1).argmax(1)
        """(2^P,) the index of the lowest set bit: the first of several players."""
        self._turns = (np.arange(3**players) // 3 ** player.astype(np.int64) % 3 + 1).astype(np.uint8)
        """(P, 3^P) how far each snake turns from a forbidden reversal."""
        left = np.arange(1 << beans)[:, None] >> np.arange(beans) & 1
        self._left, self._left_first = left.sum(1), (-left).argsort(1, kind="stable")
        """(2^B,) how many beans are left, and (2^B, B) the order that puts them before the others."""

    def discard_drawn_words(self) -> None:
        """Discard the random words drawn ahead; needed when the clocks were set."""
        self._words: list[Array] = []

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Advance all boards by the actions (E, P); returns reward, died (E, P) and ended (E,)."""
        if not self._words:
            boards = self._boards
            # Reversed, so that pop takes the next step's words from the end.
            self._words = list(step_words(self._seed, boards.index, boards.clock, _STEPS_AHEAD).numpy())[::-1]
        first, second = self._words.pop()
        turned = first * 3**self._rules.players
        ate, died = self._move(action.numpy().T.astype(np.uint8, order="C"), self._turns.take(turned >> 32, axis=1))
        reward = self._reward(ate, died)
        # (E,) the dead players of each board as bits of a byte.
        dead = np.bitwise_or.reduce(died * self._own)
        rows = dead.nonzero()[0]
        if len(rows):
            self._respawn(rows, dead.take(rows))
        self._refill_beans(ate, [second, turned & _MASK])
        self._clock += 1
        self._time += 1
        # At most 240 cells, so the sum fits in a byte.
        ended = self._length.sum(0, dtype=np.uint8) > self._rules.cells - self._rules.beans
        ended |= self._length.min(0) == 0
        ended |= self._time > self._rules.max_steps
        return torch.from_numpy(reward.T), torch.from_numpy(died.view(np.bool_).T), torch.from_numpy(ended)

    def _reward(self, ate: Array, died: Array) -> Array:
        """The reward (P, E) of the move. Also updates the lengths; they are 0 for the dead."""
        lives = 1 - died
        reward = (ate * lives).astype(np.float32)
        # The lengths are still those before the step, which is what a death costs.
        reward -= died * (self._length - self._rules.start_length)
        self._length += ate
        self._length *= lives
        return reward

    def _move(self, action: Array, turn: Array) -> tuple[Array, Array]:
        """Turn and move every snake; returns ate and died, (P, E) bytes. Dead bodies stay on the grid, headless."""
        grid, trail = self._flat_grid, self._trail
        head, tail, direction = self._head, self._tail, self._direction
        reversal = (action == direction ^ 1).view(np.uint8)
        np.bitwise_and(action + reversal * turn, 3, out=direction)
        way = head << 2
        way += direction
        new = self._next_cell.take(way)
        new_byte = new.astype(np.uint8)
        head_at, tail_at, at = head + self._base, tail + self._base, new + self._base
        same = (new_byte == new_byte[:, None]).view(np.uint8)
        # (P, E) the players whose heads are on this player's new cell, itself included, as bits.
        heads_here = np.bitwise_or.reduce(same << self._number[:, :, None])
        bean = (grid.take(at) == BEAN_BIT).view(np.uint8)
        # If several heads reach one bean, the first player eats it.
        ate = bean * (heads_here & self._lower == 0).view(np.uint8)
        # The same order of writes as in DenseStep._move: link heads, remove tails, test for collisions, set heads.
        trail[head_at] = new.astype(np.uint16) + (self._time.astype(np.uint16) << 8)
        grid[tail_at] = ate * self._bit
        moved_on = trail.take(tail_at).astype(np.uint8)
        # Byte arithmetic wraps around, so the difference may be negative.
        tail += (moved_on - tail) * (1 - ate)
        # At this point the tails have moved, but new heads are not yet on the grid.
        met = grid.take(at)
        died = ((met > BEAN_BIT) | (heads_here != self._own)).view(np.uint8)
        # What a dead snake ran into stays, except a bean, which one of the heads there ate.
        grid[at] = self._bit + (met - bean - self._bit) * died
        head[:] = new
        return ate, died

    def _respawn(self, rows: Array, dead: Array) -> None:
        """Remove the dead, given as bits of a byte (R,), from the boards in rows, and respawn them in player order."""
        grid = self._grid.take(rows, axis=0)
        grid &= ~(dead << 1)[:, None]
        self._grid[rows] = grid
        taken = grid != 0
        # "Nowhere" counts as free, so that the search finds it on a board without any free cell; the cell around it
        # counts as taken, so that there is no room there.
        taken[:, self._rules.cells : self._rules.cells + 2] = _NOWHERE_AND_BEYOND
        # Each iteration tries one start cell on every waiting board: a board needs one per dead player, and more if the
        # first free cells have no room.
        rounds = []
        while len(rows):
            body, found = self._search(taken)
            rounds.append((rows, dead, body, found))
            # Clears the lowest bit where a place was found: x & (x - 1).
            dead = dead & dead - found.view(np.uint8)
            # A search that ended "nowhere" has tried the whole board: nobody else finds room there either.
            if np.count_nonzero(found) < len(found):
                dead *= body[:, 0] < self._rules.cells
            waiting = dead.nonzero()[0]
            rows, dead, taken = rows.take(waiting), dead.take(waiting), taken.take(waiting, axis=0)
        rows, dead, bodies, found = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
        at = found.nonzero()[0]
        self._write_bodies(rows.take(at), self._first_of.take(dead.take(at)), bodies.take(at, axis=0))

    def _search(self, taken: Array) -> tuple[Array, Array]:
        """Search for three connected cells from the first cell that is not taken (R, S), and mark them as taken.

        Returns (R, 4): the cells, head first, and the direction; and (R,) whether there are three. If not, the first
        cell is marked too, because nobody will find room from there.
        """
        flat, base = taken.reshape(-1), self._base[: len(taken), None]
        # argmin of bools is the first False.
        start = taken.argmin(1)
        is_taken = flat.take(self._around.take(start, axis=0) + base)
        shape = self._shapes.take(((~is_taken).astype(np.float32) @ self._places).astype(np.int64))
        body = self._respawn_bodies.take((torus.NO_ROOM + 1) * start + shape, axis=0)
        flat[body[:, :3] + base] = True
        return body, shape != torus.NO_ROOM

    def _write_bodies(self, rows: Array, players: Array, bodies: Array) -> None:
        """Write each player's new body and direction to the board in its row."""
        head, second, tail, direction = bodies.T
        base, place = self._base.take(rows), players * len(self._base) + rows
        time = self._time.take(rows).astype(np.uint16) << 8
        self._flat_grid[bodies[:, :3] + base[:, None]] = self._bit.take(players)[:, None]
        # As if the head had moved there in the last two steps: 256 is one step in the upper byte.
        self._trail[tail + base] = second + (time - 256)
        self._trail[second + base] = head + time
        self._head.reshape(-1)[place] = head
        self._tail.reshape(-1)[place] = tail
        self._direction.reshape(-1)[place] = direction
        self._length.reshape(-1)[place] = self._rules.start_length

    def _refill_beans(self, ate: Array, words: list[Array]) -> None:
        """Place new beans for those that were eaten, as far as there are free cells."""
        cells, most = self._rules.cells, self._rules.beans
        # Boards where a bean was eaten, or where there was no free cell for one before.
        rows = (np.bitwise_or.reduce(ate) | (self._beans[:, -1] == cells)).nonzero()[0]
        if len(rows) == 0:
            return
        beans, base = self._beans.take(rows, axis=0), self._base.take(rows)
        remains = self._flat_grid.take(beans + base[:, None]) == BEAN_BIT
        pattern = (remains.astype(np.float32) @ self._places[:most]).astype(np.int64)
        # The remaining beans come first, in their order; new ones and "nowhere" follow.
        row = np.arange(0, beans.size, most)
        beans = beans.reshape(-1).take(self._left_first.take(pattern, axis=0) + row[:, None])
        number = self._left.take(pattern)
        words = [word.take(rows) for word in words]
        # Each iteration places one bean on every board that still misses some; the two words are used in turn.
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
        """Place a bean on a random free cell of each board in rows; returns the cells (C for none) and next words."""
        cells = self._rules.cells
        free = self._grid.take(rows, axis=0)[:, :cells] == 0
        count = np.add.reduce(free.view(np.uint8), axis=1, dtype=np.uint8).astype(np.int64)
        product = word * count
        # The free cells of all these boards in one list, and a dummy at the end, which a last board without any reads.
        places = np.concatenate((free.reshape(-1).nonzero()[0], _NO_PLACE))
        nth = count.cumsum() - count + (product >> 32)
        # A list's entry is board * C + cell.
        cell = places.take(nth) - np.arange(0, free.size, cells)
        has_room = count > 0
        cell[~has_room] = cells
        self._flat_grid[cell + self._base.take(rows)] = has_room
        return cell, product & _MASK

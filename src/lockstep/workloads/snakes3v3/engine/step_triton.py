"""A step and a restart of the game as one GPU kernel each, with one program per board.

Rare events (a death, a new bean, a new game) cost time only on the boards where they happen. All arithmetic is integer,
so the results equal those of `step` bit for bit. Threads of a program share a board through memory: a barrier separates
every write to cells from later reads of them, and reads from later writes.
P: players, H, W, C: rows, columns, cells, B: beans, E: boards, S: bytes of a board, WIDE: S up to a power of two.
"""
# Pointers and device scalars have no useful Python types, and sizes keep the upper-case names of the legend above.
# ruff: noqa: ANN001, ANN201, ANN202, N803

import triton
import triton.language as tl

from lockstep.compute.random_triton import philox
from lockstep.workloads.snakes3v3.engine.rules import BEAN_BIT, GameRules
from lockstep.workloads.snakes3v3.engine.torus import NO_ROOM

_MASK = tl.constexpr(0xFFFFFFFF)
_BEAN = tl.constexpr(BEAN_BIT)
_SHAPES = tl.constexpr(NO_ROOM + 1)
_START_LENGTH = tl.constexpr(GameRules.start_length)
# Triton's vectors have a power of two of elements: 8 hold up to 6 players, or up to 5 beans.
_SLOTS = tl.constexpr(8)


@triton.jit
def _words(index, step, draw, purpose, keys):
    """The same four words as `lockstep.compute.random.random_words`."""
    return philox(index & _MASK, step & _MASK, tl.full((), draw, tl.int64), purpose, tl.load(keys), tl.load(keys + 1))


@triton.jit
def _free(grid, row, column, H: tl.constexpr, W: tl.constexpr, inside):
    """Whether the cells at these rows and columns are empty; they may lie up to two beyond an edge."""
    # Two board sizes are added, because % of a negative number is negative in Triton, as in C.
    cell = (row + 2 * H) % H * W + (column + 2 * W) % W
    return tl.load(grid + cell, mask=inside, other=1) == 0


@triton.jit
def _two_beside(above, below, left, right):
    """Whether at least two of the four neighbours are free."""
    return (above & below) | (left & right) | ((above | below) & (left | right))


@triton.jit
def _first_with_room(grid, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, WIDE: tl.constexpr):
    """The first free cell, row by row, connected to at least two other free cells; C if there is none."""
    # As in bits.first_with_room: the cell itself or one of its free neighbours has two free neighbours.
    cell = tl.arange(0, WIDE)
    inside = cell < C
    r, c = cell // W, cell % W
    here = _free(grid, r, c, H, W, inside)
    up, down = _free(grid, r - 1, c, H, W, inside), _free(grid, r + 1, c, H, W, inside)
    left, right = _free(grid, r, c - 1, H, W, inside), _free(grid, r, c + 1, H, W, inside)
    up2, down2 = _free(grid, r - 2, c, H, W, inside), _free(grid, r + 2, c, H, W, inside)
    left2, right2 = _free(grid, r, c - 2, H, W, inside), _free(grid, r, c + 2, H, W, inside)
    up_left, up_right = _free(grid, r - 1, c - 1, H, W, inside), _free(grid, r - 1, c + 1, H, W, inside)
    down_left, down_right = _free(grid, r + 1, c - 1, H, W, inside), _free(grid, r + 1, c + 1, H, W, inside)
    middle = _two_beside(up, down, left, right)
    middle = middle | (up & _two_beside(up2, here, up_left, up_right))
    middle = middle | (down & _two_beside(here, down2, down_left, down_right))
    middle = middle | (left & _two_beside(up_left, down_left, left2, here))
    middle = middle | (right & _two_beside(up_right, down_right, here, right2))
    return tl.min(tl.where(here & middle & inside, cell, C), axis=0)


@triton.jit
def _nth(found, number, WIDE: tl.constexpr):
    """The index of the true element with this number, counted from 0, in found (WIDE,)."""
    counted = tl.cumsum(found.to(tl.int32), axis=0)
    return tl.min(tl.where(found & (counted == number + 1), tl.arange(0, WIDE), WIDE), axis=0)


@triton.jit
def _place_bean(grid, beans, place, word, C: tl.constexpr, WIDE: tl.constexpr):
    """Place a bean on a random free cell, as entry `place` of the list; returns the remainder of the word."""
    cell = tl.arange(0, WIDE)
    tl.debug_barrier()
    free = (tl.load(grid + cell, mask=cell < C, other=1) == 0) & (cell < C)
    count = tl.sum(free.to(tl.int32), axis=0)
    # Multiply and shift, as in random_draws.pick.
    product = word * count
    chosen = tl.where(count > 0, _nth(free, product >> 32, WIDE), C)
    tl.debug_barrier()
    tl.store(grid + chosen, tl.where(count > 0, _BEAN, 0).to(tl.uint8))
    tl.store(beans + place, chosen.to(tl.int64))
    return product & _MASK


@triton.jit
def _respawn(
    grid, trail, head, tail, direction, length, time, bit, around, shapes, respawn_bodies,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Respawn a dead player if there is room; the pointers are those of its board and of its own entries."""
    tl.debug_barrier()
    start = _first_with_room(grid, C, H, W, WIDE)
    if start < C:
        # Which of the 16 cells around the start are empty, as bits, selects the shape of the new body.
        near = tl.arange(0, 16)
        empty = tl.load(grid + tl.load(around + start * 16 + near)) == 0
        shape = tl.load(shapes + tl.sum(tl.where(empty, 1, 0) << near, axis=0))
        body = respawn_bodies + (start * _SHAPES + shape) * 4
        first, second, third = tl.load(body), tl.load(body + 1), tl.load(body + 2)
        tl.debug_barrier()
        tl.store(grid + first, bit)
        tl.store(grid + second, bit)
        tl.store(grid + third, bit)
        # As if the head had moved there in the last two steps.
        tl.store(trail + 2 * third, second.to(tl.uint8))
        tl.store(trail + 2 * third + 1, (time - 1).to(tl.uint8))
        tl.store(trail + 2 * second, first.to(tl.uint8))
        tl.store(trail + 2 * second + 1, time.to(tl.uint8))
        tl.store(head, first)
        tl.store(tail, third.to(tl.uint8))
        tl.store(direction, tl.load(body + 3).to(tl.uint8))
        tl.store(length, tl.full((), _START_LENGTH, tl.uint8))


@triton.jit
def step_kernel(
    grid, trail, head, tail, direction, length, beans, time, clock, index,
    action, reward, died, ended, next_cell, around, shapes, respawn_bodies, keys,
    E, max_steps,
    P: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, B: tl.constexpr, S: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Advance one board by the actions of all players."""
    board = tl.program_id(0).to(tl.int64)
    grid, trail, beans = grid + board * S, trail + board * S * 2, beans + board * B
    head, tail, direction, length = head + board, tail + board, direction + board, length + board
    now, ticks = tl.load(time + board), tl.load(clock + board)
    # Two steps share a block of four words: the even step takes the first two, the odd step the others.
    w0, w1, w2, w3 = _words(tl.load(index + board), ticks >> 1, 0, tl.load(keys + 2), keys)
    turn_word, bean_word = tl.where(ticks & 1 == 0, w0, w2), tl.where(ticks & 1 == 0, w1, w3)

    p = tl.arange(0, _SLOTS)
    plays = p < P
    # The turns of all players are the digits, to base 3, of one number below 3^P.
    power, turns = tl.full((_SLOTS,), 1, tl.int64), 1
    for before in tl.static_range(P):
        power = tl.where(p > before, power * 3, power)
        turns = turns * 3
    product = turn_word * turns
    turn = (product >> 32) // power % 3 + 1
    rest = product & _MASK

    asked = tl.load(action + board * P + p, mask=plays, other=0)
    facing = tl.load(direction + p * E, mask=plays, other=0).to(tl.int64)
    # A reversal is replaced by one of the three other directions.
    facing = tl.where(asked == (facing ^ 1), (asked + turn) & 3, asked)
    old = tl.load(head + p * E, mask=plays, other=0)
    end = tl.load(tail + p * E, mask=plays, other=0).to(tl.int64)
    size = tl.load(length + p * E, mask=plays, other=1).to(tl.int32)
    new = tl.load(next_cell + 4 * old + facing, mask=plays, other=0)
    # Unused slots get distinct negative cells, so that they collide with nobody.
    distinct = tl.where(plays, new, -1 - p)
    same = distinct[:, None] == distinct[None, :]
    on_bean = (tl.load(grid + new, mask=plays, other=0) == _BEAN) & plays
    # If several heads reach one bean, the first player eats it.
    late = tl.max((same & (p[:, None] > p[None, :])).to(tl.int32), axis=1) > 0
    ate = on_bean & (late == 0)
    bit = (2 << p).to(tl.uint8)
    # The same order of writes as in DenseStep._move: link heads, remove tails, test for collisions, set heads.
    tl.debug_barrier()
    tl.store(trail + 2 * old, new.to(tl.uint8), mask=plays)
    tl.store(trail + 2 * old + 1, (now + tl.zeros_like(new)).to(tl.uint8), mask=plays)
    tl.store(grid + end, tl.where(ate, bit, 0).to(tl.uint8), mask=plays)
    tl.debug_barrier()
    onward = tl.load(trail + 2 * end, mask=plays, other=0).to(tl.int64)
    met = tl.load(grid + new, mask=plays, other=0)
    collided = tl.max((same & (p[:, None] != p[None, :])).to(tl.int32), axis=1) > 0
    dead = ((met > _BEAN) | collided) & plays
    tl.debug_barrier()
    # What a dead snake ran into stays, except a bean, which one of the heads there ate.
    tl.store(grid + new, tl.where(dead, tl.where(on_bean, 0, met), bit).to(tl.uint8), mask=plays)
    tl.store(head + p * E, new, mask=plays)
    tl.store(tail + p * E, tl.where(ate, end, onward).to(tl.uint8), mask=plays)
    tl.store(direction + p * E, facing.to(tl.uint8), mask=plays)
    tl.store(length + p * E, tl.where(dead, 0, size + ate.to(tl.int32)).to(tl.uint8), mask=plays)
    tl.store(reward + board * P + p, tl.where(dead, _START_LENGTH - size, ate.to(tl.int32)).to(tl.float32), mask=plays)
    tl.store(died + board * P + p, dead.to(tl.uint8), mask=plays)

    # The dead as bits of the grid. All bodies are removed before the first respawn.
    gone = tl.sum(tl.where(dead, 2 << p, 0), axis=0)
    if gone != 0:
        cell = tl.arange(0, WIDE)
        tl.debug_barrier()
        content = tl.load(grid + cell, mask=cell < S, other=0).to(tl.int32)
        tl.store(grid + cell, (content & (255 - gone)).to(tl.uint8), mask=cell < S)
        for player in tl.static_range(P):
            if (gone >> (player + 1)) & 1 != 0:
                _respawn(
                    grid, trail, head + player * E, tail + player * E, direction + player * E, length + player * E,
                    now, tl.full((), 2 << player, tl.uint8), around, shapes, respawn_bodies, C, H, W, WIDE,
                )  # fmt: skip
    tl.debug_barrier()

    q = tl.arange(0, _SLOTS)
    listed = q < B
    bean = tl.load(beans + q, mask=listed, other=C)
    stays = (tl.load(grid + bean, mask=bean < C, other=0) == _BEAN) & listed
    kept = tl.sum(stays.to(tl.int32), axis=0)
    if kept < B:
        place = tl.cumsum(stays.to(tl.int32), axis=0) - 1
        tl.debug_barrier()
        # Remaining beans move up in their order, and new ones follow.
        tl.store(beans + place, bean, mask=stays)
        one, other = bean_word, rest
        # The two words are used in turn, as in beans.place_beans.
        for number in tl.static_range(B):
            if kept + number < B:
                if number % 2 == 0:
                    one = _place_bean(grid, beans, kept + number, one, C, WIDE)
                else:
                    other = _place_bean(grid, beans, kept + number, other, C, WIDE)

    tl.store(clock + board, ticks + 1)
    tl.store(time + board, now + 1)
    tl.debug_barrier()
    lengths = tl.load(length + p * E, mask=plays, other=1).to(tl.int32)
    no_room = tl.sum((plays & (lengths == 0)).to(tl.int32), axis=0) > 0
    full = tl.sum(tl.where(plays, lengths, 0), axis=0) > C - B
    tl.store(ended + board, (no_room | full | (now + 1 > max_steps)).to(tl.uint8))


@triton.jit
def restart_kernel(
    grid, trail, head, tail, direction, length, beans, time, episode, index, mask, straights, keys,
    E,
    P: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, B: tl.constexpr, S: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Restart the episode of one board, if it is in the mask."""
    board = tl.program_id(0).to(tl.int64)
    if tl.load(mask + board) != 0:
        grid, trail, beans = grid + board * S, trail + board * S * 2, beans + board * B
        cell = tl.arange(0, WIDE)
        inside = cell < C
        r, c = cell // W, cell % W
        tl.store(grid + cell, tl.zeros((WIDE,), tl.uint8), mask=inside)
        tl.store(trail + 2 * cell, tl.zeros((WIDE,), tl.uint8), mask=inside)
        tl.store(trail + 2 * cell + 1, tl.zeros((WIDE,), tl.uint8), mask=inside)
        number_of_board, games = tl.load(index + board), tl.load(episode + board)
        purpose = tl.load(keys + 3)
        for player in tl.static_range(P):
            # Word n of the twelve is word n // 3 of block n % 3, the order in which start_words concatenates them.
            a, b, d, e = _words(number_of_board, games, player % 3, purpose, keys)
            word = a if player // 3 == 0 else b if player // 3 == 1 else d
            tl.debug_barrier()
            here = _free(grid, r, c, H, W, inside) & inside
            across = here & _free(grid, r, c + 1, H, W, inside) & _free(grid, r, c + 2, H, W, inside)
            down = here & _free(grid, r + 1, c, H, W, inside) & _free(grid, r + 2, c, H, W, inside)
            lines = tl.sum(across.to(tl.int32), axis=0)
            # Each line of three cells can be used in two directions.
            number = (word * (2 * (lines + tl.sum(down.to(tl.int32), axis=0)))) >> 32
            line = number // 2
            sideways = line < lines
            chosen = tl.where(sideways, _nth(across, line, WIDE), C + _nth(down, line - lines, WIDE))
            body = straights + (2 * chosen + number % 2) * 4
            first, second, third = tl.load(body), tl.load(body + 1), tl.load(body + 2)
            bit = tl.full((), 2 << player, tl.uint8)
            tl.debug_barrier()
            tl.store(grid + first, bit)
            tl.store(grid + second, bit)
            tl.store(grid + third, bit)
            tl.store(trail + 2 * third, second.to(tl.uint8))
            # As if the head had left these cells at times -1 (255 modulo 256) and 0; the second is zero already.
            tl.store(trail + 2 * third + 1, tl.full((), 255, tl.uint8))
            tl.store(trail + 2 * second, first.to(tl.uint8))
            tl.store(head + player * E + board, first)
            tl.store(tail + player * E + board, third.to(tl.uint8))
            tl.store(direction + player * E + board, tl.load(body + 3).to(tl.uint8))
            tl.store(length + player * E + board, tl.full((), _START_LENGTH, tl.uint8))
        # The words after the snakes' are for the beans, one each.
        for number_of_bean in tl.static_range(B):
            word_number = P + number_of_bean
            a, b, d, e = _words(number_of_board, games, word_number % 3, purpose, keys)
            if word_number // 3 == 0:
                a = _place_bean(grid, beans, number_of_bean, a, C, WIDE)
            elif word_number // 3 == 1:
                b = _place_bean(grid, beans, number_of_bean, b, C, WIDE)
            elif word_number // 3 == 2:
                d = _place_bean(grid, beans, number_of_bean, d, C, WIDE)
            else:
                e = _place_bean(grid, beans, number_of_bean, e, C, WIDE)
        tl.store(time + board, tl.full((), 1, tl.int64))
        tl.store(episode + board, games + 1)

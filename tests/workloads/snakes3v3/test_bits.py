"""Operations on cells as bits, compared with loops over cells."""

import pytest
import torch

from lockstep.workloads.snakes3v3.engine.bits import RowBits
from lockstep.workloads.snakes3v3.engine.rules import GameRules

CPU = torch.device("cpu")
RULES = [
    GameRules(),
    GameRules(width=7, height=9, players=2, teams=((0,), (1,)), beans=1),
    GameRules(width=60, height=4),
]


def random_grids(rules, share):
    free = torch.rand(40, rules.cells, generator=torch.Generator().manual_seed(3)) < share
    return (~free).to(torch.uint8), free


@pytest.mark.parametrize("rules", RULES, ids=["20x10", "7x9", "60x4"])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.6])
def test_the_nth_free_cell_is_the_one_found_by_counting(rules, share):
    grid, free = random_grids(rules, share)
    bits = RowBits(rules, CPU)
    chunks = bits.chunks(bits.where_empty(grid))
    counted = bits.counted(chunks)
    assert counted[:, -1].tolist() == free.sum(1).tolist()
    for board in range(len(free)):
        for number, cell in enumerate(free[board].nonzero().flatten().tolist()):
            asked = torch.full((len(free), 1), number)
            assert bits.nth(chunks, counted, asked)[board].item() == cell


@pytest.mark.parametrize("rules", RULES, ids=["20x10", "7x9", "60x4"])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_the_first_cell_with_room_is_the_one_found_by_a_search(rules, share):
    grid, free = random_grids(rules, share)
    bits = RowBits(rules, CPU)
    found = bits.first_with_room(bits.where_empty(grid)).tolist()
    assert found == [searched(rules, set(board.nonzero().flatten().tolist())) for board in free]


def searched(rules, free):
    """The first cell of a connected group of three or more free cells; C if there is none."""

    def beside(cell):
        row, column = divmod(cell, rules.width)
        rows, columns = (
            ((row - 1) % rules.height, (row + 1) % rules.height),
            ((column - 1) % rules.width, (column + 1) % rules.width),
        )
        return {r * rules.width + column for r in rows} | {row * rules.width + c for c in columns}

    for cell in sorted(free):
        group = {cell}
        for _ in range(2):
            group |= {other for member in group for other in beside(member)} & free
        if len(group) >= 3:
            return cell
    return rules.cells


def test_removing_cells_clears_their_bits_and_ignores_nowhere():
    rules = GameRules()
    bits = RowBits(rules, CPU)
    rows = bits.without(
        bits.where_empty(torch.zeros(2, rules.cells, dtype=torch.uint8)), torch.tensor([[0, 21], [200, 200]])
    )
    assert rows[0, 0].item() == 2**20 - 2
    assert rows[0, 1].item() == 2**20 - 3
    assert rows[1].tolist() == [2**20 - 1] * 10

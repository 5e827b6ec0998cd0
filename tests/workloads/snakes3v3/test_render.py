import numpy as np
import torch

from lockstep.workloads.snakes3v3.competition.position import Position, set_up
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3
from lockstep.workloads.snakes3v3.matches import render

SNAKES = [[[5, 19], [5, 0], [5, 1], [4, 1]], *([[row, 5], [row, 6], [row, 7]] for row in (0, 1, 2, 3, 9))]


def game():
    boards = SnakesGame(SNAKES_3V3, torch.arange(2), 0, torch.device("cpu"))
    boards.reset()
    other = Position(SNAKES, [2] * 6, [[7, 7]], time=8)
    set_up(boards, [other, other])
    return boards


def test_the_text_shows_heads_as_numbers_and_teams_as_two_kinds_of_squares():
    lines = render.text(game(), 1).splitlines()
    assert len(lines) == 13
    assert lines[6] == "│ ■ ■ · · · · · · · · · · · · · · · · · 0 │"
    assert lines[5][4] == "■"
    assert lines[8] == "│ · · · · · · · ◆ · · · · · · · · · · · · │"
    assert lines[10] == "│ · · · · · 5 □ □ · · · · · · · · · · · · │"
    assert lines[12] == "  score 1 : 0   step 7 of 200"
    assert "\x1b" not in "".join(lines)
    assert "\x1b[38;2" in render.text(game(), 1, color=True)


def test_the_picture_connects_cells_but_not_across_the_edge():
    picture = render.frame(game(), 0, scale=20)
    assert picture.shape == (200, 400, 3) and picture.dtype == np.uint8
    head, bean = picture[110, 390], picture[150, 150]
    assert tuple(head) == render.COLOURS[0]
    assert tuple(bean) == (74, 222, 128)
    assert np.array_equal(picture[110, 10], picture[110, 20]), "one band over two cells"
    assert not np.array_equal(picture[110, 398], picture[110, 390])
    assert len({tuple(pixel) for pixel in picture.reshape(-1, 3)}) == 6 * 2 + 3

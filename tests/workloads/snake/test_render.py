import numpy as np

from lockstep.workloads.snake.render import frame, text
from lockstep.workloads.snake.rules import SnakeRules

BOARD = {"snake": [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (2, 3)], "direction": 3, "food": (3, 0), "steps": 12}
FULL = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (1, 2), (1, 1), (1, 0)]
FULL += [(2, 0), (2, 1), (2, 2), (2, 3), (3, 3), (3, 2), (3, 1), (3, 0)]


def test_the_picture_paints_food_red_body_green_and_head_bright(set_up):
    picture = frame(set_up(SnakeRules(grid_size=4), [BOARD]), 0)
    assert picture.shape == (80, 80, 3)
    assert picture.dtype == np.uint8
    assert picture[60:80, 0:20].reshape(-1, 3).tolist() == [[255, 0, 0]] * 400
    assert picture[0:20, 20:40].reshape(-1, 3).tolist() == [[0, 200, 0]] * 400
    assert picture[40:60, 60:80].reshape(-1, 3).tolist() == [[0, 255, 0]] * 400
    assert picture.reshape(4, 20, 4, 20, 3)[:, 0, :, 0].any(-1).sum() == 7


def test_the_picture_follows_the_scale(set_up):
    picture = frame(set_up(SnakeRules(grid_size=4), [BOARD]), 0, scale=1)
    assert picture.shape == (4, 4, 3)
    assert picture[2, 3].tolist() == [0, 255, 0]


def test_the_text_draws_the_snake_as_one_line(set_up):
    drawn = text(set_up(SnakeRules(grid_size=4), [BOARD]), 0)
    assert drawn.splitlines() == [
        "╭─────────╮",
        "│ ╺━┓ · · │",
        "│ · ┗━━━┓ │",
        "│ · · · ● │",
        "│ ◆ · · · │",
        "╰─────────╯",
        "  length 6   steps 12 of 800",
    ]


def test_colours_come_only_if_asked_and_change_nothing_else(set_up):
    env = set_up(SnakeRules(grid_size=4), [BOARD])
    painted = text(env, 0, color=True)
    assert "\x1b" not in text(env, 0)
    assert "\x1b[38;2;255;0;0m◆ \x1b[0m" in painted
    assert painted.count("\x1b[38;2;0;200;0m") == 5
    bare = painted.replace("\x1b[0m", "")
    for colour in ("255;0;0", "0;200;0", "0;255;0"):
        bare = bare.replace(f"\x1b[38;2;{colour}m", "")
    assert bare == text(env, 0)


def test_a_full_board_has_no_food_to_show(set_up):
    env = set_up(SnakeRules(grid_size=4), [{"snake": FULL, "direction": 0, "food": (3, 0)}])
    assert "◆" not in text(env, 0)
    assert frame(env, 0)[..., 0].max() == 0


def test_every_board_is_rendered_from_its_own_state(set_up):
    other = {"snake": [(1, 0), (1, 1), (1, 2)], "direction": 1, "food": (0, 0)}
    env = set_up(SnakeRules(grid_size=4), [BOARD, other])
    assert frame(env, 1, scale=1)[1, 2].tolist() == [0, 255, 0]
    assert "length 3" in text(env, 1)

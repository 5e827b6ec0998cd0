"""Every scripted player against a plain implementation of its rules, on both sides."""

import math

import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.competition.position import Position, position, set_up
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS, SCHEDULES, difficulty

CPU = torch.device("cpu")
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
BOARDS, STEPS = 20, 40


def beside(cell, move):
    return (cell[0] + move[0]) % 10, (cell[1] + move[1]) % 20


def flat(here, there):
    return math.sqrt((here[0] - there[0]) ** 2 + (here[1] - there[1]) ** 2)


def nearest(head, beans):
    return min(beans, key=lambda bean: flat(head, bean))


def safe_ways(head, taken):
    """First moves found by a search two moves deep that visits each cell of the second move once."""
    firsts = [(way, beside(head, move)) for way, move in enumerate(MOVES) if beside(head, move) not in taken]
    safe, visited = [], set()
    for way, cell in firsts:
        for move in MOVES:
            second = beside(cell, move)
            if second not in taken and second not in visited:
                visited.add(second)
                safe.append(way)
    return sorted(set(safe)) or [0, 1, 2, 3]


def plain_choice(name, seen, team):
    """The actions of a team, computed without tensors."""
    taken = {tuple(cell) for snake in seen.snakes for cell in snake}
    beans, actions = [tuple(bean) for bean in seen.beans], []
    for player in team:
        head = tuple(seen.snakes[player][0])
        bean = nearest(head, beans)
        if name in ("greedy", "level2"):
            beans.remove(bean)
        costs = []
        for move in MOVES:
            cell = beside(head, move)
            cost = flat(cell, bean)
            if cell in taken and name in ("greedy", "level2", "level4"):
                cost = math.inf
            costs.append(cost + 5 * (cell in taken and name == "level3"))
        ways = safe_ways(head, taken) if name == "evasive" else range(4)
        actions.append(min(ways, key=lambda way: costs[way]))
    return actions


@pytest.fixture(scope="module")
def boards():
    """A game, and its states over some steps of mixed play."""
    game = SnakesGame(SNAKES_3V3, torch.arange(BOARDS), 8, CPU)
    game.reset()
    states = []
    for number in range(STEPS):
        states.append(game.state())
        names = ("random", "level1") if number % 4 == 0 else ("greedy", "evasive")
        game.step(torch.cat([OPPONENTS[n](game, t) for n, t in zip(names, SNAKES_3V3.teams, strict=True)], dim=1))
    return game, states


@pytest.mark.parametrize("name", [name for name in OPPONENTS if name != "random"])
def test_every_action_is_that_of_the_plain_implementation(boards, name):
    game, states = boards
    for state in states:
        game.load(state)
        for team in SNAKES_3V3.teams:
            expected = [plain_choice(name, position(game, board), team) for board in range(BOARDS)]
            assert OPPONENTS[name](game, team).tolist() == expected


def test_random_players_are_uniform_and_independent():
    game = SnakesGame(SNAKES_3V3, torch.arange(4000), 8, CPU)
    game.reset()
    both = [OPPONENTS["random"](game, team) for team in SNAKES_3V3.teams]
    actions = torch.cat(both, dim=1)
    for player in range(6):
        counts = torch.bincount(actions[:, player], minlength=4)
        assert (counts - 1000).abs().max() < 5 * (4000 * 3 / 16) ** 0.5
    pairs = torch.bincount(actions[:, 0] * 4 + actions[:, 5], minlength=16)
    assert (pairs - 250).abs().max() < 5 * 250**0.5
    game.step(actions)
    assert not torch.equal(OPPONENTS["random"](game, (0, 1, 2)), both[0])


def test_with_fewer_beans_than_snakes_the_last_snakes_choose_the_nearest():
    game = SnakesGame(SNAKES_3V3, torch.arange(2), 8, CPU)
    snakes = [[[row, 5], [row, 6], [row, 7]] for row in range(0, 10, 2)] + [[[9, 5], [9, 6], [9, 7]]]
    set_up(game, [Position(snakes, [2] * 6, beans) for beans in ([[6, 1]], [])])
    one, none = OPPONENTS["greedy"](game, (0, 1, 2)).tolist()
    assert one == [1, 1, 2], "down, down, and left where it is nearest"
    assert none == [1, 0, 0], "no beans: the first open direction; the first head is blocked above"


def test_if_all_directions_are_blocked_the_action_is_up():
    game = SnakesGame(SNAKES_3V3, torch.arange(1), 8, CPU)
    walls = [[[4, 5], [3, 5], [2, 5]], [[6, 5], [7, 5], [8, 5]], [[5, 4], [5, 3], [5, 2]], [[0, 9], [0, 10], [0, 11]]]
    snakes = [[[5, 5], [5, 6], [5, 7]], *walls, [[2, 9], [2, 10], [2, 11]]]
    set_up(game, [Position(snakes, [2] * 6, [[9, 9]])])
    for name in ("greedy", "level4"):
        assert OPPONENTS[name](game, (0,)).tolist() == [[0]]


@pytest.mark.parametrize(
    ("strategy", "levels"),
    [
        ("linear", [0, 0, 0, 1, 2, 3, 3, 4]),
        ("exponential", [0, 0, 0, 0, 1, 3, 3, 4]),
        ("curriculum", [0, 0, 1, 1, 2, 3, 4, 4]),
        ("measured", [0, 0, 1, 1, 3, 4, 2, 2]),
    ],
)
def test_levels_over_a_run(strategy, levels):
    episodes = [0, 99, 100, 299, 599, 849, 850, 1000]
    assert [difficulty(episode, 1000, strategy) for episode in episodes] == levels
    assert strategy in SCHEDULES


def test_no_level_is_above_four():
    assert all(difficulty(5000, 1000, strategy) <= 4 for strategy in SCHEDULES)


def test_an_unknown_schedule_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match='schedule "curiculum": unknown; the nearest is curriculum'):
        difficulty(0, 10, "curiculum")

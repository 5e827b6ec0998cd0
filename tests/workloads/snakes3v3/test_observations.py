import numpy as np
import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.competition import submission
from lockstep.workloads.snakes3v3.competition.interface import CompetitionGame
from lockstep.workloads.snakes3v3.competition.position import Position, position, set_up
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P
from lockstep.workloads.snakes3v3.observations.observe import SIZES, observe
from lockstep.workloads.snakes3v3.opponents.scripted import greedy_action, random_action

CPU = torch.device("cpu")
SNAKES = [[[row, 12], [row, 13], [row, 14]] for row in (0, 2, 4, 6, 8)]
HAND = Position(
    snakes=[[[5, 1], [5, 2], [5, 3], [5, 4]], *SNAKES],
    directions=[2] * 6,
    beans=[[5, 19], [1, 1], [7, 1], [9, 9], [6, 1]],
    time=21,
)
"""Player 0 faces left; beans are two cells to the left across the edge, and two and one below."""


def one(seen, rules=SNAKES_3V3):
    game = SnakesGame(rules, torch.arange(1), 0, CPU)
    set_up(game, [seen])
    return game


def played(rules=SNAKES_3V3, boards=12, steps=60):
    """Boards in the middle of a game."""
    game = SnakesGame(rules, torch.arange(boards), 6, CPU)
    game.reset()
    for number in range(steps):
        policy = random_action if number % 7 == 0 else greedy_action
        game.step(torch.cat([policy(game, team) for team in rules.teams], dim=1))
    return game


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("rules", [SNAKES_3V3, SNAKES_5P], ids=["3v3", "5p"])
def test_each_kind_has_its_size_and_is_finite(kind, rules):
    seen = observe(played(rules), kind, range(rules.players))
    assert seen.shape == (12, rules.players, SIZES[kind])
    assert seen.dtype == torch.float32
    assert seen.isfinite().all()


def test_the_sizes_are_those_of_the_names():
    assert (SIZES["jidi26"], SIZES["guide30"], SIZES["final35"]) == (26, 30, 35)


def test_jidi26_of_a_board_set_up_by_hand():
    seen = observe(one(HAND), "jidi26", (0, 1))[0]
    heads = [0, 12, 2, 12, 4, 12, 6, 12, 8, 12]
    assert seen[0].tolist() == [5, 1, 0, 1, 0, 2, 5, 19, 1, 1, 7, 1, 9, 9, 6, 1, *heads]
    assert seen[1].tolist()[:6] == [0, 12, 0, 0, 0, 3]
    assert seen[1].tolist()[16:] == [5, 1, *heads[2:]]


def test_guide30_of_a_board_set_up_by_hand():
    seen = observe(one(HAND), "guide30", (0,))[0, 0].tolist()
    assert seen[6:12] == [0, 1, 1, -2, 0, 2], "columns, rows, distance: (6, 1), then (5, 19), which comes before (7, 1)"
    first, second = (5**2 + 9**2) ** 0.5, (3**2 + 9**2) ** 0.5
    assert seen[12:14] == pytest.approx([1 / (first + 1), 1 / (second + 1)])
    assert seen[14:26] == [5, 19, 1, 1, 7, 1, 9, 9, 6, 1, 0, 0]
    assert seen[26:] == [0, 12, 2, 12]


def test_final35_of_a_board_set_up_by_hand():
    seen = observe(one(HAND), "final35", (0,))[0, 0].tolist()
    assert seen[16:22] == [0, 1, 1, -2, 0, 2]
    assert seen[22] == pytest.approx(4 / 20)
    assert seen[23:33] == [0, 12, 2, 12, 4, 12, 6, 12, 8, 12]
    first, second = (1 + 9**2) ** 0.5, (1 + 9**2) ** 0.5
    assert seen[33:] == pytest.approx([0.75 / (first + 1), 0.75 / (second + 1)])


def test_missing_beans_are_zeros_and_far_away_in_guide30():
    few = Position(HAND.snakes, HAND.directions, [[6, 1]])
    assert observe(one(few), "jidi26", (0,))[0, 0, 6:16].tolist() == [6, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert observe(one(few), "guide30", (0,))[0, 0, 6:12].tolist() == [0, 1, 1, 0, 0, 40]
    assert observe(one(few), "final35", (0,))[0, 0, 16:22].tolist() == [0, 1, 1, 0, 0, 0]


def test_rich_of_a_board_set_up_by_hand():
    seen = observe(one(HAND), "rich", (0,))[0, 0].tolist()
    itself, ways, beans, others, near = seen[:8], seen[8:44], seen[44:74], seen[74:109], seen[109:]
    assert itself == pytest.approx([0, 0, 1, 0, 1 / 20, 1 - 20 / 200, 1 / 20, 1 / 20])
    up, down, left, right = (ways[9 * way : 9 * way + 9] for way in range(4))
    # Backwards, body, tail, mates and enemies that may move there, bean, open cells next and after, moves to a bean.
    assert up == pytest.approx([0, 0, 0, 0, 0, 0, 1, 8 / 9, 3 / 8])
    assert down[:6] == [0, 0, 0, 0, 0, 1] and down[8] == 0
    assert left == pytest.approx([0, 0, 0, 0, 0, 0, 1, 1, 1 / 8])
    assert right[:3] == [1, 1, 0] and right[8] == 1
    assert beans[:6] == pytest.approx([1, 2 / 10, 0, 1 / 15, (13 - 1) / 15, (9 - 1) / 15])
    assert beans[6:12] == pytest.approx([1, 0, -4 / 20, 2 / 15, (10 - 2) / 15, (8 - 2) / 15])
    assert others[:7] == pytest.approx([1, -6 / 10, -18 / 20, 12 / 15, 3 / 20, 0, -1]), "the mate in row 2"
    assert others[7:10] == pytest.approx([1, -1, -18 / 20])
    stays, mates, enemies, food = (near[40 * plane : 40 * plane + 40] for plane in range(4))
    assert sorted(number for number in stays if number) == pytest.approx([1 / 8, 2 / 8, 3 / 8])
    assert sum(mates) == sum(enemies) == 0
    assert sum(food) == 4, "all beans but the one in row 9"


@pytest.mark.parametrize("kind", SIZES)
def test_the_other_side_sees_the_same_game_with_the_sides_exchanged(kind):
    game = played()
    other = SnakesGame(SNAKES_3V3, torch.arange(game.count), 6, CPU)
    exchanged = []
    for board in range(game.count):
        seen = position(game, board)
        turned = seen.snakes[3:] + seen.snakes[:3], seen.directions[3:] + seen.directions[:3]
        exchanged.append(Position(*turned, seen.beans, seen.time))
    set_up(other, exchanged)
    assert torch.equal(observe(game, kind, (0, 1, 2)), observe(other, kind, (3, 4, 5)))
    assert torch.equal(observe(game, kind, (3, 4, 5)), observe(other, kind, (0, 1, 2)))


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("rules", [SNAKES_3V3, SNAKES_5P], ids=["3v3", "5p"])
def test_every_number_equals_that_of_the_exported_team(kind, rules):
    """The exported team computes observations without tensors, from one board as lists of cells."""
    match, before = CompetitionGame(rules, seed=4), None
    for number in range(60):
        game = match.game
        seen = observe(game, kind, range(rules.players))[0]
        for player, shown in enumerate(match.all_observes):
            board = submission.Board(shown)
            board.compare(before)
            plain = submission.OBSERVATIONS[kind](board, board.me, number + 1)
            assert seen[player].tolist() == pytest.approx(plain, abs=1e-6)
        before = board.by_code
        policy = random_action if number % 5 == 0 else greedy_action
        actions = torch.cat([policy(game, team) for team in rules.teams], dim=1)
        match.step([[[int(way == action) for way in range(4)]] for action in actions[0].tolist()])


def test_an_exported_team_knows_who_faces_itself_after_a_respawn_across_the_edge():
    """The rule for respawning ignores that the board wraps; the platform shows no directions, only cells."""
    match, player, facing = CompetitionGame(SNAKES_3V3, seed=5), Recorder(), 0
    for _ in range(60):
        for shown in match.all_observes:
            player.act(shown)
        directions, codes = match.game.directions[0].tolist(), range(2, 8)
        for side in range(2):
            board = player.boards[side]
            found = {code: board.direction(place) for place, code in enumerate(board.by_code)}
            assert [found[code] for code in codes] == directions
            facing += sum(
                board.moved(s[0], submission.MOVES[directions[c - 2]]) == s[1] for c, s in board.by_code.items()
            )
        actions = torch.cat([random_action(match.game, team) for team in SNAKES_3V3.teams], dim=1)
        match.step([[[int(way == action) for way in range(4)]] for action in actions[0].tolist()])
    assert facing, "the game has no such case"


class Recorder(submission.Player):
    """The exported player with a network of zeros; keeps the boards that it saw."""

    def __init__(self):
        size = SIZES["rich"]
        weights = {"0.linear.weight": np.zeros((4, size)), "0.linear.bias": np.zeros(4)}
        super().__init__({**weights, "observation": np.frombuffer(b"rich", np.uint8)})
        self.boards = {}
        self.observe = self._observe

    def _observe(self, board, number, time):
        self.boards[board.side] = board
        return np.zeros(SIZES["rich"])


def test_rich_shows_how_long_a_body_part_remains():
    seen = Position([[[5, 1], [5, 2], [5, 3], [5, 4]], [[4, 0], [4, 1], [4, 2]], *SNAKES[1:]], [2] * 6, HAND.beans)
    rich = observe(one(seen), "rich", (0,))[0, 0]
    up = rich[8:17].tolist()
    assert up[:3] == [0, 1, 0], "the second cell of a mate: it remains for two moves"
    game = one(seen)
    game.step(torch.tensor([[1, 2, 2, 2, 2, 2]]))
    game.step(torch.tensor([[2, 2, 2, 2, 2, 2]]))
    # Player 0 is at (6, 0), with (5, 0) free above it; player 1 has moved on to (4, 18), (4, 19), (4, 0).
    assert position(game, 0).snakes[0][0] == [6, 0]
    assert position(game, 0).snakes[1] == [[4, 18], [4, 19], [4, 0]]


def test_an_unknown_kind_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="the nearest is guide30"):
        observe(one(HAND), "guide3", (0,))

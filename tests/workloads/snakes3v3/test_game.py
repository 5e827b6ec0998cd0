import pytest
import torch

from lockstep.compute.graphs import Recording
from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.competition.position import Position, position, set_up
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import DOWN, LEFT, RIGHT, SNAKES_3V3, SNAKES_5P, UP, GameRules
from lockstep.workloads.snakes3v3.opponents.scripted import greedy_action, random_action

CPU = torch.device("cpu")
FAR = [[5, 6], [5, 7], [5, 8], [7, 7], [7, 8]]
"""Beans out of reach of all snakes."""
SMALL = GameRules(width=7, height=7)
SHORT = GameRules(max_steps=25)
TINY = GameRules(width=4, height=4, players=2, teams=((0,), (1,)), beans=1)
LONG = [[1, 2], [1, 1], [1, 0], [1, 3], [2, 3], [3, 3], [3, 0], [3, 1], [3, 2], [2, 2], [2, 1], [2, 0]]
"""Every cell of a tiny board except its first row."""


def act(game, **moves):
    """A step in which the named players take these actions and all others continue to the left."""
    actions = [moves.get(f"p{player}", LEFT) for player in range(game.rules.players)]
    return game.step(torch.tensor([actions]))


def cells(game, player, board=0):
    return position(game, board).snakes[player]


def play(game, steps, restart=True):
    """All results of some steps of mixed play."""
    seen = []
    for _ in range(steps):
        greedy, anything = (
            torch.cat([a(game, t) for t in game.rules.teams], 1) for a in (greedy_action, random_action)
        )
        is_greedy = ((game.clock + game.index) % 10 < 8)[:, None]
        done = game.step(torch.where(is_greedy, greedy, anything))
        seen += [done.reward, done.dead, done.ended, game.board]
        if restart:
            game.restart(done.ended)
    return seen


def all_teams(policy, game):
    return torch.cat([policy(game, team) for team in game.rules.teams], dim=1)


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_new_game_has_straight_snakes_of_three_and_five_beans(make_game):
    game = make_game(boards=100)
    for board in range(100):
        seen = position(game, board)
        assert [len(snake) for snake in seen.snakes] == [3] * 6
        for snake, direction in zip(seen.snakes, seen.directions, strict=True):
            down, right = [(-1, 0), (1, 0), (0, -1), (0, 1)][direction]
            (row, column), _, tail = snake
            assert snake[1] == [(row - down) % 10, (column - right) % 20]
            assert tail == [(row - 2 * down) % 10, (column - 2 * right) % 20]
        everything = [tuple(cell) for cells in [*seen.snakes, seen.beans] for cell in cells]
        assert len(set(everything)) == len(everything) == 23
    assert game.time.tolist() == [1] * 100
    assert game.bean_count.tolist() == [5] * 100
    assert game.score.tolist() == [[0] * 6] * 100


def test_initial_cells_and_directions_are_uniform():
    game = SnakesGame(SNAKES_3V3, torch.arange(20_000), 3, CPU)
    game.reset()
    for player in (0, 5):
        directions = torch.bincount(game.directions[:, player], minlength=4)
        assert (directions - 5000).abs().max() < 5 * (20_000 * 0.25 * 0.75) ** 0.5
        heads = torch.bincount(game.head_cells[:, player], minlength=200)
        assert (heads - 100).abs().max() < 5 * 100**0.5
    beans = torch.bincount(game.bean_cells.flatten(), minlength=200)
    assert (beans - 500).abs().max() < 5 * 500**0.5


def test_a_snake_moves_and_wraps_around_the_edge(game_at):
    game = game_at({0: [[0, 0], [0, 1], [0, 2]]}, {}, FAR)
    done = act(game, p0=UP)
    assert cells(game, 0) == [[9, 0], [0, 0], [0, 1]]
    assert done.reward.tolist() == [[0.0] * 6]
    assert not done.dead.any() and not done.ended.any()
    act(game, p0=LEFT)
    assert cells(game, 0) == [[9, 19], [9, 0], [0, 0]]
    assert game.board[0, 9, 19] == 2
    assert game.heads[0, 0].tolist() == [9, 19]
    assert game.time.tolist() == [3]


def test_eating_makes_a_snake_longer_and_the_new_bean_is_last_in_the_list(game_at):
    game = game_at({0: [[5, 3], [5, 2], [5, 1]]}, {0: RIGHT}, [[7, 7], [5, 4], [7, 8], [5, 8], [5, 9]])
    done = act(game, p0=RIGHT)
    assert done.reward.tolist() == [[1.0, 0, 0, 0, 0, 0]]
    assert cells(game, 0) == [[5, 4], [5, 3], [5, 2], [5, 1]]
    assert game.lengths[0, 0] == 4 and game.score[0, 0] == 1
    beans = position(game, 0).beans
    assert beans[:4] == [[7, 7], [7, 8], [5, 8], [5, 9]]
    assert len(beans) == 5 and game.beans[0, 4].tolist() == beans[4]


def test_a_reversal_is_replaced_by_a_random_other_direction(make_game):
    game = make_game(boards=3000)
    set_up(game, [Position([[[5, 5], [5, 6], [5, 7]], *others()], [LEFT] * 6, FAR_AWAY)] * 3000)
    game.step(torch.tensor([[RIGHT, LEFT, LEFT, LEFT, LEFT, LEFT]]).expand(3000, -1))
    ways = torch.bincount(game.directions[:, 0], minlength=4)
    assert ways[RIGHT] == 0
    assert (ways[[UP, DOWN, LEFT]] - 1000).abs().max() < 5 * (3000 * 2 / 9) ** 0.5


FAR_AWAY = [[1, 0], [3, 0], [5, 0], [7, 0], [1, 2]]


def others():
    return [[[row, 12], [row, 13], [row, 14]] for row in (2, 4, 6, 8, 9)]


def test_a_snake_that_hits_a_body_dies_and_the_other_survives(game_at):
    snakes = {0: [[5, 5], [5, 4], [5, 3], [5, 2]], 3: [[4, 5], [3, 5], [2, 5], [1, 5], [1, 4]]}
    game = game_at(snakes, {0: RIGHT, 3: DOWN}, [[7, 7], [7, 8], [8, 8], [9, 9], [0, 8]])
    done = act(game, p0=UP, p3=LEFT)
    assert done.dead.tolist() == [[True, False, False, False, False, False]]
    assert done.reward[0, 0] == 3 - 4
    assert cells(game, 3) == [[4, 4], [4, 5], [3, 5], [2, 5], [1, 5]]
    assert cells(game, 0) == [[0, 1], [0, 0], [1, 0]], "an L in the corner: right and below the first cell"
    assert game.directions[0, 0] == RIGHT


def test_a_cell_that_a_tail_leaves_is_safe_unless_its_owner_eats(game_at):
    snakes = {0: [[5, 5], [5, 4], [5, 3]], 3: [[3, 6], [4, 6], [4, 5]]}
    beans = [[7, 7], [7, 8], [8, 8], [9, 9]]
    assert not act(game_at(snakes, {0: RIGHT, 3: UP}, [*beans, [9, 8]]), p0=UP, p3=UP).dead.any()
    done = act(game_at(snakes, {0: RIGHT, 3: UP}, [*beans, [2, 6]]), p0=UP, p3=UP)
    assert done.dead.tolist() == [[True, False, False, False, False, False]]
    assert done.reward.tolist() == [[0, 0, 0, 1, 0, 0]]


def test_two_heads_on_one_cell_both_die_and_the_first_player_eats_the_bean(game_at):
    snakes = {1: [[5, 5], [5, 4], [5, 3], [5, 2]], 4: [[5, 7], [5, 8], [5, 9]]}
    game = game_at(snakes, {1: RIGHT, 4: LEFT}, [[5, 6], [7, 7], [7, 8], [8, 8], [9, 9]])
    done = act(game, p1=RIGHT, p4=LEFT)
    assert done.dead.tolist() == [[False, True, False, False, True, False]]
    assert done.reward.tolist() == [[0, -1, 0, 0, 0, 0]], "1 for the bean and 3 minus the length of 5; 3 minus 3"
    assert position(game, 0).beans[:4] == [[7, 7], [7, 8], [8, 8], [9, 9]]
    assert cells(game, 1) == [[0, 1], [0, 0], [1, 0]]
    assert cells(game, 4) == [[0, 3], [0, 2], [1, 2]], "the next free corner: (1, 1) lies before (0, 2) only by columns"


def test_two_adjacent_heads_that_swap_cells_both_die(game_at):
    snakes = {2: [[5, 5], [5, 4], [5, 3]], 5: [[5, 6], [5, 7], [5, 8]]}
    game = game_at(snakes, {2: RIGHT, 5: LEFT}, [[7, 7], [7, 8], [8, 8], [9, 9], [0, 8]])
    assert act(game, p2=RIGHT, p5=LEFT).dead.tolist() == [[False, False, True, False, False, True]]


def test_a_snake_that_hits_itself_dies(game_at):
    ring = [[5, 5], [5, 6], [6, 6], [6, 5], [7, 5]]
    game = game_at({0: ring}, {0: LEFT}, [[1, 1], [1, 2], [1, 3], [1, 4], [3, 3]])
    done = act(game, p0=DOWN)
    assert done.dead[0].tolist() == [True] + [False] * 5
    assert done.reward[0, 0] == -2


def test_a_straight_respawn_with_the_head_in_the_middle_faces_along_the_line(game_at):
    # Free at the top left: (0, 0) with (0, 1) to the right and (0, 19) across the edge, nothing above or below.
    snakes = {
        0: [[5, 5], [5, 4], [5, 3]],
        3: [[5, 7], [5, 8], [5, 9]],
        1: [[9, 0], [8, 0], [7, 0]],
        2: [[1, 0], [2, 0], [3, 0]],
    }
    game = game_at(snakes, {0: RIGHT, 1: DOWN, 2: UP}, [[1, 1], [9, 2], [7, 7], [7, 8], [8, 8]])
    game.step(torch.tensor([[RIGHT, RIGHT, RIGHT, LEFT, LEFT, LEFT]]))
    seen = position(game, 0)
    assert seen.snakes[1][0] == [9, 1] and seen.snakes[2][0] == [1, 1]
    assert seen.snakes[0] == [[0, 0], [0, 1], [0, 19]]
    assert seen.directions[0] == LEFT


def test_a_respawn_across_the_edge_faces_its_own_second_cell(game_at):
    # Player 0 dies; (0, 0) has two free neighbours, above and to the left, both across the edge.
    snakes = {
        0: [[5, 5], [5, 4], [5, 3]],
        1: [[0, 2], [0, 3], [0, 4]],
        2: [[2, 0], [3, 0], [4, 0]],
        3: [[6, 6], [5, 6], [4, 6]],
    }
    game = game_at(snakes, {0: RIGHT, 2: UP, 3: DOWN}, [[7, 8], [9, 2], [7, 9], [8, 5], [8, 8]])
    done = act(game, p0=RIGHT, p1=LEFT, p2=UP, p3=DOWN)
    assert done.dead[0].tolist() == [True] + [False] * 5
    assert cells(game, 0) == [[9, 0], [0, 0], [0, 19]]
    assert game.directions[0, 0] == DOWN


def test_without_room_to_respawn_the_game_ends(make_game):
    game = make_game(TINY)
    set_up(game, [Position([LONG, [[0, 0], [0, 1], [0, 2]]], [RIGHT, LEFT], [[0, 3]])])
    # The long snake enters the cell that the tail leaves, and the other runs into it: (0, 0), (0, 1), (2, 0) are free.
    done = game.step(torch.tensor([[UP, DOWN]]))
    assert done.dead.tolist() == [[False, True]]
    assert done.reward.tolist() == [[0, 0]]
    assert done.ended.tolist() == [True]
    assert game.lengths.tolist() == [[12, 0]] and game.score.tolist() == [[9, -3]]
    seen = position(game, 0)
    assert seen.snakes == [[[0, 2], *LONG[:-1]], []]
    assert seen.beans == [[0, 3]]


def test_a_game_ends_after_its_last_step(make_game):
    game = make_game(GameRules(max_steps=3), boards=5)
    endings = [game.step(torch.zeros(5, 6, dtype=torch.int64)).ended.tolist() for _ in range(3)]
    assert endings == [[False] * 5, [False] * 5, [True] * 5]
    assert game.time.tolist() == [4] * 5


def test_only_the_boards_in_the_mask_are_restarted(make_game):
    game = make_game(boards=4)
    play(game, 20, restart=False)
    before = game.state()
    game.restart(torch.tensor([True, False, True, False]))
    after = game.state()
    for name in before:
        assert torch.equal(before[name][[1, 3]], after[name][[1, 3]]), name
    assert after["time"].tolist() == [1, 21, 1, 21]
    assert after["length"][[0, 2]].tolist() == [[3] * 6] * 2
    assert after["episode"].tolist() == [2, 1, 2, 1]
    assert not torch.equal(before["head"][[0, 2]], after["head"][[0, 2]])


def test_each_episode_starts_differently(make_game):
    game = make_game(boards=8)
    first = game.board
    game.reset()
    assert not (game.board == first).flatten(1).all(1).any()


@pytest.mark.parametrize("rules", [SHORT, SNAKES_5P, SMALL], ids=["3v3", "5p", "crowded"])
def test_the_sparse_and_the_dense_step_are_equal(rules):
    games = [SnakesGame(rules, torch.arange(60), 9, CPU, sparse=sparse) for sparse in (True, False)]
    for game in games:
        game.reset()
    first, second = (play(game, 70) for game in games)
    assert equal(first, second)
    for name, tensor in games[0].state().items():
        if name not in ("ahead", "left", "grid"):
            assert torch.equal(tensor, games[1].state()[name]), name
    assert [position(games[0], b) for b in range(60)] == [position(games[1], b) for b in range(60)]


def test_a_board_does_not_depend_on_the_other_boards(make_game):
    together, alone = make_game(SHORT, boards=20, seed=4), make_game(SHORT, boards=3, seed=4, first=11)
    for many, few in zip(play(together, 60), play(alone, 60), strict=True):
        assert torch.equal(many[11:14], few)


def test_a_loaded_state_continues_identically_among_other_boards(make_game):
    game = make_game(SHORT, boards=6, seed=2)
    play(game, 17)
    state = game.state()
    expected = play(game, 50)
    other = make_game(SHORT, boards=2, seed=2, first=3)
    play(other, 9)
    other.load({name: tensor[3:5] for name, tensor in state.items()})
    assert equal(play(other, 50), [tensor[3:5] for tensor in expected])


def test_boards_with_different_clocks_continue_identically(make_game):
    game, states, expected = make_game(boards=4, seed=2), [], []
    for steps in (3, 4):
        play(game, steps)
        states.append(game.state())
    for state in states:
        game.load(state)
        expected.append(play(game, 20))
    game.load({name: alternating(early, states[1][name]) for name, early in states[0].items()})
    for early, late, seen in zip(*expected, play(game, 20), strict=True):
        assert torch.equal(seen, alternating(early, late))


def alternating(first, second):
    """Boards 0 and 2 from the first, boards 1 and 3 from the second."""
    mixed = second.clone()
    mixed[::2] = first[::2]
    return mixed


def test_another_seed_plays_another_game(make_game):
    assert not torch.equal(make_game(boards=3, seed=1).board, make_game(boards=3, seed=2).board)


def test_each_snakes_return_is_its_final_length_minus_three(make_game):
    game = make_game(boards=50)
    returns = torch.stack(play(game, 70, restart=False)[::4]).sum(0)
    assert torch.equal(returns, game.score.float())
    assert game.score.max() > 4


def test_stepping_a_board_that_ended_does_not_affect_the_others(make_game):
    game, others = make_game(TINY, boards=10, seed=3), make_game(TINY, boards=9, seed=3, first=1)
    set_up(
        game,
        [Position([LONG, [[0, 0], [0, 1], [0, 2]]], [RIGHT, LEFT], [[0, 3]])]
        + [position(game, b) for b in range(1, 10)],
    )
    for number in range(40):
        action = torch.cat((torch.tensor([[UP, DOWN]]), random_action(others, (0, 1))))
        done, expected = game.step(action), others.step(action[1:])
        assert bool(done.ended[0]) or number > 0
        assert torch.equal(done.reward[1:], expected.reward)
        assert torch.equal(game.board[1:], others.board)


def test_a_state_of_another_number_of_boards_is_refused_with_both_shapes(make_game):
    state = make_game(boards=3).state()
    with pytest.raises(UserError, match=r"grid has shape \(3, 200\), these rules and boards need \(4, 200\)"):
        make_game(boards=4).load(state)


@pytest.mark.gpu
def test_a_captured_gpu_step_equals_the_cpu_step():
    device = torch.device("cuda")
    game, twin = (SnakesGame(SNAKES_3V3, torch.arange(64), 1, where) for where in (device, CPU))
    game.reset()
    twin.reset()
    action = torch.zeros(64, 6, dtype=torch.int64, device=device)

    def step():
        done = game.step(action)
        game.restart(done.ended)
        return done

    recorded = Recording(step, device)
    for _ in range(230):
        moves = all_teams(greedy_action, twin)
        action.copy_(moves)
        done, expected = recorded(), twin.step(moves)
        twin.restart(expected.ended)
        assert torch.equal(done.reward.cpu(), expected.reward)
        assert torch.equal(game.board.cpu(), twin.board)

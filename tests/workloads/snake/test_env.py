import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.snake.env import DOWN, LEFT, RIGHT, UP, SnakeEnv
from lockstep.workloads.snake.expert import random_action, scripted_action
from lockstep.workloads.snake.food import free_cell
from lockstep.workloads.snake.rules import SnakeRules

CPU = torch.device("cpu")
RING = [(1, 1), (1, 2), (2, 2), (2, 1)]
"""A closed ring: the head (2, 1) lies right below the tail (1, 1)."""
ALL_BUT_ONE = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (1, 2), (1, 1), (1, 0)]
ALL_BUT_ONE += [(2, 0), (2, 1), (2, 2), (2, 3), (3, 3), (3, 2), (3, 1)]
"""Back and forth over the rows of a 4x4 board; (3, 0) is free."""


def make(count=8, seed=1, first=0, sparse=None, device=CPU, **rules):
    return SnakeEnv(SnakeRules(**rules), torch.arange(first, first + count), seed, device, sparse)


def one(set_up, action, snake, direction, food, steps=0, **rules):
    """One step of one board: the transition, and the environment before its restart."""
    board = {"snake": snake, "direction": direction, "food": food, "steps": steps}
    done = set_up(SnakeRules(**rules), [board]).step(torch.tensor([action]))
    half = set_up(SnakeRules(**rules), [board])
    half.advance(torch.tensor([action]))
    return done, half


def play(env, steps, scripted=0.8):
    """Everything that a number of steps return, flattened."""
    seen = []
    for _ in range(steps):
        expert = (env.clock + env.index) % 10 < 10 * scripted
        done = env.step(torch.where(expert, scripted_action(env), random_action(env)))
        final = [] if done.final_observation is None else [done.final_observation]
        seen += [done.observation, done.reward, done.terminated, done.truncated, *done.info.values(), *final]
    return seen


def same(first, second):
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("size", "cells"), [(12, [77, 78, 79]), (5, [11, 12, 13]), (4, [9, 10, 11])])
def test_an_episode_starts_with_three_cells_in_the_middle_heading_right(size, cells):
    env = make(3, grid_size=size)
    observation = env.reset()
    for board in range(3):
        assert env.cells(board) == cells
        assert observation[board, 0].flatten().nonzero().flatten().tolist() == cells
        assert observation[board, 1].flatten().nonzero().flatten().tolist() == [int(env.food[board])]
        assert observation[board, 2].flatten().nonzero().flatten().tolist() == cells[-1:]
    assert env.direction.tolist() == [RIGHT] * 3
    assert observation.dtype == torch.uint8
    assert observation.shape == (3, *env.observation_shape) == (3, 3, size, size)


def test_a_plain_move_costs_the_step_penalty_and_drops_the_tail(set_up):
    done, env = one(set_up, UP, [(2, 1), (2, 2), (2, 3)], RIGHT, (0, 0), grid_size=6)
    assert env.cells(0) == [2 * 6 + 2, 2 * 6 + 3, 1 * 6 + 3]
    assert done.reward.tolist() == [torch.tensor(-0.01).item()]
    assert not done.terminated.any()
    assert int(env.steps) == 1


def test_turning_round_is_ignored(set_up):
    _, env = one(set_up, LEFT, [(2, 1), (2, 2), (2, 3)], RIGHT, (0, 0), grid_size=6)
    assert int(env.direction) == RIGHT
    assert int(env.head) == 2 * 6 + 4


def test_eating_grows_the_snake_and_moves_the_food_to_a_free_cell(set_up):
    done, env = one(set_up, RIGHT, [(2, 1), (2, 2), (2, 3)], RIGHT, (2, 4), grid_size=6)
    assert env.cells(0) == [13, 14, 15, 16]
    assert done.reward.tolist() == [1.0]
    assert done.info["length"].tolist() == [4]
    assert int(env.food) not in env.cells(0)


@pytest.mark.parametrize(
    ("action", "snake", "direction"),
    [
        (LEFT, [(1, 1), (0, 1), (0, 0)], LEFT),
        (RIGHT, [(0, 1), (0, 2), (0, 3)], RIGHT),
        (UP, [(1, 1), (0, 1), (0, 0)], LEFT),
        (DOWN, [(2, 1), (3, 1), (3, 2)], RIGHT),
        (UP, RING, LEFT),
    ],
    ids=["left wall", "right wall", "top wall", "bottom wall", "tail cell"],
)
def test_walls_and_the_tail_cell_kill_and_the_snake_stays_where_it_was(set_up, action, snake, direction):
    done, env = one(set_up, action, snake, direction, (2, 3), grid_size=4)
    assert done.terminated.tolist() == [True]
    assert done.truncated.tolist() == [False]
    assert done.reward.tolist() == [-1.0]
    assert done.info["length"].tolist() == [len(snake)]
    assert env.cells(0) == [4 * row + column for row, column in snake]
    assert int(env.direction) == action


def test_an_ended_episode_restarts_within_the_same_step(set_up):
    env = set_up(SnakeRules(grid_size=4), [{"snake": RING, "direction": LEFT, "food": (3, 3), "steps": 70}])
    done = env.step(torch.tensor([UP]))
    assert env.cells(0) == [9, 10, 11]
    assert (int(env.steps), int(env.length), int(env.clock)) == (0, 3, 1)
    assert int(env.food) not in (9, 10, 11)
    assert done.observation[0, 0].flatten().nonzero().flatten().tolist() == [9, 10, 11]


@pytest.mark.parametrize("time_limit", ["death", "truncation"])
def test_eating_the_last_free_cell_wins(set_up, time_limit):
    done, env = one(set_up, LEFT, ALL_BUT_ONE, LEFT, (3, 0), steps=30, grid_size=4, time_limit=time_limit)
    assert done.reward.tolist() == [1.0]
    assert done.terminated.tolist() == [True]
    assert done.truncated.tolist() == [False]
    assert done.info["won"].tolist() == [True]
    assert done.info["length"].tolist() == [16]
    assert env.body.all()
    assert env.load(env.state())[0, 1].sum() == 0, "a full board shows no food"
    assert done.observation[0, 0].sum() == 3


def test_a_win_on_the_last_step_is_a_win_where_the_limit_truncates(set_up):
    done, _ = one(set_up, LEFT, ALL_BUT_ONE, LEFT, (3, 0), 9, grid_size=4, max_steps=10, time_limit="truncation")
    assert (done.terminated.item(), done.truncated.item(), done.info["won"].item()) == (True, False, True)


def test_the_time_limit_is_a_death_even_with_food_under_the_head(set_up):
    snake = [(2, 1), (2, 2), (2, 3)]
    done, env = one(set_up, RIGHT, snake, RIGHT, (2, 4), steps=24, grid_size=6, max_steps=25)
    assert (done.terminated.item(), done.truncated.item(), done.reward.item()) == (True, False, -1.0)
    assert env.cells(0) == [13, 14, 15]
    assert done.final_observation is None


def test_the_time_limit_as_truncation_keeps_the_reward_and_shows_the_last_board(set_up):
    snake = [(2, 1), (2, 2), (2, 3)]
    limit = {"grid_size": 6, "max_steps": 25, "time_limit": "truncation"}
    done, _ = one(set_up, RIGHT, snake, RIGHT, (2, 4), steps=24, **limit)
    assert (done.terminated.item(), done.truncated.item(), done.reward.item()) == (False, True, 1.0)
    assert done.final_observation[0, 0].flatten().nonzero().flatten().tolist() == [13, 14, 15, 16]
    assert done.final_observation[0, 1].sum() == 1
    assert done.observation[0, 0].sum() == 3
    done, _ = one(set_up, DOWN, [(4, 1), (5, 1), (5, 2)], RIGHT, (0, 0), steps=24, **limit)
    assert (done.terminated.item(), done.truncated.item(), done.reward.item()) == (True, False, -1.0)


def test_the_default_time_limit_is_200_steps_for_each_row():
    assert SnakeRules().step_limit == 2400
    assert SnakeRules(grid_size=8).step_limit == 1600
    assert SnakeRules(max_steps=7).step_limit == 7


def test_the_distance_reward_uses_the_new_food_after_eating(set_up):
    snake = [(2, 1), (2, 2), (2, 3)]
    done, _ = one(set_up, RIGHT, snake, RIGHT, (0, 5), grid_size=6, distance_reward_scale=0.5)
    assert done.reward.item() == pytest.approx(-0.01 + 0.5)
    done, _ = one(set_up, DOWN, snake, RIGHT, (0, 5), grid_size=6, distance_reward_scale=0.5)
    assert done.reward.item() == pytest.approx(-0.01 - 0.5)
    done, env = one(set_up, RIGHT, snake, RIGHT, (2, 4), grid_size=6, distance_reward_scale=0.5)
    row, column = divmod(int(env.food), 6)
    assert done.reward.item() == pytest.approx(1.0 + 0.5 * (1 - abs(row - 2) - abs(column - 4)))


def test_frames_are_stacked_oldest_first_and_a_restart_fills_with_copies():
    env, plain = make(6, grid_size=5, frame_stack=3), make(6, grid_size=5)
    stacked, frame = env.reset(), plain.reset()
    past = [frame] * 3
    for _ in range(60):
        assert torch.equal(stacked, torch.cat(past, dim=1))
        action = random_action(env)
        stacked, done = env.step(action).observation, plain.step(action)
        ended = done.terminated[:, None, None, None]
        past = [torch.where(ended, done.observation, old) for old in past[1:]] + [done.observation]


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"time_limit": "truncation", "max_steps": 13, "frame_stack": 2},
        {"distance_reward_scale": 0.01, "max_steps": 9},
    ],
    ids=["plain", "truncation", "shaped"],
)
class TestSameBitsWhatever:
    def test_batch_a_board_sits_in(self, rules):
        whole, low, high = (
            make(8, grid_size=5, **rules),
            make(4, grid_size=5, **rules),
            make(4, first=4, grid_size=5, **rules),
        )
        starts = [env.reset() for env in (whole, low, high)]
        assert torch.equal(starts[0], torch.cat(starts[1:]))
        halves = [torch.cat(pair) for pair in zip(play(low, 80), play(high, 80), strict=True)]
        assert same(play(whole, 80), halves)

    def test_moment_a_state_was_saved_and_loaded(self, rules):
        env, other = make(8, grid_size=5, **rules), make(8, grid_size=5, **rules)
        env.reset(), other.reset()
        play(env, 37), play(other, 5)
        other.load(env.state())
        assert same(play(env, 60), play(other, 60))
        assert same(list(env.state().values()), list(other.state().values()))

    def test_lanes_of_different_clocks_were_put_together(self, rules):
        early, late = make(4, grid_size=5, **rules), make(4, first=4, grid_size=5, **rules)
        early.reset(), late.reset()
        play(early, 2), play(late, 41)
        both = make(8, grid_size=5, **rules)
        both.load({name: torch.cat((part, late.state()[name])) for name, part in early.state().items()})
        assert same(play(both, 70), [torch.cat(pair) for pair in zip(play(early, 70), play(late, 70), strict=True)])

    def test_way_the_few_boards_that_need_something_are_found(self, rules):
        few, all_boards = make(8, grid_size=5, sparse=True, **rules), make(8, grid_size=5, sparse=False, **rules)
        assert torch.equal(few.reset(), all_boards.reset())
        assert same(play(few, 120), play(all_boards, 120))
        assert torch.equal(few.reset(), all_boards.reset())
        assert torch.equal(few.reset(), all_boards.reset())

    def test_deterministic_kernels_are_asked_for(self, rules):
        env, other = make(8, grid_size=5, **rules), make(8, grid_size=5, **rules)
        env.reset(), other.reset()
        free = play(env, 30)
        torch.use_deterministic_algorithms(True)
        try:
            assert same(free, play(other, 30))
        finally:
            torch.use_deterministic_algorithms(False)

    def test_nothing_is_read_back_on_the_path_for_capture(self, rules):
        # A tensor without data cannot be read: any read-back or data-dependent shape raises here.
        env = make(8, sparse=False, device=torch.device("meta"), **rules)
        assert env.reset().shape == (8, *env.observation_shape)
        action = scripted_action(env)
        assert env.step(action).observation.shape == (8, *env.observation_shape)


def test_the_state_stays_in_the_same_memory():
    env = make(8, grid_size=4, frame_stack=2)
    before = {name: tensor.data_ptr() for name, tensor in env._tensors().items()}
    env.reset()
    play(env, 30)
    env.load(env.state())
    assert before == {name: tensor.data_ptr() for name, tensor in env._tensors().items()}


@pytest.mark.parametrize("frame_stack", [1, 2])
def test_a_later_step_does_not_change_earlier_results(frame_stack):
    env = make(8, grid_size=4, frame_stack=frame_stack, time_limit="truncation", max_steps=5)
    env.reset()
    seen = play(env, 5)
    copies = [tensor.clone() for tensor in seen]
    state = env.state()
    saved = {name: tensor.clone() for name, tensor in state.items()}
    play(env, 5)
    assert same(seen, copies)
    assert same(list(state.values()), list(saved.values()))


def chi_square(counts):
    counts = counts.double()
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_first_foods_are_uniform_over_the_free_cells():
    env = make(20_000, seed=11, grid_size=8)
    env.reset()
    free = [cell for cell in range(64) if cell not in (35, 36, 37)]
    counts = torch.bincount(env.food, minlength=64)
    assert counts[[35, 36, 37]].sum() == 0
    assert chi_square(counts[free]) < 99.6, "exceeded with probability 0.001 at 60 degrees of freedom"


def test_later_foods_are_uniform_and_independent_of_the_one_before(set_up):
    board = {"snake": [(0, 0), (0, 1), (0, 2)], "direction": RIGHT, "food": (0, 3)}
    env = set_up(SnakeRules(grid_size=4), [board] * 20_000, seed=3)
    env.advance(torch.full((20_000,), RIGHT))
    eaten = env.food.clone()
    assert chi_square(torch.bincount(eaten, minlength=16)[4:]) < 31.3, "11 degrees of freedom"
    env.reset()
    free = torch.tensor([cell for cell in range(16) if cell not in (9, 10, 11)])
    pairs = torch.bincount((eaten - 4) * 16 + env.food, minlength=12 * 16).view(12, 16)[:, free]
    assert chi_square(pairs.flatten()) < 214.0, "155 degrees of freedom"


def test_food_is_the_free_cell_chosen_by_its_random_word():
    body = torch.tensor([[True, False, True, False, False, True]] * 4)
    word = torch.tensor([0, 2**32 // 3, 2**32 // 3 + 1, 2**32 - 1])
    assert free_cell(body, torch.full((4,), 3), word).tolist() == [1, 1, 3, 4]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"grid_size": 3}, "grid_size 3: out of range; allowed: a whole number from 4 to 128"),
        ({"max_steps": 0}, "max_steps 0: out of range; allowed: a whole number from 1 to 1_000_000 or none"),
        ({"frame_stack": 0}, "frame_stack 0: out of range; allowed: a whole number from 1 to 16"),
        ({"distance_reward_scale": -0.1}, "distance_reward_scale -0.1: out of range; allowed: a number of at least 0"),
        ({"time_limit": "end"}, "time_limit end: no such choice; allowed: one of death, truncation"),
    ],
)
def test_invalid_rules_are_refused(rules, message):
    with pytest.raises(UserError) as refused:
        SnakeRules(**rules)
    assert str(refused.value) == message


def test_a_state_of_another_board_size_is_refused():
    env = make(2, grid_size=5)
    env.reset()
    with pytest.raises(UserError, match=r"body has shape \(2, 25\), these rules and boards need \(2, 36\)"):
        make(2, grid_size=6).load(env.state())


@pytest.mark.gpu
def test_a_captured_step_plays_as_on_the_cpu():
    device = torch.device("cuda")
    rules = {"grid_size": 6, "max_steps": 40, "time_limit": "truncation"}
    env, plain = make(64, device=device, **rules), make(64, **rules)
    env.reset(), plain.reset()
    action = torch.zeros(64, dtype=torch.int64, device=device)
    stream = torch.cuda.Stream()
    start = env.state()
    with torch.cuda.stream(stream):
        action.copy_(scripted_action(env))
        env.step(action)
    torch.cuda.current_stream().wait_stream(stream)
    env.load(start)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        action.copy_(scripted_action(env))
        done = env.step(action)
    env.load(start)
    for _ in range(100):
        graph.replay()
        expected = plain.step(scripted_action(plain))
        assert torch.equal(done.observation.cpu(), expected.observation)
        assert torch.equal(done.final_observation.cpu(), expected.final_observation)
        assert torch.equal(done.reward.cpu(), expected.reward)
        assert torch.equal(done.truncated.cpu(), expected.truncated)

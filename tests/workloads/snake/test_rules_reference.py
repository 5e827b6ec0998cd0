"""The tensor environment against a reference implementation of the rules: one board, lists of cells, no tensors."""

from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.expert import scripted_action
from lockstep.workloads.snake.rules import SnakeRules

BOARDS, STEPS, EXAMPLES, QUICK = 48, 90, 24, 6
DELTAS = [(0, -1), (0, 1), (-1, 0), (1, 0)]


class PlainSnake:
    """One board by the rules. Food is random, so `food` is set from outside."""

    def __init__(self, rules):
        self.rules = rules

    def begin(self, food):
        size = self.rules.grid_size
        row = size // 2
        self.snake = [(row, row - 1), (row, row), (row, row + 1)]
        self.direction, self.steps, self.food = 1, 0, food
        self.frames = deque([self.picture()] * self.rules.frame_stack, maxlen=self.rules.frame_stack)

    def step(self, action, food_after):
        """Returns reward, terminated, truncated, whether it ate; food_after: where food lies if this step eats."""
        rules, before = self.rules, self.distance()
        limit = rules.max_steps or 200 * rules.grid_size
        if DELTAS[action] != tuple(-part for part in DELTAS[self.direction]):
            self.direction = action
        (row, column), (down, right) = self.snake[-1], DELTAS[self.direction]
        head = (row + down, column + right)
        self.steps += 1
        inside = all(0 <= part < rules.grid_size for part in head)
        out_of_time = self.steps >= limit
        dead = not inside or head in self.snake or (out_of_time and rules.time_limit == "death")
        ate = not dead and head == self.food
        won = False
        if dead:
            reward = rules.death_penalty
        elif ate:
            reward = rules.food_reward
            self.snake.append(head)
            won = len(self.snake) == rules.grid_size**2
            self.food = head if won else food_after
        else:
            reward = rules.step_penalty
            self.snake = [*self.snake[1:], head]
        reward += rules.distance_reward_scale * (before - self.distance())
        self.frames.append(self.picture())
        return reward, dead or won, out_of_time and not (dead or won), ate

    def distance(self):
        return sum(abs(a - b) for a, b in zip(self.snake[-1], self.food, strict=True))

    def picture(self):
        size = self.rules.grid_size
        planes = np.zeros((3, size, size), dtype=np.uint8)
        for row, column in self.snake:
            planes[0, row, column] = 1
        if self.food not in self.snake:
            planes[1][self.food] = 1
        planes[2][self.snake[-1]] = 1
        return planes

    def observation(self):
        return np.concatenate(self.frames)


def foods(env):
    size = env.rules.grid_size
    return [divmod(cell, size) for cell in env.food.tolist()]


def cells(env, board):
    return [divmod(cell, env.rules.grid_size) for cell in env.cells(board)]


def mixed_actions(env, numbers):
    """Mostly the scripted player's move, so that snakes get long, otherwise a random one, so that they die."""
    any_move = torch.from_numpy(numbers.integers(4, size=env.count))
    return torch.where(torch.from_numpy(numbers.random(env.count) < 0.12), any_move, scripted_action(env))


def play_side_by_side(rules, seed, sparse):
    env, twin = (SnakeEnv(rules, torch.arange(BOARDS) + 5, seed, torch.device("cpu"), sparse=sparse) for _ in range(2))
    observation = env.reset()
    assert torch.equal(observation, twin.reset())
    plain = [PlainSnake(rules) for _ in range(BOARDS)]
    for board, food in zip(plain, foods(env), strict=True):
        board.begin(food)
        assert food not in board.snake
    assert np.array_equal(observation.numpy(), [board.observation() for board in plain])
    numbers = np.random.default_rng(seed)
    for _ in range(STEPS):
        compare_step(env, twin, plain, mixed_actions(env, numbers))


def compare_step(env, twin, plain, action):
    """One step of all boards; the twin advances and restarts separately, so that the end of an episode can be seen."""
    half = twin.advance(action)
    fell, bodies = foods(twin), [cells(twin, i) for i in range(BOARDS)]
    whole = env.step(action)
    ended = whole.terminated | whole.truncated
    assert torch.equal(half.reward, whole.reward)
    results = zip(*(t.tolist() for t in (whole.reward, whole.terminated, whole.truncated)), strict=True)
    lengths, won = whole.info["length"].tolist(), whole.info["won"].tolist()
    for i, (board, move, result) in enumerate(zip(plain, action.tolist(), results, strict=True)):
        food_before = board.food
        reward, terminated, truncated, ate = board.step(move, fell[i])
        assert (float(np.float32(reward)), terminated, truncated) == result
        assert bodies[i] == board.snake
        assert len(board.snake) == lengths[i]
        assert won[i] == (len(board.snake) == env.rules.cells)
        if not ate:
            assert fell[i] == food_before
        elif not terminated:
            assert fell[i] not in board.snake
    final = np.stack([board.observation() for board in plain])
    assert np.array_equal(half.observation.numpy(), final)
    if env.rules.truncates:
        assert np.array_equal(whole.final_observation.numpy(), final)
    else:
        assert whole.final_observation is None
    assert torch.equal(whole.observation, twin.restart(ended))
    for i, food in enumerate(foods(env)):
        if ended[i]:
            plain[i].begin(food)
            assert food not in plain[i].snake
    assert np.array_equal(whole.observation.numpy(), [board.observation() for board in plain])


ANY_RULES = st.builds(
    SnakeRules,
    grid_size=st.integers(4, 16),
    max_steps=st.none() | st.integers(1, 120),
    distance_reward_scale=st.sampled_from([0.0, 0.01, 0.5]),
    frame_stack=st.integers(1, 4),
    time_limit=st.sampled_from(["death", "truncation"]),
    food_reward=st.just(1.5),
    death_penalty=st.just(-2.0),
)


@pytest.mark.parametrize("examples", [QUICK, pytest.param(EXAMPLES, marks=pytest.mark.slow)])
def test_every_step_equals_the_reference_implementation(examples):
    @settings(max_examples=examples, deadline=None, derandomize=True)
    @given(rules=ANY_RULES, seed=st.integers(0, 2**63 - 1), sparse=st.booleans())
    def compare(rules, seed, sparse):
        play_side_by_side(rules, seed, sparse)

    compare()


def test_the_comparison_covers_a_hundred_thousand_steps():
    assert BOARDS * STEPS * EXAMPLES > 100_000

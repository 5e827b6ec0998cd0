"""The same game and network trained by other libraries, as their users would write it, for `bench --against`."""

import functools
import random
from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lockstep.workloads.snake.rules import SnakeRules
from lockstep.workloads.snake.sb3 import PlainFeatures, make_ppo
from lockstep.workloads.snake.settings import SnakeConfig

Frame = NDArray[np.uint8]
Cell = tuple[int, int]
_MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))


class PlainSnakeEnv(gymnasium.Env[Frame, int]):
    """One board in plain Python, as a list of cells: for one board this is much faster than tensors."""

    def __init__(self, rules: SnakeRules, seed: int = 0) -> None:
        self.rules = rules
        shape = (3 * rules.frame_stack, rules.grid_size, rules.grid_size)
        self.observation_space = spaces.Box(0, 1, shape, np.uint8)
        self.action_space: spaces.Space[Any] = spaces.Discrete(4)
        self._random = random.Random(seed)
        self._frames: deque[Frame] = deque(maxlen=rules.frame_stack)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._random.seed(seed)
        middle = self.rules.grid_size // 2
        self.snake = [(middle, middle - 1), (middle, middle), (middle, middle + 1)]
        self.direction, self.steps = 1, 0
        self.food = self._free_cell()
        self._frames.extend([self._frame()] * self.rules.frame_stack)
        return self._observation(), {}

    def step(self, action: int) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Take one action."""
        rules = self.rules
        distance = self._distance() if rules.distance_reward_scale else 0
        if action != self.direction ^ 1:
            self.direction = int(action)
        (row, column), (down, right) = self.snake[-1], _MOVES[self.direction]
        head = row + down, column + right
        self.steps += 1
        late = self.steps >= rules.step_limit
        inside = 0 <= head[0] < rules.grid_size and 0 <= head[1] < rules.grid_size
        # The tail still counts as body, as in our environment.
        died = not inside or head in self.snake or (late and not rules.truncates)
        won, reward = False, rules.death_penalty
        if not died:
            won, reward = self._advance(head)
        if rules.distance_reward_scale:
            reward += rules.distance_reward_scale * (distance - self._distance())
        self._frames.append(self._frame())
        return self._observation(), reward, died or won, late and rules.truncates and not (died or won), {}

    def _advance(self, head: Cell) -> tuple[bool, float]:
        """Move the snake; returns whether the board is full, and the reward."""
        self.snake.append(head)
        if head != self.food:
            del self.snake[0]
            return False, self.rules.step_penalty
        won = len(self.snake) == self.rules.cells
        if not won:
            self.food = self._free_cell()
        return won, self.rules.food_reward

    def _free_cell(self) -> Cell:
        size = self.rules.grid_size
        # Rejection sampling: fast while the board is mostly free, and still correct when it is not.
        while True:
            number = self._random.randrange(size * size)
            cell = number // size, number % size
            if cell not in self.snake:
                return cell

    def _distance(self) -> int:
        (row, column), (food_row, food_column) = self.snake[-1], self.food
        return abs(row - food_row) + abs(column - food_column)

    def _frame(self) -> Frame:
        """Planes of body, food and head."""
        size = self.rules.grid_size
        frame = np.zeros((3, size, size), np.uint8)
        body, food, head = frame
        for cell in self.snake:
            body[cell] = 1
        head[self.snake[-1]] = 1
        if self.food != self.snake[-1]:
            food[self.food] = 1
        return frame

    def _observation(self) -> Frame:
        return self._frames[0] if len(self._frames) == 1 else np.concatenate(self._frames)


def train_with_sb3(config: SnakeConfig, updates: int, device: str) -> int:
    """Continue training with Stable-Baselines3's PPO; returns the environment steps. Needs stable-baselines3."""
    steps = updates * config.algorithm.rollout_size
    sb3_learner(config, device).learn(total_timesteps=steps, reset_num_timesteps=False)
    return steps


@functools.cache
def sb3_learner(config: SnakeConfig, device: str) -> Any:
    """Stable-Baselines3's PPO with this configuration's sizes and network; cached: later calls continue training it."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    settings, first = config.algorithm, config.run.seed
    seeds = range(first, first + settings.n_envs)
    boards = DummyVecEnv([functools.partial(PlainSnakeEnv, config.workload, seed) for seed in seeds])
    sizes = {"n_steps": settings.n_steps, "batch_size": settings.batch_size}
    return make_ppo(config, boards, PlainFeatures, **sizes, device=device)


TRAINERS = {"sb3": train_with_sb3}
"""By the names in `Snake.peers`."""

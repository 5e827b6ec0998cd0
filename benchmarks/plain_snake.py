"""Snake as one usually writes it for Gymnasium, one board in plain Python: the yardstick for the batched one."""

import random

import gymnasium
import numpy as np


class PlainSnakeEnv(gymnasium.Env):
    """One board with a list of cells; the rules, rewards and observations of `lockstep/Snake-v0`."""

    moves = ((0, -1), (0, 1), (-1, 0), (1, 0))

    def __init__(self, grid_size=12):
        self.size, self.max_steps = grid_size, 200 * grid_size
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (3, grid_size, grid_size), np.float32)
        self.action_space = gymnasium.spaces.Discrete(4)
        self.random = random.Random(0)

    def reset(self, *, seed=None, options=None):
        """Start an episode; returns the observation and an empty info."""
        super().reset(seed=seed)
        if seed is not None:
            self.random = random.Random(seed)
        middle = self.size // 2
        self.snake = [(middle, middle - 1), (middle, middle), (middle, middle + 1)]
        self.direction, self.steps = 1, 0
        self.place_food()
        return self.observe(), {}

    def step(self, action):
        """Gymnasium's five values."""
        if action != self.direction ^ 1:
            self.direction = action
        (row, column), (down, right) = self.snake[-1], self.moves[self.direction]
        row, column = head = row + down, column + right
        self.steps += 1
        inside = 0 <= row < self.size and 0 <= column < self.size
        reward, ended = -0.01, False
        if not inside or head in self.snake or self.steps >= self.max_steps:
            reward, ended = -1.0, True
        else:
            self.snake.append(head)
            if head == self.food:
                reward, ended = 1.0, len(self.snake) == self.size**2
                if not ended:
                    self.place_food()
            else:
                del self.snake[0]
        return self.observe(), reward, ended, False, {"length": len(self.snake)}

    def place_food(self):
        """Put the food on a random free cell."""
        taken = set(self.snake)
        cells = ((row, column) for row in range(self.size) for column in range(self.size))
        self.food = self.random.choice([cell for cell in cells if cell not in taken])

    def observe(self):
        """Planes of body, food and head."""
        planes = np.zeros((3, self.size, self.size), dtype=np.float32)
        for row, column in self.snake:
            planes[0, row, column] = 1.0
        planes[1][self.food] = 1.0
        planes[2][self.snake[-1]] = 1.0
        return planes

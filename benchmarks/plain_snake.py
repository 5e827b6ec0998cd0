"""Snake as one usually writes it, one board in plain Python: the yardstick for the batched environment."""

import random

import numpy as np


class PlainSnakeEnv:
    """One board with a list of cells; rules and observation as in `lockstep.workloads.snake`."""

    moves = ((0, -1), (0, 1), (-1, 0), (1, 0))

    def __init__(self, grid_size=12, seed=0):
        self.size, self.max_steps = grid_size, 200 * grid_size
        self.random = random.Random(seed)

    def reset(self):
        """Start an episode; returns the observation."""
        middle = self.size // 2
        self.snake = [(middle, middle - 1), (middle, middle), (middle, middle + 1)]
        self.direction, self.steps = 1, 0
        self.place_food()
        return self.observe()

    def step(self, action):
        """Returns observation, reward and whether the episode ended; starts the next one by itself."""
        if action != self.direction ^ 1:
            self.direction = action
        (row, column), (down, right) = self.snake[-1], self.moves[self.direction]
        row, column = head = row + down, column + right
        self.steps += 1
        inside = 0 <= row < self.size and 0 <= column < self.size
        if not inside or head in self.snake or self.steps >= self.max_steps:
            return self.reset(), -1.0, True
        self.snake.append(head)
        if head != self.food:
            del self.snake[0]
            return self.observe(), -0.01, False
        if len(self.snake) == self.size**2:
            return self.reset(), 1.0, True
        self.place_food()
        return self.observe(), 1.0, False

    def place_food(self):
        """Put the food on a free cell: by trial, which is quick while the board is mostly free."""
        while True:
            self.food = self.random.randrange(self.size), self.random.randrange(self.size)
            if self.food not in self.snake:
                return

    def observe(self):
        """Planes of body, food and head."""
        planes = np.zeros((3, self.size, self.size), dtype=np.uint8)
        for row, column in self.snake:
            planes[0, row, column] = 1
        planes[1][self.food] = 1
        planes[2][self.snake[-1]] = 1
        return planes

"""An environment of your own in a file: a maze whose walls are drawn anew for every episode.

lockstep check ./maze.py                                     what is wrong with it
lockstep train ./maze.py                                     or lockstep train maze:Maze
lockstep train ./maze.py --ranks 2 --sync exact              the same bits on two ranks
lockstep verify ./maze.py --ranks 1,2,4                      the proof
"""

import gymnasium
import numpy as np
from gymnasium import spaces

SIZE = 7
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
WALL, AGENT, DOOR = 0, 1, 2


class Maze(gymnasium.Env):
    """Find the door; the observation is a picture of the maze and the direction of the door."""

    observation_space = spaces.Dict(
        {"picture": spaces.MultiBinary((3, SIZE, SIZE)), "door": spaces.Box(-1.0, 1.0, (2,), np.float32)}
    )
    action_space = spaces.Discrete(4)
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, walls: int = 8, render_mode: str | None = None) -> None:
        self.walls, self.render_mode = walls, render_mode

    def reset(self, *, seed=None, options=None):
        """Draw walls, agent and door; every random number comes from self.np_random, which the seed determines."""
        super().reset(seed=seed)
        cells = self.np_random.permutation(SIZE * SIZE)[: self.walls + 2]
        places = np.stack(np.divmod(cells, SIZE), 1)
        self.agent, self.door, self.steps = places[0], places[1], 0
        self.blocked = {tuple(place) for place in places[2:]}
        return self._observation(), {}

    def step(self, action):
        """Move by one cell, unless there is a wall."""
        target = self.agent + MOVES[action]
        if ((target >= 0) & (target < SIZE)).all() and tuple(target) not in self.blocked:
            self.agent = target
        self.steps += 1
        found = bool((self.agent == self.door).all())
        # Being out of time is truncation, not an end by the rules: the value of the rest is estimated.
        return self._observation(), 1.0 if found else -0.02, found, not found and self.steps >= 60, {}

    def render(self):
        """A picture for `lockstep play RUN --video maze.gif`."""
        picture = np.full((SIZE, SIZE, 3), 40, np.uint8)
        for place in self.blocked:
            picture[place] = (120, 120, 130)
        picture[tuple(self.door)], picture[tuple(self.agent)] = (90, 160, 255), (190, 242, 100)
        return np.kron(picture, np.ones((24, 24, 1), np.uint8))

    def _observation(self):
        picture = np.zeros((3, SIZE, SIZE), np.int8)
        for place in self.blocked:
            picture[WALL][place] = 1
        picture[AGENT][tuple(self.agent)] = picture[DOOR][tuple(self.door)] = 1
        return {"picture": picture, "door": ((self.door - self.agent) / SIZE).astype(np.float32)}

"""A small environment whose numbers can be worked out by hand, alone and as vectors with every way of resetting."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv


class Counting(gymnasium.Env):
    """Episodes end by the rules after 3 steps and by truncation after 5, in turn; a step earns its number.

    It sees (number of the episode, step, the last action).
    """

    observation_space, action_space = Box(-100, 100, (3,), np.float32), Discrete(4)

    def __init__(self):
        self.episode, self.time = 0, 0

    def see(self, action=0):
        return np.array([self.episode, self.time, action], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # An episode without a step is no episode: environments are also reset to look at them.
        self.episode, self.time = self.episode + (self.time > 0), 0
        return self.see(), {}

    def step(self, action):
        self.time += 1
        even = self.episode % 2 == 0
        return self.see(action), float(self.time), even and self.time == 3, not even and self.time == 5, {}


class Guessing(gymnasium.Env):
    """Paid for the action that it shows; episodes of 5 steps, which follow from the environment's random numbers."""

    observation_space, action_space = Box(0, 3, (1,), np.float32), Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.see(), {}

    def see(self):
        self.wanted = int(self.np_random.integers(3))
        return np.array([self.wanted], np.float32)

    def step(self, action):
        self.time += 1
        reward = float(action == self.wanted)
        return self.see(), reward, False, self.time == 5, {}


def _vector(kind, num_envs, mode, processes=False):
    return (AsyncVectorEnv if processes else SyncVectorEnv)([kind] * num_envs, autoreset_mode=mode)


def next_step(num_envs):
    return _vector(Counting, num_envs, AutoresetMode.NEXT_STEP)


def same_step(num_envs):
    return _vector(Counting, num_envs, AutoresetMode.SAME_STEP)


def disabled(num_envs):
    return _vector(Counting, num_envs, AutoresetMode.DISABLED)


def processes(num_envs):
    return _vector(Counting, num_envs, AutoresetMode.SAME_STEP, processes=True)


def guesses(num_envs):
    return _vector(Guessing, num_envs, AutoresetMode.NEXT_STEP)


class Native(VectorEnv):
    """Counts for all environments at once, takes one seed for all, and saves its state."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs, limit=4):
        self.num_envs, self.limit = num_envs, limit
        self.single_observation_space, self.single_action_space = Box(-1e9, 1e9, (2,), np.float32), Discrete(2)
        self.observation_space = Box(-1e9, 1e9, (num_envs, 2), np.float32)
        self.action_space = gymnasium.spaces.MultiDiscrete([2] * num_envs)
        self.time, self.ended = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.bool_)

    def see(self):
        return np.stack((self.time, self.start), 1).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        assert isinstance(seed, int), "one seed for all"
        self.time[:], self.ended[:] = 0, False
        self.start = np.random.default_rng(seed).integers(1000, size=self.num_envs)
        return self.see(), {}

    def step(self, actions):
        self.time = np.where(self.ended, 0, self.time + 1)
        reward = np.where(self.ended, 0.0, actions)
        self.ended = self.time == self.limit
        return self.see(), reward, self.ended.copy(), np.zeros_like(self.ended), {}

    def state(self):
        return {"time": self.time, "ended": self.ended, "start": self.start}

    def load(self, state):
        self.time, self.ended, self.start = state["time"], state["ended"], state["start"]


class Silent(Native):
    metadata = {}


class Greedy(Native):
    def __init__(self, num_envs):
        super().__init__(num_envs + 1)


class Broken(Native):
    def step(self, actions):
        raise RuntimeError("out of numbers")


def fixed():
    return next_step(4)


def not_a_vector(num_envs):
    return Counting()

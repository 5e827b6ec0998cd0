"""Environments with one fault each, for tests; `Good` has none."""

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Good(gymnasium.Env):
    """A counter from a random start; ends at 10."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, limit=30):
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.value, self.steps = int(self.np_random.integers(0, 5)), 0
        return self.seen(), {}

    def step(self, action):
        self.value += 1 if action else -1
        self.steps += 1
        done = self.value >= 10
        return self.seen(), self.reward(), done, not done and self.steps >= self.limit, {}

    def reward(self):
        return 0.1 * self.value

    def seen(self):
        return np.array([self.value, self.steps], np.float32)


class NanReward(Good):
    def reward(self):
        return float("nan") if self.steps == 7 else 0.0


class InfiniteObservation(Good):
    def seen(self):
        return np.array([self.value, np.inf if self.steps == 3 else 0], np.float32)


class WrongShape(Good):
    def seen(self):
        return np.zeros(3 if self.steps == 2 else 2, np.float32)


class LyingSpace(Good):
    """Says floats up to 1 and returns larger ones."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)


class WrongType(Good):
    def seen(self):
        return np.array([self.value, self.steps], np.float64)


class Raises(Good):
    total = 0

    def step(self, action):
        self.total += 1
        if self.total == 100:
            raise RuntimeError("the simulator lost its mind")
        return super().step(action)


class NoMemory(Good):
    """As in a worker that has reached its limit of memory."""

    def step(self, action):
        if self.steps == 5:
            raise MemoryError
        return super().step(action)


class Exits(Good):
    def step(self, action):
        if self.steps == 9:
            raise SystemExit(7)
        return super().step(action)


class Recurses(Good):
    def step(self, action):
        return self.step(action)


class FailingClose(Good):
    def close(self):
        raise RuntimeError("it stays open")


class ColouredError(Good):
    def step(self, action):
        raise ValueError("it is \x1b[31mred\nand long")


class MissingKey(Good):
    observation_space = spaces.Dict({"place": spaces.Box(-1, 1, (2,)), "goal": spaces.Box(-1, 1, (1,))})

    def seen(self):
        place = {"place": np.zeros(2, np.float32)}
        return place if self.steps == 9 else {**place, "goal": np.zeros(1, np.float32)}


class OutsideDiscrete(Good):
    observation_space = spaces.Discrete(5)

    def seen(self):
        return 7 if self.steps == 9 else 2


class NoReward(Good):
    def reward(self):
        return None if self.steps == 9 else 0.0


class NanReset(Good):
    """Its fifth episode begins with no number."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.episodes += 1
        return observation * (np.nan if self.episodes == 5 else 1), info


class HangingReset(Good):
    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        if self.episodes == 3:
            time.sleep(600)
        return super().reset(seed=seed)


class HangingStep(Good):
    def step(self, action):
        while self.steps == 5:
            pass
        return super().step(action)


class Endless(Good):
    """Neither ends nor is cut off."""

    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, False, False, {}


class Unseeded(Good):
    """Draws from numpy's global generator."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.value = float(np.random.uniform(0, 5))
        return self.seen(), {}


class CarriesOver(Good):
    """Something of an episode is left in the next one."""

    left = 0

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        self.value += self.left
        self.left = (self.left + 1) % 3
        return self.seen(), info


class NoSeed(Good):
    def reset(self):
        return self.seen(), {}


class OldReset(Good):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(Good):
    def step(self, action):
        seen, reward, done, truncated, info = super().step(action)
        return seen, reward, done or truncated, info


class TextReward(Good):
    def reward(self):
        return "much"


class BadConstructor(Good):
    def __init__(self, missing):
        pass


class FailingConstructor(Good):
    def __init__(self):
        raise ValueError("no licence")


class ExitingConstructor(Good):
    def __init__(self):
        raise SystemExit(7)


class TextObservation(Good):
    observation_space = spaces.Text(10)


class TextAction(Good):
    action_space = spaces.Text(10)


class SavesState(Good):
    """Continues from its own state."""

    def state(self):
        return np.array([self.value, self.steps])

    def load(self, state):
        self.value, self.steps = (int(part) for part in state)


class ForgetsState(SavesState):
    """Its state lacks something that changes."""

    def state(self):
        return np.array([self.value])

    def load(self, state):
        (self.value,) = (int(part) for part in state)


class Pictures(Good):
    observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)

    def seen(self):
        return np.full((16, 16, 3), self.value % 256, np.uint8)


class Masked(Good):
    """Only one action is allowed at a time, as its info says."""

    def mask(self):
        return np.array([self.value % 2, 1 - self.value % 2], np.int8)

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"action_mask": self.mask()}

    def step(self, action):
        assert self.mask()[action], "a forbidden action"
        seen, reward, done, truncated, _ = super().step(action)
        return seen, reward, done, truncated, {"action_mask": self.mask()}


class NothingAllowed(Masked):
    """Forbids all actions after nine steps, although its episode goes on."""

    left = np.zeros(2, np.int8)

    def mask(self):
        return self.left if self.steps == 9 else super().mask()


class LongerMask(NothingAllowed):
    left = np.ones(3, np.int8)


class NoSecondChoice(Good):
    """Two choices of two and three actions; after nine steps no action of the second is allowed."""

    action_space = spaces.MultiDiscrete([2, 3])

    def mask(self):
        return np.array([1, 1, *[self.steps < 9] * 3], np.int8)

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"action_mask": self.mask()}

    def step(self, action):
        seen, reward, done, truncated, _ = super().step(action[0])
        return seen, reward, done, truncated, {"action_mask": self.mask()}


class Dies(Good):
    """Its process is killed."""

    def step(self, action):
        if self.steps == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class FailsLate(Good):
    """Takes a hundred steps, then does what a file says; nothing if it is empty."""

    total = 0

    def __init__(self, fault_file):
        super().__init__()
        self.fault_file = fault_file

    def step(self, action):
        self.total += 1
        fault = Path(self.fault_file).read_text() if self.total == 100 else ""
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        observation, reward, *rest = super().step(action)
        return observation, float("nan") if fault == "nan" else reward, *rest


class NotAnEnv:
    """Has the methods, and is no gymnasium.Env."""

    def reset(self):
        return 0

    def step(self, action):
        return 0


def make_good():
    return Good()


class FiftySteps(Good):
    """Pays 1 for each of exactly 50 steps; numbers outside any seed make it impossible to replay."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action):
        self.steps += 1
        return self.seen(), 1.0, False, self.steps >= 50, {}

    def seen(self):
        return np.array([np.random.uniform(), self.steps], np.float32)


class Snapshots(SavesState):
    """Continues from its own state, and is seen as images."""

    observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)

    def seen(self):
        return np.full((16, 16, 3), self.value % 256, np.uint8)

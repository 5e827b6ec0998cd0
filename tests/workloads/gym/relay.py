"""Small environments of several agents whose numbers can be worked out by hand."""

import time

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary
from pettingzoo import ParallelEnv


class Relay(ParallelEnv):
    """Agents a, b and c. In step 1 a ends by the rules, in step 3 b is cut off, and in step 4 c's time is up.

    An agent sees (its number, the seed modulo 1000, the step), and earns its action plus ten times its number.
    """

    metadata = {"name": "relay", "render_modes": ["rgb_array"]}
    possible_agents = ["a", "b", "c"]
    max_cycles = 4

    def __init__(self, ends=True, render_mode=None):
        self.ends, self.agents, self.render_mode = ends, [], render_mode

    def observation_space(self, agent):
        return Box(-np.inf, np.inf, (3,), np.float32)

    def action_space(self, agent):
        return Discrete(3)

    def see(self, agents):
        return {a: np.array([self.possible_agents.index(a), self.name, self.time], np.float32) for a in agents}

    def reset(self, seed=None, options=None):
        self.name, self.time, self.agents = seed % 1000, 0, list(self.possible_agents)
        return self.see(self.agents), {a: {} for a in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.time += 1
        present = self.agents
        rewards = {a: float(actions[a] + 10 * self.possible_agents.index(a)) for a in present}
        ended = {a: self.ends and a == "a" and self.time == 1 for a in present}
        cut = {a: self.time == 4 or (self.ends and a == "b" and self.time == 3) for a in present}
        self.agents = [a for a in present if not ended[a] and not cut[a]]
        return self.see(present), rewards, ended, cut, {a: {} for a in present}

    def render(self):
        return np.full((8, 12, 3), self.time, np.uint8)


class Steady(Relay):
    """All agents stay for 10 steps, and are paid for the action that they see in their last number."""

    max_cycles = 10

    def __init__(self, render_mode=None):
        super().__init__(ends=False)

    def see(self, agents):
        return {a: np.array([0, 0, self.wanted], np.float32) for a in agents}

    def reset(self, seed=None, options=None):
        self.generator = np.random.default_rng(seed)
        self.wanted = self.generator.integers(3)
        return super().reset(seed, options)

    def step(self, actions):
        self.time += 1
        rewards = {a: float(actions[a] == self.wanted) for a in self.agents}
        self.wanted = self.generator.integers(3)
        over = dict.fromkeys(self.agents, self.time == self.max_cycles)
        seen = self.see(self.agents)
        self.agents = [] if self.time == self.max_cycles else self.agents
        return seen, rewards, dict.fromkeys(seen, False), over, {a: {} for a in seen}


class Aiming(Steady):
    """The agents aim with two numbers from 0 to 4, and lose the distance of the first to the number they see."""

    def action_space(self, agent):
        return Box(0, 4, (2,), np.float32)

    def step(self, actions):
        wanted = self.wanted
        seen, _, ended, cut, info = super().step(dict.fromkeys(actions, 0))
        return seen, {a: -abs(float(actions[a][0]) - wanted) for a in actions}, ended, cut, info


class Pictures(Steady):
    """The same as images: 16 x 24 pixels of the wanted action's brightness."""

    def observation_space(self, agent):
        return Box(0, 255, (16, 24, 3), np.uint8)

    def see(self, agents):
        return {a: np.full((16, 24, 3), 100 * self.wanted, np.uint8) for a in agents}


class Unequal(Relay):
    def observation_space(self, agent):
        return Box(-1, 1, (3 if agent == "a" else 4,), np.float32)


class Switches(Relay):
    def action_space(self, agent):
        return MultiBinary(3)


class Forgetful(Relay):
    """Its episodes do not follow from their seeds."""

    def reset(self, seed=None, options=None):
        return super().reset(np.random.randint(1000), options)


class Nobody(Relay):
    possible_agents = []


class Endless(Steady):
    """Its agents never leave, and nothing says how long an episode may last."""

    max_cycles = 0


class Sleeping(Steady):
    def reset(self, seed=None, options=None):
        time.sleep(60)


class Failing(Steady):
    def step(self, actions):
        if self.time == 7:
            raise RuntimeError("the baton fell")
        return super().step(actions)


def relay():
    """Made by a function."""
    return Relay()

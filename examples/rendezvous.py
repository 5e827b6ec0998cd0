"""A PettingZoo environment of several agents, learned by multi-agent DDPG.

python rendezvous.py             or, without Python:  lockstep train rendezvous:Rendezvous --algorithm maddpg

Environments of other packages go the same way: `lockstep.train(lambda: pistonball_v6.parallel_env(continuous=False),
algorithm="maddpg", n_envs=32)`. Actions may be continuous as well, as in mpe2's `simple_spread_v3.parallel_env` with
`continuous_actions=True`.
"""

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

import lockstep

CELLS, STEPS = 9, 24


class Rendezvous(ParallelEnv):
    """Three agents walk on a line of nine cells; the nearer they are to each other, the more all of them earn."""

    metadata = {"name": "rendezvous"}
    possible_agents = ["a", "b", "c"]

    def observation_space(self, agent):
        """Three places from -1 to 1."""
        return gymnasium.spaces.Box(-1, 1, (3,))

    def action_space(self, agent):
        """Left, stay, right."""
        return gymnasium.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        """Agents begin on cells that the seed decides."""
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        self.cells = self.random.integers(0, CELLS, len(self.agents))
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions):
        """Everybody moves at once; an episode is cut off after 24 steps."""
        moves = np.array([int(actions[name]) - 1 for name in self.possible_agents])
        self.cells = np.clip(self.cells + moves, 0, CELLS - 1)
        self.steps += 1
        names, over = self.agents, self.steps == STEPS
        reward = -float(self.cells.max() - self.cells.min()) / CELLS
        if over:
            self.agents = []
        return (
            {name: seen for name, seen in self._seen().items() if name in names},
            dict.fromkeys(names, reward),
            dict.fromkeys(names, False),
            dict.fromkeys(names, over),
            {name: {} for name in names},
        )

    def _seen(self):
        """Each agent sees its own cell first, then the others'."""
        places = (2 * self.cells / (CELLS - 1) - 1).astype(np.float32)
        return {name: np.roll(places, -number) for number, name in enumerate(self.possible_agents)}


def main(**settings):
    """Train the team and return its run."""
    return lockstep.train(Rendezvous, algorithm="maddpg", **settings)


if __name__ == "__main__":
    run = main(total_timesteps=100_000)
    print(lockstep.evaluate(run, episodes=100)["return_mean"])

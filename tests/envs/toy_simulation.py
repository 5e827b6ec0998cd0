"""A simulation that needs no package: a point that is pushed along a line, from a place that its seed decides."""

import numpy as np

from lockstep.envs.simulation import Outcome


class Point:
    """Ends by the rules far from the origin."""

    def reset(self, seed):
        self.place = np.random.RandomState(seed).uniform(-1, 1)
        return self._seen()

    def step(self, action):
        self.place += 0.25 * float(action[0])
        far = abs(self.place) > 1.5
        return Outcome(self._seen(), -abs(self.place), terminated=far, truncated=False, success=float(not far))

    def save(self):
        return np.array([self.place])

    def restore(self, seed, state):
        (self.place,) = state

    def render(self, height, width):
        return np.zeros((height, width, 3), np.uint8)

    def _seen(self):
        return np.array([self.place, abs(self.place)], np.float32)


def open_point(name, pictures):
    """What a host calls."""
    assert name == "point"
    return Point()

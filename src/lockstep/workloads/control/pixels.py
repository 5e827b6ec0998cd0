"""Tasks of DeepMind Control that are seen instead of measured: the last frames as one image. Needs no torch."""

import numpy as np
from numpy.typing import NDArray

from lockstep.envs.simulation import Floats, Observation, Outcome, State
from lockstep.workloads.control.names import FRAMES, SIDE
from lockstep.workloads.control.suite import SuiteSimulation

_BYTES = 6
"""Bytes of a frame that are saved in one float64, which holds whole numbers up to 2^53 exactly."""
_SAVED = (FRAMES - 1) * 3 * SIDE * SIDE // _BYTES
"""Numbers that a saved state has for its frames: the oldest is dropped at the next step, so it is not saved."""
_WEIGHTS = 256.0 ** np.arange(_BYTES)
Frame = NDArray[np.uint8]


class PixelSimulation:
    """A task whose observation is its last frames, (FRAMES x 3, SIDE, SIDE) bytes as one row, the oldest first."""

    def __init__(self, task: str, renderer: str) -> None:
        self._inner = SuiteSimulation(task, renderer)
        self._frames: list[Frame] = []

    def reset(self, seed: int) -> Observation:
        """Start an episode; its first frame stands for those before it."""
        self._inner.reset(seed)
        self._frames = [self._frame()] * FRAMES
        return self._stack()

    def step(self, action: Floats) -> Outcome:
        """Apply one action."""
        done = self._inner.step(action)
        # A simulation that diverged has nothing to draw: the last valid frame is repeated.
        newest = self._frames[-1] if done.truncated else self._frame()
        self._frames = [*self._frames[1:], newest]
        return done._replace(observation=self._stack())

    def save(self) -> State:
        """The body's state and the frames that the next observation contains."""
        kept = np.stack(self._frames[1:]).reshape(-1, _BYTES)
        return np.concatenate((self._inner.save(), kept @ _WEIGHTS))

    def restore(self, seed: int, state: State) -> None:
        """Restore the body and the frames."""
        self._inner.restore(seed, state[:-_SAVED])
        # Little-endian on every machine: the first byte is the remainder by 256.
        parts = state[-_SAVED:].astype("<u8").view(np.uint8).reshape(-1, 8)[:, :_BYTES]
        older = [frame.copy() for frame in parts.reshape(FRAMES - 1, 3, SIDE, SIDE)]
        self._frames = [older[0], *older]

    def render(self, height: int, width: int) -> Frame:
        """A frame from the task's own camera."""
        return self._inner.render(height, width)

    def _frame(self) -> Frame:
        return self._inner.render(SIDE, SIDE).transpose(2, 0, 1)

    def _stack(self) -> Observation:
        return np.concatenate(self._frames).ravel()

"""The state of a Gymnasium environment: its author's `state` and `load`, or the simulator's own. Needs no torch.

A state is saved during an episode and loaded after a reset with that episode's seed, so what a reset determines, such
as a goal's place, is not part of it.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

from lockstep.envs.frame_skip import FrameSkip
from lockstep.envs.simulation import State

_STATELESS = (
    FrameSkip,
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.ClipAction,
    wrappers.RescaleAction,
    wrappers.FlattenObservation,
)
"""Wrappers that keep nothing which changes during an episode."""


class _Part(Protocol):
    """One object of an environment that changes during an episode."""

    grows: int
    """Numbers by which a later state may be longer."""

    def save(self) -> State:
        """Its state."""

    def load(self, state: State) -> None:
        """Restore what `save` returned."""


class EnvState:
    """The whole state of one environment: that of its wrappers, and its own."""

    def __init__(self, parts: list[_Part]) -> None:
        self._parts = parts

    def save(self) -> State:
        """All parts one after another, each with its length before it."""
        saved = [part.save() for part in self._parts]
        return np.concatenate([piece for part in saved for piece in ([len(part)], part)])

    def load(self, state: State) -> None:
        """Restore what `save` returned, in an environment that has been reset with the episode's seed."""
        for part in self._parts:
            end = 1 + int(state[0])
            part.load(state[1:end])
            state = state[end:]

    def size(self) -> int:
        """Numbers that a saved state takes at most; the environment must have been reset."""
        return len(self.save()) + sum(part.grows for part in self._parts)


def state_of(env: gymnasium.Env[Any, Any]) -> EnvState | None:
    """How an environment's state is saved; None if that is not possible."""
    inner = env.unwrapped
    if has_state(env):
        # Its author says so, whatever wrappers there are; `lockstep check` tests it.
        return EnvState([*_wrapper_parts(env), _OwnMethods(inner)])
    own = _simulator(inner)
    known = all(isinstance(layer, (*_STATELESS, *_STATEFUL)) for layer in _layers(env))
    return EnvState([*_wrapper_parts(env), own]) if own is not None and known else None


def has_state(env: Any) -> bool:
    """Whether the environment's author wrote methods `state` and `load`."""
    inner = env.unwrapped
    return callable(getattr(inner, "state", None)) and callable(getattr(inner, "load", None))


def _layers(env: gymnasium.Env[Any, Any]) -> Iterator[Any]:
    """The wrappers around an environment, from the outermost."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _wrapper_parts(env: gymnasium.Env[Any, Any]) -> list[_Part]:
    return [kind(layer) for layer in _layers(env) for known, kind in _STATEFUL.items() if isinstance(layer, known)]


def _simulator(inner: Any) -> _Part | None:
    """The state that the simulator behind an environment can save; None if it is none of those known."""
    # By the module of the very class: a class derived from it may keep something in attributes of its own.
    module = type(inner).__module__
    if module.startswith("gymnasium.envs.mujoco.") and not module.endswith(("_v2", "_v3")):
        return _Mujoco(inner)
    # A random number of frames for each step is drawn by a generator that ALE's state does not hold.
    if module.startswith("ale_py.") and isinstance(inner._frameskip, int):
        return _Atari(inner)
    return None


class _OwnMethods:
    """An environment with methods `state` and `load`."""

    grows = 0

    def __init__(self, env: Any) -> None:
        self._env = env

    def save(self) -> State:
        return np.asarray(self._env.state(), np.float64).ravel()

    def load(self, state: State) -> None:
        self._env.load(state)


class _ElapsedSteps:
    """The steps that a time limit has counted."""

    grows = 0

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def save(self) -> State:
        return np.array([self._wrapper._elapsed_steps], np.float64)

    def load(self, state: State) -> None:
        self._wrapper._elapsed_steps = int(state[0])


class _StackedFrames:
    """The latest observations that a wrapper stacks."""

    grows = 0

    def __init__(self, wrapper: Any) -> None:
        self._queue, self._space = wrapper.obs_queue, wrapper.env.observation_space

    def save(self) -> State:
        return _from_bytes(b"".join(np.asarray(self._flat(frame)).tobytes() for frame in self._queue))

    def load(self, state: State) -> None:
        kind = np.asarray(self._flat(self._queue[0])).dtype
        frames = np.frombuffer(_to_bytes(state), kind).reshape(len(self._queue), -1)
        self._queue.extend(spaces.unflatten(self._space, frame) for frame in frames)

    def _flat(self, frame: Any) -> Any:
        return spaces.flatten(self._space, frame)


_STATEFUL: dict[type, type[Any]] = {
    wrappers.TimeLimit: _ElapsedSteps,
    wrappers.FrameStackObservation: _StackedFrames,
}
"""How the state of wrappers is saved that have one."""


class _Mujoco:
    """MuJoCo's integration state, from which the next step follows to the last bit."""

    grows = 0

    def __init__(self, env: Any) -> None:
        self._model, self._data = env.model, env.data

    def save(self) -> State:
        import mujoco

        kind = _integration_state()
        state = np.empty(mujoco.mj_stateSize(self._model, kind))
        mujoco.mj_getState(self._model, self._data, state, kind)
        return np.concatenate([state, *(array.ravel() for array in self._lagging())])

    def load(self, state: State) -> None:
        import mujoco

        kind = _integration_state()
        size = mujoco.mj_stateSize(self._model, kind)
        mujoco.mj_setState(self._model, self._data, np.ascontiguousarray(state[:size]), kind)
        for array in self._lagging():
            array[:] = state[size : size + array.size].reshape(array.shape)
            size += array.size

    def _lagging(self) -> tuple[Any, Any]:
        # Positions of bodies and of their centres of mass follow from the joints, but as they were before a step's last
        # part. Some environments read them before they advance, to measure a velocity.
        return self._data.xpos, self._data.xipos


def _integration_state() -> int:
    import mujoco

    return mujoco.mjtState.mjSTATE_INTEGRATION.value


class _Atari:
    """The state of the Arcade Learning Environment, with its random numbers."""

    # The state of its random numbers is text, whose length varies a little.
    grows = 256

    def __init__(self, env: Any) -> None:
        self._env = env

    def save(self) -> State:
        return _from_bytes(self._env.clone_state(include_rng=True).serialize())

    def load(self, state: State) -> None:
        from ale_py import ALEState

        self._env.restore_state(ALEState(_to_bytes(state)))


def _from_bytes(held: bytes) -> State:
    """The length, then four bytes in each number, which float64 holds exactly."""
    words = np.frombuffer(held + bytes(-len(held) % 4), "<u4")
    return np.concatenate(([len(held)], words), dtype=np.float64)


def _to_bytes(state: State) -> bytes:
    """The inverse of `_from_bytes`."""
    return state[1:].astype("<u4").tobytes()[: int(state[0])]

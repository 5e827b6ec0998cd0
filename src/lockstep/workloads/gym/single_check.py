"""Checks a Gymnasium environment against its own spaces, as its author wrote them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from lockstep.envs.env_sources import quiet
from lockstep.envs.gym_simulation import EnvSpec
from lockstep.rl.env_check import Finding, answered
from lockstep.workloads.gym.settings import GymSettings


def check_spaces(settings: GymSettings, steps: int = 200) -> Iterator[Finding]:
    """Compare what an environment returns with what its spaces promise."""
    spec = EnvSpec(settings.env_id, settings.arguments(), max_steps=settings.max_episode_steps)
    with quiet():
        env = spec.make()
        yield answered("reset", lambda: _reset(env))
        yield answered("spaces", lambda: _steps(env, steps))
        closed = answered("close", lambda: _close(env))
        if not closed.good:
            yield closed


def _reset(env: Any) -> Finding:
    try:
        found = env.reset(seed=3)
    except TypeError as error:
        return Finding("reset", f"{error}; it must accept reset(seed=..., options=...) and return (observation, info)")
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], dict):
        return Finding("reset", f"returned {type(found).__name__}; it must return (observation, info)")
    if problem := _outside(env.observation_space, found[0]):
        return Finding("reset", problem)
    again = env.reset(seed=3)[0]
    if _bytes(found[0]) != _bytes(again):
        return Finding("reset", "reset(seed=3) twice gives two observations; call super().reset(seed=seed) first")
    return Finding("reset", detail="the same seed gives the same first observation, inside its space")


def _steps(env: Any, steps: int) -> Finding:
    env.reset(seed=3)
    env.action_space.seed(3)
    for number in range(1, steps + 1):
        found = env.step(env.action_space.sample())
        if not isinstance(found, tuple) or len(found) != 5:
            return Finding("spaces", f"step {number} returned {_length(found)}; it must return 5 values")
        observation, reward, terminated, truncated, info = found
        if problem := _outside(env.observation_space, observation):
            return Finding("spaces", f"step {number}: {problem}")
        if not np.isscalar(reward) and np.asarray(reward).size != 1:
            return Finding("spaces", f"step {number}: the reward is {type(reward).__name__}, not one number")
        if not isinstance(info, dict):
            return Finding("spaces", f"step {number}: info is {type(info).__name__}, not a dict")
        if terminated or truncated:
            env.reset(seed=3 + number)
    return Finding("spaces", detail=f"{env.observation_space}, {env.action_space}"[:150])


def _close(env: Any) -> Finding:
    env.close()
    return Finding("close")


def _outside(space: Any, observation: Any) -> str:
    """How an observation differs from its space; empty if it does not."""
    if space.contains(observation):
        return ""
    value = np.asarray(observation) if not isinstance(observation, dict | tuple) else None
    if value is None or not hasattr(space, "low"):
        return f"the observation {str(observation)[:60]} is not in {space}"
    if value.shape != space.shape:
        return f"the observation has shape {value.shape}, and its space {space.shape}"
    if value.dtype != space.dtype:
        return f"the observation is {value.dtype}, and its space {space.dtype}; convert one of them"
    low, high = float(value.min()), float(value.max())
    return f"the observation reaches from {low:.4g} to {high:.4g}, outside of its space; widen low and high"


def _bytes(observation: Any) -> bytes:
    if isinstance(observation, dict):
        return b"".join(_bytes(observation[key]) for key in sorted(observation))
    if isinstance(observation, tuple):
        return b"".join(map(_bytes, observation))
    return np.asarray(observation).tobytes()


def _length(found: Any) -> str:
    return f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__

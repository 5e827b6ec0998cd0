"""Any Gymnasium environment as a simulation: made by id, by class, from a file, or by a function. Needs no torch."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lockstep.envs import gym_spaces
from lockstep.envs.env_sources import make_environment, quiet
from lockstep.envs.episode_actions import LONGEST_REPLAY, EpisodeActions
from lockstep.envs.frame_skip import FrameSkip
from lockstep.envs.gym_spaces import MASK, ActionRows, Observations
from lockstep.envs.gym_state import EnvState, state_of
from lockstep.envs.simulation import Floats, Observation, Outcome, State
from lockstep.envs.spaces import Actions, Continuous, Discrete
from lockstep.errors import UserError

Resume = Literal["state", "replay", "restart"]
"""How an environment continues after a resume: from its saved state, by replaying its episode, or with a new one."""
_SUCCESS = ("is_success", "success")
"""Keys under which environments report that their goal is reached."""


@dataclass(frozen=True)
class EnvSpec:
    """Which environment, and how it is used; sent to workers as JSON."""

    source: str
    """A registered id, `module:Class`, `file.py:Class`, or a function given in Python (see env_sources)."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment."""
    resume: Resume = "replay"
    fresh: bool = False
    """Make a new environment for every episode, because this one carries something over from the last."""
    frame_stack: int = 1
    """Observations that are stacked into one."""
    frame_skip: int = 1
    """Steps for which an action is repeated."""
    max_steps: int = 0
    """Steps after which an episode is truncated; 0 = the environment's own limit."""
    shrink: int = 1
    """Factor by which images are made smaller."""
    longest_replay: int = LONGEST_REPLAY
    """Steps of an episode that are kept for replay."""

    def to_json(self) -> str:
        """As text, for an opener."""
        return json.dumps(asdict(self))

    def make(self, render: bool = False) -> gymnasium.Env[Any, Any]:
        """Create the environment with its wrappers; UserError if it cannot be created."""
        env = make_environment(self.source, self.kwargs, render)
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{self.source}: made {type(env).__name__}, which is not a gymnasium.Env")
        if self.frame_skip > 1:
            env = FrameSkip(env, self.frame_skip)
        if self.frame_stack > 1:
            env = gymnasium.wrappers.FrameStackObservation(env, self.frame_stack)
        if self.max_steps:
            env = gymnasium.wrappers.TimeLimit(env, self.max_steps)
        return env


def open_simulation(spec: str, pictures: bool = False) -> "GymSimulation":
    """Create the simulation that an `EnvSpec` in JSON describes."""
    return GymSimulation(EnvSpec(**json.loads(spec)), pictures)


class GymSimulation:
    """One Gymnasium environment. Every episode starts from `reset(seed=...)` with a seed of its own."""

    def __init__(self, spec: EnvSpec, pictures: bool = False) -> None:
        self._spec, self._pictures = spec, pictures
        self._env = spec.make(pictures)
        self._observations, self._actions = row_formats(self._env, spec.source, spec.shrink)
        self._resume = spec.resume
        self._taken = EpisodeActions(spec.source, self._actions.size, spec.longest_replay)
        self._mask = np.ones(self._observations.mask, np.float32)
        # Where in the mask each choice begins, if an action is made of several.
        self._choices = np.cumsum((0, *_choice_counts(self.actions)[:-1]))

    @property
    def actions(self) -> Actions:
        """Its actions."""
        return self._actions.actions

    @property
    def allowed(self) -> Floats | None:
        """1 for every action that is allowed now, 0 for the others; None if all are."""
        return self._mask if self._observations.mask else None

    def reset(self, seed: int) -> Observation:
        """Start an episode; its seed alone determines it."""
        self._taken.clear()
        if self._spec.fresh:
            self._env.close()
            self._env = self._spec.make(self._pictures)
        observation, info = self._env.reset(seed=seed)
        return self._row(observation, info)

    def step(self, action: Floats) -> Outcome:
        """Apply one action."""
        if self._resume == "replay":
            self._taken.add(action)
        if self._mask.size:
            self._refuse_empty_mask()
        observation, reward, terminated, truncated, info = self._env.step(self._actions.decode(action))
        # Most environments report nothing, and steps are counted in microseconds.
        success = float(any(bool(info.get(name, False)) for name in _SUCCESS)) if info else 0.0
        return Outcome(self._row(observation, info), _number(reward), bool(terminated), bool(truncated), success)

    def save(self) -> State:
        """What `restore` needs: the environment's own state, the episode's actions, or nothing."""
        if self._resume == "state":
            # The mask, too, as the environment may not report it again.
            return np.concatenate((self._mask, _saved(self._env, self._spec).save()))
        return np.zeros(0) if self._resume == "restart" else self._taken.save()

    def restore(self, seed: int, state: State) -> None:
        """Restore a state that was saved in the episode with that seed."""
        self.reset(seed)
        if self._resume == "state":
            self._mask = state[: self._mask.size].astype(np.float32)
            _saved(self._env, self._spec).load(state[self._mask.size :])
        elif self._resume == "replay":
            for action in self._taken.read(state):
                self.step(action)

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A frame, at the size that the environment itself chooses."""
        frame = self._env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UserError(f"{self._spec.source}: has no render_mode rgb_array, so it cannot be shown as a film")
        return frame.astype(np.uint8)[:, :, :3]

    def _refuse_empty_mask(self) -> None:
        allowed = np.logical_or.reduceat(self._mask, self._choices)
        if not allowed.all():
            choice = f" of choice {allowed.argmin()}" if len(allowed) > 1 else ""
            raise ValueError(f"its {MASK} allows no action{choice}, and its episode has not ended")

    def _row(self, observation: Any, info: dict[str, Any]) -> Observation:
        row = self._observations.encode(observation)
        if not self._observations.mask:
            return row
        # An environment may report the mask only when it changes.
        mask = np.asarray(info.get(MASK, self._mask), np.float32).ravel()
        if mask.size != self._mask.size:
            raise ValueError(f"its {MASK} has {mask.size} entries, and {self._mask.size} at first")
        self._mask = mask
        return np.concatenate((row, self._mask))


def row_formats(env: gymnasium.Env[Any, Any], where: str, shrink: int = 1) -> tuple[Observations, ActionRows]:
    """How the observations and actions of an environment are written as rows."""
    actions = gym_spaces.actions_of(env.action_space, where)
    return gym_spaces.observations_of(env.observation_space, where, _masked_actions(env), shrink), actions


def state_size(spec: EnvSpec, env: gymnasium.Env[Any, Any], actions: ActionRows) -> int:
    """Numbers to keep for one environment's saved state, the same for all of a run."""
    if spec.resume == "restart":
        return 0
    if spec.resume == "state":
        env.reset(seed=0)
        return _masked_actions(env) + _saved(env, spec).size()
    return (time_limit(spec, env) or LONGEST_REPLAY) * actions.size


def time_limit(spec: EnvSpec, env: gymnasium.Env[Any, Any]) -> int:
    """Steps after which an episode is truncated at the latest; 0 = not known."""
    known = env.spec.max_episode_steps if env.spec is not None else None
    return spec.max_steps or known or 0


def reports_success(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether the environment's first step says if its goal is reached."""
    env.reset(seed=0)
    env.action_space.seed(0)
    info = env.step(env.action_space.sample())[4]
    return any(name in (info or {}) for name in _SUCCESS)


def step_seconds(env: gymnasium.Env[Any, Any], steps: int = 8) -> float:
    """The shortest time of a few steps with random actions; infinite if the environment refuses them."""
    times = []
    env.reset(seed=0)
    for _ in range(steps):
        start = time.perf_counter()
        try:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        except Exception:  # what is wrong with it is reported where it matters: in a run
            return math.inf
        times.append(time.perf_counter() - start)
        if terminated or truncated:
            env.reset(seed=0)
    # Not the mean: other programs can only make a step seem slower.
    return min(times)


def replays(spec: EnvSpec, steps: int = 64, opened: Callable[[EnvSpec], "Steppable"] = GymSimulation) -> str:
    """Why replaying an episode would not lead to the same state; empty if it does in a short test."""
    first = opened(spec)
    once = _episode(first, 5, steps)
    # After another episode: what an environment carries over from one to the next shows, too.
    second = opened(spec)
    _episode(second, 7, steps)
    again = _episode(second, 5, steps)
    for number, (one, other) in enumerate(zip(once, again, strict=False)):
        if one != other:
            return f"the same seed and actions give other results after {number} steps"
    return "" if len(once) == len(again) else "the same seed and actions give episodes of other lengths"


def restores(spec: EnvSpec, steps: int = 4) -> str:
    """Why a restored state would not continue in the same way; empty if it does for some steps."""
    one, other, generator = GymSimulation(spec), GymSimulation(spec), np.random.default_rng(0)
    one.reset(5)
    # Few steps: with random actions an episode may end soon, and then there is no state to restore.
    for _ in range(steps):
        one.step(_random_row(one, generator))
    other.restore(5, one.save())
    for number in range(steps):
        action = _random_row(one, generator)
        mine, theirs = one.step(action), other.step(action)
        if mine.observation.tobytes() != theirs.observation.tobytes() or mine[1:4] != theirs[1:4]:
            return f"a restored state gives other results after {number} steps"
    return ""


class Steppable(Protocol):
    """What `replays` needs of a simulation."""

    @property
    def actions(self) -> Actions:
        """Its actions."""

    @property
    def allowed(self) -> Floats | None:
        """1 for every action that is allowed now, 0 for the others; None if all are."""

    def reset(self, seed: int) -> Observation:
        """Start an episode."""

    def step(self, action: Floats) -> Outcome:
        """Apply one action."""


def _episode(simulation: Steppable, seed: int, steps: int) -> list[bytes]:
    """What the first steps of an episode with random actions look like, to the last bit."""
    generator = np.random.default_rng(0)
    seen = [simulation.reset(seed).tobytes()]
    for _ in range(steps):
        done = simulation.step(_random_row(simulation, generator))
        seen.append(done.observation.tobytes() + np.float64(done.reward).tobytes())
        if done.terminated or done.truncated:
            break
    return seen


def _random_row(simulation: Steppable, generator: np.random.Generator) -> Floats:
    known, mask = simulation.actions, simulation.allowed
    if isinstance(known, Continuous):
        return generator.uniform(-1, 1, known.size).astype(np.float32)
    counts = _choice_counts(known)
    if mask is None:
        return np.array([generator.integers(count) for count in counts], np.float32)
    parts = np.split(mask, np.cumsum(counts)[:-1])
    # Where nothing is allowed, anything goes: `step` refuses it and says why.
    return np.array([generator.choice(np.flatnonzero(part if part.any() else 1 - part)) for part in parts], np.float32)


def _choice_counts(actions: Actions) -> tuple[int, ...]:
    """How many actions each of the choices has that an action is made of; none if actions are continuous."""
    if isinstance(actions, Continuous):
        return ()
    return (actions.count,) if isinstance(actions, Discrete) else actions.counts


def _masked_actions(env: gymnasium.Env[Any, Any]) -> int:
    """How many actions the environment's info lists as allowed or not; 0 if it lists none."""
    if not isinstance(env.action_space, spaces.Discrete | spaces.MultiDiscrete):
        return 0
    with quiet():
        _, info = env.reset(seed=0)
    mask = info.get(MASK) if isinstance(info, dict) else None
    return 0 if mask is None else int(np.asarray(mask).size)


def _number(reward: Any) -> float:
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise ValueError(f"a reward is {str(reward)[:40]} ({type(reward).__name__}), and not one number") from None


def _saved(env: gymnasium.Env[Any, Any], spec: EnvSpec) -> EnvState:
    """The state of an environment that resumes by it; UserError if it has none."""
    found = state_of(env)
    if found is None:
        raise UserError(
            f"resume_by state: {spec.source} cannot save its state; give it `state` and `load`, or let it resume by "
            "replay or restart"
        )
    return found

"""What can be found out about an environment before a run: its spaces, its time limit, and how it can be resumed."""

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lockstep.envs import gym_simulation
from lockstep.envs.env_sources import quiet, thing_of
from lockstep.envs.failures import failures_told
from lockstep.envs.gym_simulation import EnvSpec, Resume
from lockstep.envs.gym_spaces import ActionRows, Observations
from lockstep.envs.gym_state import has_state, state_of
from lockstep.envs.spaces import Actions, Continuous, Discrete
from lockstep.envs.watchdog import Hung, watchdog
from lockstep.errors import UserError
from lockstep.workloads.gym.settings import GymSettings

LONGEST_TEST = 10_000
"""Steps after which an evaluation truncates an episode that nothing else limits: a policy may stay in it for ever."""
_NO_PROMISE = "episodes begin anew after a resume, which exact mode refuses"


@dataclass(frozen=True)
class Facts:
    """One environment as training sees it."""

    spec: EnvSpec
    observations: Observations
    rows: ActionRows
    time_limit: int
    """Steps after which an episode is truncated at the latest; 0 = none known."""
    state_size: int
    """Numbers kept for the saved state of one environment."""
    has_goal: bool
    """Whether it reports success."""
    reason: str
    """Why it resumes as it does, if that was found out."""
    step_seconds: float
    """How long a step takes, if that decides on workers; else infinite."""

    @property
    def resume_by(self) -> Resume:
        """How unfinished episodes continue after a resume."""
        return self.spec.resume

    @property
    def restarts(self) -> bool:
        """Whether unfinished episodes are lost at a resume and new ones begin."""
        return self.resume_by == "restart"

    @property
    def actions(self) -> Actions:
        """The actions."""
        return self.rows.actions

    def summary(self) -> str:
        """The environment in one line."""
        seen, choices = shape_text(self.observations), choices_text(self.actions)
        return f"{self.spec.source}: observation {seen}, {choices}, {limit_text(self.time_limit)}"


def facts_of(settings: GymSettings) -> Facts:
    """Open the environment once and look at it; UserError if it cannot be used."""
    return _facts(settings, thing_of(settings.env_id))


@cache
def _facts(settings: GymSettings, thing: object) -> Facts:
    # Cached by the object, too: in a notebook a function of the same name may have been defined anew.
    spec = EnvSpec(
        settings.env_id,
        settings.arguments(),
        frame_stack=settings.frame_stack,
        frame_skip=settings.frame_skip,
        max_steps=settings.max_episode_steps,
        shrink=settings.shrink_images or 1,
    )
    with tried_out(settings), closing(spec.make()) as env:
        observations, rows = gym_simulation.row_formats(env, spec.source, spec.shrink)
        spec, reason = _resuming(settings, spec, env)
        size = gym_simulation.state_size(spec, env, rows)
        limit, goal = gym_simulation.time_limit(spec, env), gym_simulation.reports_success(env)
        # Only tried if it matters: it is one more thing that a broken environment could fail in.
        seconds = math.inf if settings.env_workers else gym_simulation.step_seconds(env)
        return Facts(spec, observations, rows, limit, size, goal, reason, seconds)


@contextmanager
def tried_out(settings: GymSettings) -> Iterator[None]:
    """Name the environment in the error if it fails or hangs while it is tried."""

    def failed(problem: str) -> UserError:
        return UserError(f"{settings.env_id}: fails when it is tried ({problem}); `lockstep check` says more")

    with failures_told(failed):
        try:
            with quiet(), watchdog().watching(settings.env_timeout):
                yield
        except Hung:
            raise UserError(
                f"{settings.env_id}: did not return for {settings.env_timeout:g} s when it was tried; correct it, or "
                "raise --env-timeout"
            ) from None


def _resuming(settings: GymSettings, spec: EnvSpec, env: Any) -> tuple[EnvSpec, str]:
    """The spec with the way of resuming that was asked for or found out, and the reason."""
    if settings.resume_by != "auto":
        fresh = settings.resume_by == "replay" and bool(gym_simulation.replays(spec))
        return replace(spec, resume=settings.resume_by, fresh=fresh), ""
    by_state = replace(spec, resume="state")
    if has_state(env):
        return by_state, "it saves its own state"
    if state_of(env) is not None and not gym_simulation.restores(by_state):
        return by_state, "its simulator's state is saved"
    problem = gym_simulation.replays(spec)
    if not problem:
        return replace(spec, resume="replay"), ""
    # Some environments, such as Box2D's, carry something over into the next episode; a new object does not.
    if not gym_simulation.replays(replace(spec, fresh=True)):
        return replace(spec, resume="replay", fresh=True), "a new environment is made for every episode"
    return replace(spec, resume="restart"), f"{problem}; {_NO_PROMISE}"


def shape_text(observations: Observations) -> str:
    """The shape of observations, in words."""
    if observations.parts:
        return " + ".join(f"{part.name} {'x'.join(map(str, part.shape))}" for part in observations.parts)
    return "x".join(map(str, observations.shape)) + (" bytes" if observations.dtype == "uint8" else "")


def choices_text(actions: Actions) -> str:
    """The actions, in words."""
    if isinstance(actions, Discrete):
        return f"{actions.count} actions"
    if isinstance(actions, Continuous):
        return f"{actions.size} continuous action{'s' if actions.size > 1 else ''}"
    return f"{len(actions.counts)} choices among {', '.join(map(str, actions.counts))}"


def limit_text(time_limit: int) -> str:
    """The time limit of episodes, in words; 0 = none known."""
    if time_limit:
        return f"at most {time_limit:,} steps"
    return f"no known time limit (evaluations end after {LONGEST_TEST:,} steps; --max-episode-steps sets another)"

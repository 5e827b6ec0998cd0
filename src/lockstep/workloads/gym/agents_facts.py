"""What can be found out about an environment of several agents before a run. A: agents."""

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from lockstep.envs import gym_simulation, parallel_simulation
from lockstep.envs.env_sources import thing_of
from lockstep.envs.gym_simulation import Resume
from lockstep.envs.gym_state import has_state
from lockstep.envs.parallel_simulation import ParallelSimulation, ParallelSpec, TeamRows
from lockstep.errors import UserError
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single_facts import choices_text, limit_text, tried_out

_LARGEST_IMAGE = 84
"""Height and width that images are shrunk to if nothing else is asked for: a replay buffer has to hold them."""


@dataclass(frozen=True)
class AgentsFacts:
    """An environment of several agents as training sees it."""

    spec: ParallelSpec
    rows: TeamRows
    time_limit: int
    """Steps after which an episode is truncated at the latest; 0 = none known."""
    state_size: int
    """Numbers kept for the saved state of one environment."""
    reason: str
    """Why it resumes as it does, if that was found out."""

    @property
    def agents(self) -> int:
        """A."""
        return len(self.rows.agents)

    @property
    def restarts(self) -> bool:
        """Whether unfinished episodes are lost at a resume and new ones begin."""
        return self.spec.resume == "restart"

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(A, ...)."""
        return (self.agents, *self.rows.each.shape)

    @property
    def images(self) -> bool:
        """Whether agents see images."""
        return self.rows.each.dtype == np.uint8

    def summary(self) -> str:
        """The environment in one line."""
        shape = "x".join(map(str, self.rows.each.shape)) + (" bytes" if self.images else "")
        shrunk = f", images {self.spec.shrink} times smaller" if self.spec.shrink > 1 else ""
        choices, limit = choices_text(self.rows.actions), limit_text(self.time_limit)
        return f"{self.spec.source}: {self.agents} agents, observation {shape}, {choices} each{shrunk}, {limit}"


def agents_facts(settings: GymSettings) -> AgentsFacts:
    """Open the environment once and look at it; UserError if it cannot be used."""
    for name in ("frame_stack", "frame_skip"):
        if getattr(settings, name) != 1:
            raise UserError(f"{name} {getattr(settings, name)}: is for environments with one agent; leave it at 1")
    # The thing itself is part of the key: in a notebook another function may get the same name.
    return _facts(settings, thing_of(settings.env_id))


@cache
def _facts(settings: GymSettings, _: Any) -> AgentsFacts:
    spec = ParallelSpec(settings.env_id, settings.arguments(), max_steps=settings.max_episode_steps)
    with tried_out(settings), closing(spec.make()) as env:
        spec = replace(spec, shrink=settings.shrink_images or _factor(env, spec))
        rows = parallel_simulation.team_rows(env, spec.source, spec.shrink)
        spec, reason = _resuming(settings, spec, env)
        size = parallel_simulation.state_size(spec, env, rows)
        return AgentsFacts(spec, rows, parallel_simulation.time_limit(spec, env), size, reason)


def _factor(env: Any, spec: ParallelSpec) -> int:
    """How much smaller images have to become; 1 if there are none."""
    seen = parallel_simulation.team_rows(env, spec.source).each
    return -(-max(seen.shape[1:]) // _LARGEST_IMAGE) if seen.dtype == np.uint8 else 1


def _resuming(settings: GymSettings, spec: ParallelSpec, env: Any) -> tuple[ParallelSpec, str]:
    """The spec with the way of resuming that was asked for or found out, and the reason."""
    if settings.resume_by == "auto" and has_state(env):
        return replace(spec, resume="state"), "it saves its own state"
    if settings.resume_by in ("state", "restart"):
        resume: Resume = settings.resume_by  # type: ignore[assignment]
        return replace(spec, resume=resume), ""
    problem = _replay_problem(spec)
    if not problem:
        return replace(spec, resume="replay"), ""
    if settings.resume_by == "replay" or not _replay_problem(replace(spec, fresh=True)):
        return replace(spec, resume="replay", fresh=True), "a new environment is made for every episode"
    return replace(spec, resume="restart"), f"{problem}; exact mode refuses to resume"


def _replay_problem(spec: ParallelSpec) -> str:
    return gym_simulation.replays(spec, opened=ParallelSimulation)  # type: ignore[arg-type]

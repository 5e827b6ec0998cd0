"""Looks at the environments of a configuration before a run: their kind, their sizes, and how they resume."""

from collections.abc import Collection

import numpy as np
import torch

from lockstep.algorithms.ddpg.settings import DDPGSettings
from lockstep.envs.gym_spaces import Observations
from lockstep.envs.spaces import Actions, Continuous
from lockstep.errors import UserError
from lockstep.workloads.gym.agents_facts import agents_facts
from lockstep.workloads.gym.kinds import Kind, kind_of
from lockstep.workloads.gym.settings import GymConfig
from lockstep.workloads.gym.single_facts import choices_text, facts_of, shape_text
from lockstep.workloads.gym.tensor import tensor_problem
from lockstep.workloads.gym.vector import resume_by, vector_formats

_FOR_AGENTS = ("maddpg", "ddpg")
_FOR_DISCRETE = ("critic", "remember", "output_activation", "entropy_coef")
"""Settings of ddpg that say how one of several actions is chosen and valued."""
_LARGEST_BUFFER = 2 * 2**30
"""Bytes of observations that a replay buffer may take, over all ranks, if its size was not asked for."""


def fitted(config: GymConfig, explicit: Collection[str]) -> tuple[GymConfig, list[str]]:
    """The configuration with what was found out, and that as lines of text; UserError if it cannot be trained."""
    kind = kind_of(config.workload)
    _refuse_algorithm(kind, config)
    if kind == "agents":
        team = agents_facts(config.workload)
        _refuse_discrete_settings(config, team.rows.actions, explicit)
        config, notes = _with_buffer(config, team.agents, team.rows.each, explicit)
        config, resumes = _resuming(config, team.spec.resume, team.reason)
        return config, [_line("environment", team.summary()), resumes, *notes]
    if kind == "single":
        facts = facts_of(config.workload)
        _refuse_discrete_settings(config, facts.actions, explicit)
        config, notes = _with_buffer(config, 1, facts.observations, explicit)
        config, resumes = _resuming(config, facts.resume_by, facts.reason)
        return config, [_line("environment", facts.summary()), resumes, *notes]
    if kind == "vector":
        formats = vector_formats(config.workload)
        summary = f"{formats.source}: a vector environment, observation {shape_text(formats.observations)}, "
        summary += f"{choices_text(formats.rows.actions)}, autoreset {formats.autoreset}"
        found = resume_by(config.workload)
        reason = "" if found == "state" else "it has no `state` and `load`; exact mode refuses to resume"
        config, resumes = _resuming(config, found, reason)
        return config, [_line("environment", summary), resumes]
    problem = tensor_problem(config.workload, torch.device("cpu"))
    shape = "x".join(map(str, problem.observation_shape))
    summary = f"{config.workload.env_id}: tensors, observation {shape}, {choices_text(problem.actions)}"
    found = "restart" if problem.restarts else "state"
    reason = "it has no `state` and `load`; exact mode refuses to resume" if problem.restarts else ""
    config, resumes = _resuming(config, found, reason)
    return config, [_line("environment", summary), resumes]


def _refuse_algorithm(kind: Kind, config: GymConfig) -> None:
    algorithm, source = config.run.algorithm, config.workload.env_id
    if ":" in algorithm:
        return  # It knows itself which problems it takes.
    if kind == "agents" and algorithm not in _FOR_AGENTS:
        raise UserError(f"algorithm {algorithm}: learns one agent, and {source} has several; choose --algorithm maddpg")
    if kind == "vector" and algorithm == "tdmpc2":
        raise UserError(
            f"algorithm tdmpc2: {source} is a vector environment, which only ppo takes; give it a function that makes "
            "one environment, or choose --algorithm ppo"
        )


def _with_buffer(
    config: GymConfig, agents: int, each: Observations, explicit: Collection[str]
) -> tuple[GymConfig, list[str]]:
    """A smaller replay buffer if observations of the agents would take too much memory."""
    settings = config.algorithm
    if not isinstance(settings, DDPGSettings):
        return config, []
    step = step_bytes(agents, each, half=settings.memory_format == "fp16")
    most = _LARGEST_BUFFER // step // settings.n_envs * settings.n_envs
    # Settings are checked as a whole, so a buffer that would be too small for a batch is left as it is.
    if "buffer_size" in explicit or settings.buffer_size <= most or most < settings.first_update:
        return config, []
    seen = f"an observation of {'all agents' if agents > 1 else 'the agent'} takes {step // 2:,} bytes"
    note = f"buffer_size {most:,} instead of {settings.buffer_size:,}: {seen}"
    return config.replace(buffer_size=most), [_line("memory", note)]


def step_bytes(agents: int, each: Observations, half: bool) -> int:
    """Bytes of one step's observations in a replay buffer: before and after. `half`: numbers are stored as fp16."""
    return 2 * agents * each.size * (1 if each.dtype == np.uint8 else 2 if half else 4)


def _refuse_discrete_settings(config: GymConfig, actions: Actions, explicit: Collection[str]) -> None:
    """Raise UserError for a setting that was asked for and has no meaning for continuous actions."""
    if isinstance(actions, Continuous) and isinstance(config.algorithm, DDPGSettings):
        for name in _FOR_DISCRETE:
            if name in explicit:
                raise UserError(
                    f"{name} {getattr(config.algorithm, name)}: is for discrete actions, and those of "
                    f"{config.workload.env_id} are continuous; leave it out"
                )


def _resuming(config: GymConfig, found: str, reason: str) -> tuple[GymConfig, str]:
    line = f"unfinished episodes continue by {found}{f': {reason}' if reason else ''}"
    return config.replace(resume_by=found), _line("resume", line)


def _line(name: str, text: str) -> str:
    return f"{name:12} {text}"

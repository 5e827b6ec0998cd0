"""Looks at the environments of a configuration before a run: their kind, their sizes, and how they resume."""

from collections.abc import Collection

import torch

from lockstep.errors import UserError
from lockstep.workloads.gym.agents_facts import AgentsFacts, agents_facts
from lockstep.workloads.gym.kinds import Kind, kind_of
from lockstep.workloads.gym.settings import GymConfig
from lockstep.workloads.gym.single_facts import choices_text, facts_of, shape_text
from lockstep.workloads.gym.tensor import tensor_problem
from lockstep.workloads.gym.vector import resume_by, vector_formats

_FOR_AGENTS = ("maddpg", "ddpg")
_LARGEST_BUFFER = 2 * 2**30
"""Bytes of observations that a replay buffer may take, over all ranks, if its size was not asked for."""


def fitted(config: GymConfig, explicit: Collection[str]) -> tuple[GymConfig, list[str]]:
    """The configuration with what was found out, and that as lines of text; UserError if it cannot be trained."""
    kind = kind_of(config.workload)
    _refuse_algorithm(kind, config)
    if kind == "agents":
        team = agents_facts(config.workload)
        config, notes = _with_buffer(config, team, explicit)
        config, resumes = _resuming(config, team.spec.resume, team.reason)
        return config, [_line("environment", team.summary()), resumes, *notes]
    if kind == "single":
        facts = facts_of(config.workload)
        config, resumes = _resuming(config, facts.resume_by, facts.reason)
        return config, [_line("environment", facts.summary()), resumes]
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
    if kind != "agents" and algorithm in _FOR_AGENTS:
        raise UserError(f"algorithm {algorithm}: learns several agents, and {source} has one; choose --algorithm ppo")
    if kind == "vector" and algorithm == "tdmpc2":
        raise UserError(
            f"algorithm tdmpc2: {source} is a vector environment, which only ppo takes; give it a function that makes "
            "one environment, or choose --algorithm ppo"
        )


def _with_buffer(config: GymConfig, facts: AgentsFacts, explicit: Collection[str]) -> tuple[GymConfig, list[str]]:
    """A smaller replay buffer if observations would take too much memory."""
    settings = config.algorithm
    size, envs = getattr(settings, "buffer_size", 0), getattr(settings, "n_envs", 1)
    step = facts.step_bytes(half=getattr(settings, "memory_format", "") == "fp16")
    most = _LARGEST_BUFFER // step // envs * envs
    # Settings are checked as a whole, so a buffer that would be too small for a batch is left as it is.
    if "buffer_size" in explicit or size <= most or most < getattr(settings, "first_update", 0):
        return config, []
    note = f"buffer_size {most:,} instead of {size:,}: an observation of all agents takes {step // 2:,} bytes"
    return config.replace(buffer_size=most), [_line("memory", note)]


def _resuming(config: GymConfig, found: str, reason: str) -> tuple[GymConfig, str]:
    line = f"unfinished episodes continue by {found}{f': {reason}' if reason else ''}"
    return config.replace(resume_by=found), _line("resume", line)


def _line(name: str, text: str) -> str:
    return f"{name:12} {text}"

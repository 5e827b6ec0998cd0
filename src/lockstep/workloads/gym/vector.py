"""Gymnasium vector environments, made by a function of num_envs, as a problem to learn. E: environments."""

from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from lockstep.envs.env_sources import make_environment, thing_of
from lockstep.envs.gym_vector_env import GymVectorEnv, VectorFormats, formats_of
from lockstep.errors import UserError
from lockstep.rl.problem import EnvProblem
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single_facts import tried_out

_ITS_OWN = {"frame_stack": 1, "frame_skip": 1, "max_episode_steps": 0}
"""Settings that a vector environment's own wrappers replace, with the values that change nothing."""


def vector_formats(settings: GymSettings) -> VectorFormats:
    """Make one environment and look at it; UserError if it cannot be used."""
    for name, neutral in _ITS_OWN.items():
        if (value := getattr(settings, name)) != neutral:
            raise UserError(
                f"{name} {value}: a vector environment does that itself; leave it at {neutral}, and use a wrapper in "
                f"{settings.env_id}"
            )
    # The thing itself is part of the key: in a notebook another function may get the same name.
    formats = _formats(settings, thing_of(settings.env_id))
    if settings.resume_by == "replay" or (settings.resume_by == "state" and not formats.saves):
        raise UserError(
            f"resume_by {settings.resume_by}: {settings.env_id} resumes by "
            + ("state or restart" if formats.saves else "restart; give it `state` and `load` to continue its episodes")
        )
    return replace(formats, saves=False) if settings.resume_by == "restart" else formats


def resume_by(settings: GymSettings) -> str:
    """How unfinished episodes continue after a resume."""
    return "state" if vector_formats(settings).saves else "restart"


@cache
def _formats(settings: GymSettings, _: Any) -> VectorFormats:
    with tried_out(settings), closing(_made(settings, 1)) as env:
        return formats_of(env, settings.env_id, settings.shrink_images or 1)


def _made(settings: GymSettings, count: int) -> Any:
    return make_environment(settings.env_id, {**settings.arguments(), "num_envs": count})


def vector_problem(settings: GymSettings) -> EnvProblem:
    """The environments of a function of num_envs."""
    formats = vector_formats(settings)

    def environments(index: Tensor, seed: int) -> GymVectorEnv:
        # In exact mode the learner asks for one lane at a time: then a vector has the same size on any number of ranks.
        return GymVectorEnv(formats, _made(settings, len(index)), index, seed)

    return EnvProblem(
        name="gym",
        observation_shape=formats.observations.shape,
        actions=formats.rows.actions,
        make_env=environments,
        parts=formats.observations.parts,
        image_bytes=formats.observations.dtype == np.uint8,
        hosted=True,
        restarts=not formats.saves,
        masked=formats.autoreset == "NextStep",
    )

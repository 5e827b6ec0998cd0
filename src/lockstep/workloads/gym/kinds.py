"""Tells kinds of environments apart: one at a time, a vector of them, batched tensors, or several agents."""

import inspect
from typing import Any, Literal

from lockstep.envs.env_sources import creating, thing_of
from lockstep.errors import UserError
from lockstep.workloads.gym.settings import GymSettings

Kind = Literal["single", "vector", "tensor", "agents"]


def kind_of(settings: GymSettings) -> Kind:
    """What a source makes; UserError if it is not something that can be trained."""
    thing = thing_of(settings.env_id)
    if thing is None:
        return "single"
    parameters = _parameters(thing)
    if {"index", "seed"} <= parameters.keys():
        return "tensor"
    if "num_envs" in parameters and not _is(thing, "gymnasium", "Env"):
        return "vector"
    return "agents" if _makes_agents(thing, settings) else "single"


def _makes_agents(thing: Any, settings: GymSettings) -> bool:
    """Whether it makes PettingZoo's parallel environments."""
    if inspect.isclass(thing):
        return _is(thing, "pettingzoo", "ParallelEnv")
    module = inspect.getmodule(thing)
    if module is not None and module.__name__.startswith(("pettingzoo.", "mpe2.")):
        return True
    with creating(settings.env_id):
        made = thing(**settings.arguments())
    made.close()
    if _is(type(made), "gymnasium", "VectorEnv"):
        raise UserError(
            f"{settings.env_id}: makes a vector environment of a fixed size; give it a parameter num_envs, since every "
            "rank needs as many as it has"
        )
    return _is(type(made), "pettingzoo", "ParallelEnv")


def _is(kind: Any, package: str, name: str) -> bool:
    """Whether a class descends from a class of a package, which need not be installed."""
    bases = kind.__mro__ if inspect.isclass(kind) else ()
    return any(base.__name__ == name and base.__module__.split(".")[0] == package for base in bases)


def _parameters(thing: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return {}

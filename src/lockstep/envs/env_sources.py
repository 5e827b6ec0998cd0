"""Makes environments: by a registered id, a class or function in a module or file, or a function given in Python."""

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium

from lockstep.config import outside
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.launch import given


def make_environment(source: str, kwargs: Mapping[str, Any], render: bool = False) -> Any:
    """Create one environment, able to render if asked to; UserError if that fails."""
    maker = _maker(source)
    if maker is None:
        return _registered(source, {**kwargs, **({"render_mode": "rgb_array"} if render else {})})
    if render and "render_mode" in _parameters(maker):
        kwargs = {**kwargs, "render_mode": "rgb_array"}
    try:
        return maker(**kwargs)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{source}: cannot be created ({_named(error)})") from error


def thing_of(source: str) -> Any:
    """The class or function that a source names; None for a registered id."""
    return _maker(source)


def _maker(source: str) -> Any:
    if given.is_given(source):
        return given.fetch(source)
    if not outside.is_outside(source):
        # A `module:Id-v0` is registered by importing its module, which Gymnasium does itself.
        return None
    if hasattr(outside.module_from_outside(source), source.rpartition(":")[2]):
        return outside.member_from_outside(source)
    return None if source.rpartition(":")[2] in gymnasium.registry else outside.member_from_outside(source)


def _registered(source: str, kwargs: Mapping[str, Any]) -> Any:
    try:
        # Our own checks name the environment; Gymnasium's checker would warn in every worker.
        return gymnasium.make(source, disable_env_checker=True, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"env_id {shown(source)}: a package it needs is missing: {_first_line(error)}") from error
    except ModuleNotFoundError as error:
        raise UserError(
            f"env_id {shown(source)}: there is no module {error.name}; install its package, or set PYTHONPATH"
        ) from error
    except gymnasium.error.Error as error:
        problem = f"Gymnasium has no such environment ({_first_line(error)})"
        raise UserError(
            f"env_id {shown(source)}: {problem}; use one of its ids, such as CartPole-v1, or module:Class"
        ) from error
    except Exception as error:
        raise UserError(f"env_id {shown(source)}: cannot be created ({_named(error)})") from error


def _parameters(maker: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(maker).parameters
    except (TypeError, ValueError):
        return {}


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

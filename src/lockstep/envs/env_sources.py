"""Makes environments: by a registered id, a class or function in a module or file, or a function given in Python."""

import importlib
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium

from lockstep.config import outside
from lockstep.config.values import shown
from lockstep.envs.failures import failures_told
from lockstep.errors import LockstepError, UserError, described
from lockstep.launch import given


def make_environment(source: str, kwargs: Mapping[str, Any], render: bool = False) -> Any:
    """Create one environment, able to render if asked to; UserError if that fails."""
    maker = _maker(source)
    if maker is None:
        return make_registered(source, kwargs, render, f"env_id {shown(source)}", "CartPole-v1, or module:Class")
    if render and "render_mode" in _parameters(maker):
        kwargs = {**kwargs, "render_mode": "rgb_array"}
    with creating(source):
        return maker(**kwargs)


@contextmanager
def creating(name: str, passing: tuple[type[Exception], ...] = (LockstepError,)) -> Iterator[None]:
    """UserError with this name if an environment's constructor fails; `passing`: see `failures_told`."""
    with failures_told(lambda problem: UserError(f"{name}: cannot be created ({problem})"), passing):
        yield


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


def make_registered(name: str, kwargs: Mapping[str, Any], render: bool, where: str, such_as: str) -> Any:
    """Create the environment with this id; UserError if that fails.

    `where`: who asked for it, and `such_as`: what could be asked for, in error messages.
    """
    if render:
        kwargs = {**kwargs, "render_mode": "rgb_array"}
    try:
        with creating(where, passing=(gymnasium.error.Error, ImportError)), quiet(), _without_mujoco_log(name):
            # Our own checks name the environment; Gymnasium's checker would warn in every worker.
            return gymnasium.make(name, disable_env_checker=True, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"{where}: a package it needs is missing: {_first_line(error)}") from error
    except ModuleNotFoundError as error:
        raise UserError(f"{where}: there is no module {error.name}; install its package, or set PYTHONPATH") from error
    except gymnasium.error.Error as error:
        problem = f"Gymnasium has no such environment ({_first_line(error)})"
        raise UserError(f"{where}: {problem}; use one of its ids, such as {such_as}") from error
    except ImportError as error:
        problem = f"cannot be created ({described(error)})"
        raise UserError(f"{where}: {problem}; install its dependencies, or use a newer version of it") from error


def uses_mujoco(name: str) -> bool:
    """Whether the environment with this id is one of Gymnasium's that MuJoCo simulates."""
    found = gymnasium.registry.get(name.rpartition(":")[2])
    return found is not None and "mujoco" in str(found.entry_point)


@contextmanager
def _without_mujoco_log(name: str) -> Iterator[None]:
    """Drop MuJoCo's warnings about Gymnasium's models: it writes them to a log file in the working directory."""
    try:
        # Imported only for its own environments, as it is slow.
        mujoco = importlib.import_module("mujoco") if uses_mujoco(name) else None
    except ImportError:  # gymnasium.make reports it
        mujoco = None
    if mujoco is None:
        yield
        return
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Without Gymnasium's advice on versions and types, which every worker process would repeat."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _parameters(maker: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(maker).parameters
    except (TypeError, ValueError):
        return {}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

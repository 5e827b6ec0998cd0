"""Lockstep trains one model on any number of devices, with the same result, and provably so."""

import importlib
from typing import TYPE_CHECKING, Any

from lockstep.version import __version__

if TYPE_CHECKING:
    from lockstep.algorithms.algorithm import Algorithm
    from lockstep.api import Run, evaluate, fit, load, sweep, train
    from lockstep.config.config import AlgorithmSettings, Config, NetworkSettings, WorkloadSettings, preset
    from lockstep.distributed.world import World
    from lockstep.envs.vector_env import Transition, VectorEnv
    from lockstep.policy import Policy
    from lockstep.rl.problem import Continuous, Discrete, EnvProblem
    from lockstep.workloads.fit.workload import Fit
    from lockstep.workloads.workload import Workload

__all__ = [
    "Algorithm",
    "AlgorithmSettings",
    "Config",
    "Continuous",
    "Discrete",
    "EnvProblem",
    "Fit",
    "NetworkSettings",
    "Policy",
    "Run",
    "Transition",
    "VectorEnv",
    "Workload",
    "WorkloadSettings",
    "World",
    "__version__",
    "evaluate",
    "fit",
    "load",
    "preset",
    "sweep",
    "train",
]

_HOMES = {
    **dict.fromkeys(("Run", "evaluate", "fit", "load", "sweep", "train"), "lockstep.api"),
    **dict.fromkeys(("AlgorithmSettings", "Config", "NetworkSettings", "WorkloadSettings"), "lockstep.config.config"),
    "Policy": "lockstep.policy",
    "preset": "lockstep.config.config",
    **dict.fromkeys(("Continuous", "Discrete", "EnvProblem"), "lockstep.rl.problem"),
    **dict.fromkeys(("Transition", "VectorEnv"), "lockstep.envs.vector_env"),
    "Algorithm": "lockstep.algorithms.algorithm",
    "Fit": "lockstep.workloads.fit.workload",
    "Workload": "lockstep.workloads.workload",
    "World": "lockstep.distributed.world",
}
"""Where each public name is. It is imported on first use: `import lockstep` and --help stay fast without torch."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

"""Networks that users bring: made by a function of theirs, and tried before a run starts. B: observations."""

import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.compute.random import derive_seed
from lockstep.config.outside import member_from_outside
from lockstep.config.values import shown
from lockstep.errors import LockstepError, UserError
from lockstep.rl.networks import output_count
from lockstep.rl.problem import Continuous, EnvProblem


def network_from(name: str, problem: EnvProblem, seed: int, recurrent: bool) -> nn.Module:
    """Call the function `module:function` or `file.py:function` with the problem; UserError if it makes no network."""
    function = member_from_outside(name)
    if not callable(function):
        raise UserError(f"network {shown(name)}: is not a function; allowed: function(problem) -> torch.nn.Module")
    # Layers initialise themselves from torch's global generator, so that is set for the time of the call: every rank
    # starts with the same weights, and nothing else depends on how many numbers the function drew.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "network"))
        try:
            network = function(problem)
        except LockstepError:
            raise
        except Exception as error:
            raise UserError(f"network {shown(name)}: fails for {problem.name} ({_reason(error)})") from error
    if not isinstance(network, nn.Module):
        raise UserError(
            f"network {shown(name)}: returned {type(network).__name__}; allowed: function(problem) -> torch.nn.Module"
        )
    if hasattr(network, "first_memory") != recurrent:
        has, flag = ("has a memory", "true") if not recurrent else ("has no first_memory", "false")
        raise UserError(f"network {shown(name)}: {has}; set --recurrent {flag}")
    return network


@torch.no_grad()
def check_outputs(name: str, network: nn.Module, observation: Tensor, problem: EnvProblem) -> None:
    """Raise UserError unless the network answers observations (B, ...) with outputs and values of the right shapes."""
    count = len(observation)
    size = output_count(problem.actions) * (2 if isinstance(problem.actions, Continuous) else 1)
    first = getattr(network, "first_memory", None)
    memory: tuple[Any, ...] = () if first is None else (first(count, observation.device),)
    seen = f"observations {tuple(observation.shape)} {str(observation.dtype).removeprefix('torch.')}"
    try:
        answer = network(observation, *memory)
    except Exception as error:
        raise UserError(f"network {shown(name)}: fails on {seen} ({_reason(error)})") from error
    expected = [(count, size), (count,)]
    found = list(answer)[:2] if isinstance(answer, tuple | list) else [answer]
    shapes = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in found]
    if shapes != expected:
        raise UserError(
            f"network {shown(name)}: answers {seen} with {', '.join(map(str, shapes))}; "
            f"needed: outputs {expected[0]} and values {expected[1]}"
        )


def _reason(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    # The last line of the user's own: an error usually surfaces in torch.
    library = str(Path(torch.__file__).parent)
    place = next((frame for frame in reversed(frames) if not frame.filename.startswith(library)), frames[-1])
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {shown(text)}, {place.filename}:{place.lineno}"

"""Converts the public mt30 and mt80 data, chunks saved as TensorDicts, without unpickling any code."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.errors import UserError
from lockstep.storage.torch_file import Foreign, read_torch_file
from lockstep.workloads.control.env import stored_facts
from lockstep.workloads.control.episodes import Episode, EpisodeWriter
from lockstep.workloads.control.names import TaskFacts
from lockstep.workloads.control.settings import ControlSettings

_TENSORDICT = "_tensordict"  # the key under which TensorDict pickles its entries
_NEEDED = ("obs", "action", "reward", "task")  # `terminated` is optional: the public chunks do not have it


def convert_chunks(settings: ControlSettings, source: Path, folder: Path) -> tuple[int, int]:
    """Convert one chunk (.pt), or all in a directory, to episode files; returns how many episodes and steps."""
    facts = stored_facts(settings)
    paths = sorted(source.glob("*.pt")) if source.is_dir() else [source]
    if not paths or not paths[0].exists():
        raise UserError(f"{source}: no chunks (.pt) there; give the directory they were downloaded to")
    writer = EpisodeWriter(folder, facts.tasks)
    steps = 0
    # Chunk by chunk: all of them together, hundreds of millions of steps, would not fit into memory.
    for path in paths:
        for episode in read_chunk(path, facts):
            writer.add(episode)
            steps += len(episode.action)
    writer.flush()
    return writer.count, steps


def read_chunk(path: Path, facts: TaskFacts) -> Iterator[Episode]:
    """Yield the episodes of one chunk, whose columns are (episodes, T + 1, ...).

    Row 0 holds the first observation only: its action and reward are padding and are dropped.
    """
    try:
        columns = _columns(read_torch_file(path))
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: not a chunk of episodes: {error}") from error
    _check(path, columns, facts)
    ended = columns.get("terminated")
    for i, tasks in enumerate(columns["task"].long()):
        if bool((tasks != tasks[0]).any()) or not 0 <= int(tasks[0]) < len(facts.tasks):
            raise UserError(
                f"{path}: episode {i} does not belong to exactly one of the {len(facts.tasks)} tasks; "
                "use the data of this task set"
            )
        # Clones, because a view would keep the whole chunk in memory until the writer flushes.
        reward = columns["reward"][i, 1:].float().clone()
        yield Episode(
            observation=columns["obs"][i].float().clone(),
            action=columns["action"][i, 1:].float().clone(),
            reward=reward,
            terminated=torch.zeros_like(reward, dtype=torch.bool) if ended is None else ended[i, 1:].bool().clone(),
            task=int(tasks[0]),
        )


def _columns(content: Any) -> Mapping[str, Tensor]:
    """The tensors of a TensorDict. Its versions pickle differently: as state, or as arguments of a constructor."""
    if isinstance(content, Foreign):
        if not content.name.startswith("tensordict."):
            # Never called: the reader returns a description of the call instead.
            raise ValueError(f"it would call {content.name} on loading, which is not allowed")
        states = [part for part in (content.state, *content.arguments) if isinstance(part, Mapping)]
        content = _entries(next((state[_TENSORDICT] for state in states if _TENSORDICT in state), None))
    if not isinstance(content, Mapping):
        raise ValueError("it holds no TensorDict")
    return {name: value for name, value in content.items() if isinstance(value, Tensor)}


def _entries(content: Any) -> Any:
    """The entries of a dict, or of one of tensordict's own dict subclasses."""
    is_subclass = isinstance(content, Foreign) and content.name.startswith("tensordict.")
    return content.items if is_subclass else content


def _check(path: Path, columns: Mapping[str, Tensor], facts: TaskFacts) -> None:
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise UserError(f"{path}: has no {' and no '.join(missing)}; a chunk has {', '.join(_NEEDED)}")
    shapes = {name: tuple(columns[name].shape) for name in _NEEDED}
    rows = shapes["reward"]
    expected = {"obs": (*rows, facts.obs_dim), "action": (*rows, facts.action_dim), "reward": rows, "task": rows}
    wrong = next((name for name in _NEEDED if shapes[name] != expected[name]), None)
    # A row more than steps: fewer than two rows would be an episode without a step.
    if wrong or len(rows) != 2 or rows[1] < 2:
        name = wrong or "reward"
        raise UserError(f"{path}: {name} has the shape {shapes[name]}, not {expected[name]}; use data of one task set")

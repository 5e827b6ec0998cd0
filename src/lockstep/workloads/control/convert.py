"""Episodes from the public mt30 and mt80 data: chunks that were saved as TensorDicts, read without running them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.errors import UserError
from lockstep.storage.torch_file import Foreign, read_torch_file
from lockstep.workloads.control.env import TaskChoice, stored_facts
from lockstep.workloads.control.episodes import Episode, EpisodeWriter
from lockstep.workloads.control.names import TaskFacts

_TENSORDICT = "_tensordict"
_NEEDED = ("obs", "action", "reward", "task")


def convert_chunks(config: TaskChoice, source: Path, folder: Path) -> tuple[int, int]:
    """Write the chunks (.pt) of a directory, or one of them, as episode files; returns the episodes and steps."""
    facts = stored_facts(config)
    paths = sorted(source.glob("*.pt")) if source.is_dir() else [source]
    if not paths or not paths[0].exists():
        raise UserError(f"{source}: no chunks (.pt) there; give the directory that they were downloaded to")
    writer = EpisodeWriter(folder, facts.tasks)
    steps = 0
    for path in paths:
        for episode in read_chunk(path, facts):
            writer.add(episode)
            steps += len(episode.action)
    writer.flush()
    return writer.count, steps


def read_chunk(path: Path, facts: TaskFacts) -> Iterator[Episode]:
    """The episodes of one chunk: (episodes, T + 1, ...) each, the first action and reward of each without meaning."""
    try:
        columns = _columns(read_torch_file(path))
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: not a chunk of episodes: {error}") from error
    _check(path, columns, facts)
    ended = columns.get("terminated")
    for i, tasks in enumerate(columns["task"].long()):
        if bool((tasks != tasks[0]).any()) or not 0 <= int(tasks[0]) < len(facts.tasks):
            raise UserError(f"{path}: episode {i} is of no single task among {len(facts.tasks)}; use data of one set")
        reward = columns["reward"][i, 1:].float().clone()
        yield Episode(
            observation=columns["obs"][i].float().clone(),
            action=columns["action"][i, 1:].float().clone(),
            reward=reward,
            terminated=torch.zeros_like(reward, dtype=torch.bool) if ended is None else ended[i, 1:].bool().clone(),
            task=int(tasks[0]),
        )


def _columns(content: Any) -> Mapping[str, Tensor]:
    """The tensors of a TensorDict, however its version had itself saved."""
    if isinstance(content, Foreign):
        if not content.name.startswith("tensordict."):
            raise ValueError(f"it wants {content.name} called, which is not done here")
        states = [part for part in (content.state, *content.arguments) if isinstance(part, Mapping)]
        content = _entries(next((state[_TENSORDICT] for state in states if _TENSORDICT in state), None))
    if not isinstance(content, Mapping):
        raise ValueError("no TensorDict is in it")
    return {name: value for name, value in content.items() if isinstance(value, Tensor)}


def _entries(content: Any) -> Any:
    """What a dict holds, also where it is of a class that TensorDict itself made of dict."""
    own = isinstance(content, Foreign) and content.name.startswith("tensordict.")
    return content.items if own else content


def _check(path: Path, columns: Mapping[str, Tensor], facts: TaskFacts) -> None:
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise UserError(f"{path}: has no {' and no '.join(missing)}; a chunk has {', '.join(_NEEDED)}")
    shapes = {name: tuple(columns[name].shape) for name in _NEEDED}
    rows = shapes["reward"]
    wanted = {"obs": (*rows, facts.obs_dim), "action": (*rows, facts.action_dim), "reward": rows, "task": rows}
    wrong = next((name for name in _NEEDED if shapes[name] != wanted[name]), None)
    if wrong or len(rows) != 2 or rows[1] < 2:
        name = wrong or "reward"
        raise UserError(f"{path}: {name} has the shape {shapes[name]}, not {wanted[name]}; use data of one task set")

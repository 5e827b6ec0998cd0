"""Compares what must be the same on all ranks, before the first step: later checks would not notice a difference.

Replicas with different settings still hold equal weights, since they share every gradient.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

import torch

from lockstep.config.config import AnyConfig
from lockstep.config.sources import from_yaml, to_yaml
from lockstep.config.values import shown
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.version import __version__

Verb = Literal["was given", "has", "computes on", "reads"]

_RULES: dict[Verb, str] = {
    "was given": "all ranks of a run need the same settings; start them with the same command",
    "has": "all ranks of a run need the same versions; install one of the two everywhere",
    "computes on": "all ranks of a run need the same kind of device; start them with --device",
    "reads": "all ranks of a run need the same data; copy it to every machine",
}


@dataclass(frozen=True)
class Fact:
    """Something that must be the same on all ranks, phrased for the error message: rank N VERB NAME VALUE."""

    verb: Verb
    name: str
    value: Any
    """A JSON scalar."""


def facts_of(workload: str, asked: AnyConfig, world: World) -> list[Fact]:
    """What this rank was given, without what may differ between machines.

    Versions come first: they explain any other difference, and the first difference is the one reported.
    """
    versions = [Fact("has", "Lockstep", __version__), Fact("has", "torch", str(torch.__version__))]
    settings = [Fact("was given", name, value) for name, value in asked.shared_settings().items()]
    return [
        *versions,
        Fact("was given", "workload", workload),
        *settings,
        Fact("computes on", "device", world.device.type),
        Fact("has", "NCCL", world.carrier.version),
    ]


def data_facts(digest: str) -> list[Fact]:
    """The digest that identifies this rank's data; `none` if it has no data."""
    return [Fact("reads", "data with digest", digest or "none")]


def compare(world: World, facts: Iterable[Fact]) -> None:
    """Raise the same UserError on all ranks unless all ranks state the same facts. Called by every rank."""
    stated = world.gather_json([astuple(fact) for fact in facts])
    if problem := difference([[Fact(*fact) for fact in facts] for facts in stated]):
        raise UserError(problem)


def difference(stated: Sequence[Sequence[Fact]]) -> str | None:
    """The first rank that differs from rank 0, and its first difference; None if all agree."""
    for rank, theirs in enumerate(stated):
        values = {fact.name: fact.value for fact in theirs}
        for fact in stated[0]:
            # Versions and workload come first: ranks that agree on those state facts with the same names.
            value = values.get(fact.name)
            if value != fact.value:
                found = f"rank {rank} {fact.verb} {fact.name} {shown(value)}, rank 0 {shown(fact.value)}"
                return f"{found}: {_RULES[fact.verb]}"
    return None


def settle(world: World, workload: str, asked: AnyConfig, config: AnyConfig) -> AnyConfig:
    """The run's configuration: rank 0's, except for what may differ between machines. Called by every rank.

    asked: what this rank was given, which must be the same on all ranks. config: the same with sizes chosen for this
    machine, if the user asked for that; different machines may choose differently, so rank 0's choice applies to all.
    """
    compare(world, facts_of(workload, asked, world))
    leaders = from_yaml(world.from_leader(to_yaml(config)), config.layout, "rank 0's configuration")
    return leaders.on_machine_of(config)

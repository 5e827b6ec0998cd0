"""What all ranks of a run must have been given alike, compared before the first step: nothing later would tell.

Replicas that were given different settings hold equal weights all the same, since they share every gradient.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, TypeVar

import torch

from lockstep.config.run_config import RunConfig
from lockstep.config.sources import from_yaml, to_yaml
from lockstep.config.values import shown
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.version import __version__

Config = TypeVar("Config", bound=RunConfig)
Verb = Literal["was given", "has", "computes on", "reads"]

_RULES: dict[Verb, str] = {
    "was given": "all ranks of a run need the same settings; start them with the same command",
    "has": "all ranks of a run need the same versions; install one of the two everywhere",
    "computes on": "all ranks of a run need the same kind of device; start them with --device",
    "reads": "all ranks of a run need the same data; copy it to every machine",
}


@dataclass(frozen=True)
class Fact:
    """Something that must be the same on all ranks, as a sentence tells it: a rank VERB NAME VALUE."""

    verb: Verb
    name: str
    value: Any
    """A JSON scalar."""


def facts_of(workload: str, asked: RunConfig, world: World) -> list[Fact]:
    """What this rank was given, apart from what may differ between machines; what explains the rest comes first."""
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
    """What tells this rank's data from other data; empty where there is none."""
    return [Fact("reads", "data with digest", digest or "none")]


def compare(world: World, facts: Iterable[Fact]) -> None:
    """End the run on all ranks, in the same words, unless all ranks state the same facts. Called by every rank."""
    stated = world.gather_json([astuple(fact) for fact in facts])
    if problem := difference([[Fact(*fact) for fact in facts] for facts in stated]):
        raise UserError(problem)


def difference(stated: Sequence[Sequence[Fact]]) -> str | None:
    """The first rank that differs from rank 0 and the first thing in which it does; None where all are alike."""
    for rank, theirs in enumerate(stated):
        values = {fact.name: fact.value for fact in theirs}
        for fact in stated[0]:
            # Versions and workload come first, so that ranks which agree so far state facts of the same names.
            value = values.get(fact.name)
            if value != fact.value:
                told = f"rank {rank} {fact.verb} {fact.name} {shown(value)}, rank 0 {shown(fact.value)}"
                return f"{told}: {_RULES[fact.verb]}"
    return None


def settle(world: World, workload: str, asked: Config, config: Config) -> Config:
    """The one configuration of the run: rank 0's, apart from what may differ between machines. Called by every rank.

    asked: what this rank was given, which must be the same on all. config: that with sizes chosen for this machine,
    where the user asked for it; there unlike machines may rightly differ, and rank 0 chooses for all.
    """
    compare(world, facts_of(workload, asked, world))
    leaders = from_yaml(world.from_leader(to_yaml(config)), type(config), "rank 0's configuration")
    return leaders.on_machine_of(config)

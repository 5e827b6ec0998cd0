"""`lockstep plan`: prints the resolved configuration and each rank's share of the work; starts nothing."""

import json
import shlex
from dataclasses import dataclass

from lockstep.cli import argv as command
from lockstep.cli.explain import offer_explanation
from lockstep.cli.starting import ranks_here
from lockstep.cli.train import TrainOptions, help_for
from lockstep.config.config import AnyConfig
from lockstep.config.sources import to_yaml
from lockstep.distributed.lanes import Sync, lanes_of_rank
from lockstep.launch.machines import Machines
from lockstep.output import show, suggest
from lockstep.run.plan import plan_rows
from lockstep.workloads import registry
from lockstep.workloads.requests import read_wanted

USAGE = "lockstep plan WORKLOAD [--preset NAME] [--config FILE] [--FIELD VALUE]... [--gpus N | --ranks N] [--json]"


@dataclass(frozen=True, kw_only=True)
class PlanOptions(TrainOptions):
    """Output format."""

    json: bool = False
    """Print one JSON object."""


def plan(arguments: list[str]) -> int:
    """The verb `plan`."""
    offer_explanation(arguments)
    name, rest = command.take_subject(arguments, "workload", lambda rest: help_for(rest, USAGE, PlanOptions))
    workload = registry.load(name)
    options, rest = command.take(rest, PlanOptions())
    wanted = read_wanted(workload, options.preset, options.config or None, rest)
    config, notes = wanted.config, list(wanted.notes)
    notes += [f"{'autotune':12} sizes like these are tried when the run starts"] if config.run.autotune else []
    machines = Machines.parse(options.nnodes, options.rdzv_endpoint)
    here, more_notes = ranks_here(config, options, machines)
    # With a range of machines (--nnodes 1:4), the plan is for the largest world.
    ranks = here * (machines.most if machines else 1)
    config = config.for_world(ranks)
    rows = plan_rows(workload.name, config, ranks, *_device(config, ranks))
    lanes = [list(lanes_of_rank(config.effective_lanes, rank, ranks)) for rank in range(ranks)]
    if options.json:
        whole = {
            "workload": workload.name,
            "ranks": ranks,
            "lanes": lanes,
            "plan": dict(rows),
            "config": config.values(),
        }
        print(json.dumps(whole))
        return 0
    for line in [*notes, *more_notes, *(f"{what:12} {text}" for what, text in rows)]:
        show(line)
    show("")
    for rank, owned in enumerate(lanes):
        show(f"rank {rank}: lanes {owned[0]} to {owned[-1]}" if len(owned) > 1 else f"rank {rank}: lane {owned[0]}")
    show(f"\n{to_yaml(config).rstrip()}")
    suggest(shlex.join(["lockstep", "train", *arguments]))
    return 0


def _device(config: AnyConfig, ranks: int) -> tuple[str, Sync]:
    """A description of the device, and how ranks are kept equal on it."""
    from lockstep.distributed.world import choose_device, describe_device

    device = choose_device(config.run.device, 0, ranks)
    return describe_device(device), config.sync_on(device.type)

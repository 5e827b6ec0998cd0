"""`lockstep arena`: runs, scripted players and other people's submissions play each other."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from lockstep.cli import argv as command
from lockstep.cli import model as models
from lockstep.cli.model import TRAINED, ModelOptions
from lockstep.config.fields import Range, Seed
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.output import counted, show, tell
from lockstep.workloads import registry
from lockstep.workloads.contests import ArenaRequest, Contestant, HoldsArenas
from lockstep.workloads.workload import Workload

USAGE = (
    "lockstep arena PLAYER PLAYER... [--games 400] [--seed S] [--save DIR] [--json] [--time-limit 2] [--trust]\n\n"
    "A player is a run, a scripted player (greedy, random ...) or a submission.py of the competition, or its folder. "
    "Every two of them play, half of their games from each side. A submission runs in a process without network, "
    "other files or other processes (Linux); one that fails, cheats or is too slow loses that game."
)
MOST_PLAYERS = 64
DEFAULT = "snakes3v3"


@dataclass(frozen=True, kw_only=True)
class ArenaOptions(ModelOptions):
    """What is played."""

    games: Annotated[int, Range(at_least=2, at_most=1_000_000)] = 400
    """Games of every two players, half of them from each side."""
    seed: Seed = 2025
    """Seed of the games."""
    time_limit: Annotated[float, Range(above=0, at_most=600)] = 2.0
    """Seconds that a submission has for the moves of its three snakes; it may load for 20."""
    memory: Annotated[float, Range(at_least=0.1, at_most=1000)] = 2.0
    """GB of memory that a process of a submission may use."""
    trust: bool = False
    """Run submissions with your own rights, as if you had started them yourself: needed on systems other than Linux."""
    save: str = ""
    """Folder to write every game to, for `lockstep play snakes3v3 --replay FILE`; slower. None = games are not kept."""
    json: bool = False
    """Print JSON, with the difference of every two players."""


def arena(arguments: list[str]) -> int:
    """The verb `arena`."""
    command.offer_help(arguments, lambda _: command.help_text(USAGE, ArenaOptions))
    options, names = command.take_words(arguments, ArenaOptions())
    if not 2 <= len(names) <= MOST_PLAYERS:
        raise UserError(f"arena: {counted(len(names), 'player')} named; allowed: 2 to {MOST_PLAYERS}")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"arena: {shown(twice[0])} is named twice; name each player once")
    _check_folder(options.save)
    workload = registry.load(options.workload or DEFAULT)
    able = registry.require(workload, HoldsArenas)
    players = [_player(name, workload, able, options) for name in names]
    if any(isinstance(player, Path) for player in players):
        _check_platform(options.trust)
    request = ArenaRequest(
        options.games,
        options.seed,
        options.time_limit,
        int(options.memory * 2**30),
        options.trust,
        Path(options.save) if options.save else None,
    )
    world = models.place_of(models.Subject(workload, workload.preset("base")), options.device)
    results = able.arena(players, request, world, lambda line: tell(line, sys.stderr))
    if options.json:
        print(json.dumps(results.summary()))
    else:
        show(results.table())
    return 0


def _check_folder(save: str) -> None:
    """Raise UserError now, rather than after the first models are loaded, if --save names no possible folder."""
    path = Path(save)
    there = next(place for place in (path, *path.parents) if place.exists())
    if not there.is_dir():
        raise UserError(
            f"--save {shown(save)}: {shown(str(there))} is a file; give the path of a folder, which is made if need be"
        )


def _check_platform(trusts: bool) -> None:
    if sys.platform == "win32":
        raise UserError("arena: submissions need Linux, or --trust on any system but Windows; leave them out here")
    if sys.platform != "linux" and not trusts:
        raise UserError("arena: a submission can be confined on Linux only; --trust runs it with your own rights")


def _player(name: str, workload: Workload, able: HoldsArenas, options: ArenaOptions) -> Contestant | Path:
    if name in workload.baselines:
        return Contestant(name, workload.preset("base"))
    if able.is_submission(Path(name)):
        return Path(name)
    try:
        found = models.find(name, replace(options, workload=""), [])
        found.check_policy(TRAINED)
    except UserError as error:
        raise UserError(f"{error}; scripted players are {', '.join(workload.baselines)}") from error
    if found.workload.name != workload.name:
        raise UserError(f"{shown(name)}: is a run of {found.workload.name}, not of {workload.name}")
    return Contestant(name, found.config, models.load(found, options.device).learner)

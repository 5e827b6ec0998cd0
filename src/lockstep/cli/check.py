"""`lockstep check`: what is wrong with an environment, before it costs a night of training."""

import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lockstep.cli import argv as command
from lockstep.cli.proof import Proof
from lockstep.config.config import AnyConfig
from lockstep.config.fields import Range
from lockstep.config.sources import Resolved
from lockstep.errors import LockstepError, RunFailed, UserError
from lockstep.output import counted, show, suggest
from lockstep.workloads import registry
from lockstep.workloads.capabilities import ChecksItself
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from lockstep.rl.env_check import Finding

USAGE = "lockstep check WORKLOAD | FILE.py | module:Class [--steps 200] [--ranks 2] [--FIELD VALUE]..."


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """How much is tried."""

    steps: Annotated[int, Range(at_least=2, at_most=1_000_000)] = 200
    """Steps with random actions."""
    ranks: Annotated[int, Range(at_least=1, at_most=64)] = 2
    """Ranks to compare with one rank by a short training in exact mode; 1 = no training."""
    updates: Annotated[int, Range(at_least=1, at_most=1000)] = 3
    """Updates of that training."""
    preset: str = "debug"
    """Named configuration to train."""


def check(arguments: list[str]) -> int:
    """The verb `check`."""
    name, rest = command.take_subject(arguments, "workload", lambda _: command.help_text(USAGE, CheckOptions))
    options, rest = command.take(rest, CheckOptions())
    workload = registry.load(name)
    preset = options.preset if options.preset in workload.presets else "base"
    resolved = workload.resolve(preset, overrides=rest)
    problems = 0
    for finding in _findings(workload, resolved, options):
        problems += not finding.good
        show(f"{'ok' if finding.good else 'WRONG':6}{finding.subject:13}{finding.problem or finding.detail}")
    if problems:
        raise RunFailed(f"{name}: {counted(problems, 'problem')} to correct; see the lines marked WRONG")
    show("nothing is wrong")
    target = shlex.join([name, *rest])
    suggest(f"lockstep train {target}", f"lockstep verify {target} --ranks 1,2")
    return 0


def _findings(workload: Workload, resolved: Resolved[AnyConfig], options: CheckOptions) -> "Iterator[Finding]":
    from lockstep.distributed.world import World
    from lockstep.rl.env_check import check_environments
    from lockstep.rl.problem import EnvProblem

    good = True
    if isinstance(workload, ChecksItself):
        for finding in workload.check_itself(resolved.config, options.steps):
            good &= finding.good
            yield finding
    if not good:
        # What follows relies on environments that can be reset and stepped.
        return
    config, lines = workload.fit(resolved.config, resolved.explicit)
    for line in lines:
        show(f"{'':6}{line}")
    problem = workload.problem(config, World())
    if isinstance(problem, EnvProblem):
        for finding in check_environments(problem, options.steps):
            good &= finding.good
            yield finding
    if good and options.ranks > 1:
        yield _one_hash(workload, config, options)


def _one_hash(workload: Workload, config: AnyConfig, options: CheckOptions) -> "Finding":
    """Train briefly in exact mode on one rank and on several: the weights must be the same to the last bit."""
    from lockstep.distributed.pool import RankPool
    from lockstep.rl.env_check import Finding

    config = config.replace(device="cpu")
    if options.ranks > config.effective_lanes:
        raise UserError(f"--ranks {options.ranks}: allowed: 1 to {config.effective_lanes}, the lanes of this run")
    try:
        with RankPool(options.ranks, device="cpu") as pool, tempfile.TemporaryDirectory() as folder:
            proof = Proof(pool, workload, config, options.updates, Path(folder))
            one, several = proof.on_end("exact", [1, options.ranks])
    except LockstepError as error:
        return Finding("ranks", f"a short training failed: {error}")
    if one.sha256 != several.sha256:
        hashes = f"{one.sha256[:8]} on 1 rank, {several.sha256[:8]} on {options.ranks}"
        return Finding("ranks", f"{hashes}: an environment depends on its process, or on random numbers without a seed")
    detail = f"one hash on 1 and {options.ranks} ranks after {options.updates} updates: {one.sha256[:16]}"
    return Finding("ranks", detail=detail)

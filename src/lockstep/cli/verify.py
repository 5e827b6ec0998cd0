"""`lockstep verify`: proves that 1 and N ranks train the same model, or that a run's files are undamaged."""

import shlex
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table

from lockstep.cli import argv as command
from lockstep.cli.proof import CEILING, MULTIPLE, RESOLUTION, STRETCH, FastProof, Gap, Outcome, Proof
from lockstep.config.config import AnyConfig
from lockstep.config.fields import Count, Pattern
from lockstep.config.schema import Schema
from lockstep.errors import NoValidCheckpoint, RunFailed, UserError
from lockstep.launch import resources
from lockstep.output import show, suggest
from lockstep.storage.run_directory import RunDirectory
from lockstep.workloads import registry

USAGE = (
    "lockstep verify WORKLOAD [--ranks 1,2,4] [--updates N] [--FIELD VALUE]...   or   lockstep verify RUN "
    "[--runs-dir DIR]"
)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """What is compared."""

    ranks: Annotated[str, Pattern(r"auto|\d{1,3}(,\d{1,3})*", "auto, or numbers of ranks, such as 1,2,4")] = "auto"
    """Numbers of ranks; exact checks every number up to the largest. auto = 1, 2, 4 ... GPUs, or 1,2 without GPUs."""
    updates: Count = 10
    """Updates to train on each number of ranks."""
    preset: str = "debug"
    """Named configuration to train."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the ranks compute; auto = the GPUs that are visible, else the CPU. Ranks may share a GPU."""
    quiet: bool = False
    """Print only errors and the result."""


@dataclass(frozen=True, kw_only=True)
class VerifyRunOptions:
    """Of a run: which one."""

    runs_dir: str = "runs"
    """Folder in which runs are found by their names."""
    quiet: bool = False
    """Print only errors and the result."""


def verify(arguments: list[str]) -> int:
    """The verb `verify`."""
    subject, rest = command.take_subject(arguments, "workload or run", lambda _: _help())
    if registry.is_name(subject):
        return _verify_workload(subject, rest)
    options = command.take_all(rest, VerifyRunOptions())
    return _verify_run(RunDirectory.find(subject, Path(options.runs_dir), registry.names()), options.quiet)


def _help() -> str:
    return command.help_text(USAGE, VerifyOptions, Schema.of(VerifyRunOptions))


def _verify_run(run: RunDirectory, quiet: bool) -> int:
    from lockstep.storage import checkpoint_retention

    verdicts = checkpoint_retention.verify_run(run.path)
    for name, problems in verdicts.items():
        if problems or not quiet:
            show(f"{name:32} {'DAMAGED' if problems else 'intact'}")
        for problem in problems:
            show(f"    {problem}")
    damaged = [name for name, problems in verdicts.items() if problems]
    if not verdicts:
        raise NoValidCheckpoint(f"{run.path}: has no checkpoint yet")
    if damaged:
        raise NoValidCheckpoint(f"{run.path}: {len(damaged)} of {len(verdicts)} are damaged: {', '.join(damaged)}")
    if quiet:
        show(f"{run.path}: {len(verdicts)} intact")
    else:
        suggest(f"lockstep resume {shlex.quote(str(run.path))}", f"lockstep eval {shlex.quote(str(run.path))}")
    return 0


def _verify_workload(name: str, rest: list[str]) -> int:
    from lockstep.distributed.pool import RankPool
    from lockstep.distributed.world import choose_device

    workload = registry.load(name)
    options, rest = command.take(rest, VerifyOptions())
    resolved = workload.resolve(options.preset, overrides=rest)
    if "sync" in resolved.explicit:
        raise UserError("sync: verify checks both modes; leave it out")
    kind = ("cuda" if resources.visible_gpus() else "cpu") if options.device == "auto" else options.device
    device = choose_device(kind, 0).type
    config = workload.fit(resolved.config, resolved.explicit)[0].replace(device=device)
    sizes = _sizes(options.ranks, config.effective_lanes)
    console, tables = (
        Console(quiet=options.quiet),
        _Tables(options.updates, _format(config, device), on_gpu=device == "cuda"),
    )
    console.print(
        f"{workload.name}, preset {options.preset}, {device}: {options.updates} updates on each number of ranks ...",
        highlight=False,
    )
    with RankPool(sizes[-1], device=device) as pool, tempfile.TemporaryDirectory() as folder:
        proof = Proof(pool, workload, config, options.updates, Path(folder))
        fast = proof.fast(sizes)
        console.print(tables.fast(fast))
        exact = list(proof.on_end("exact", list(range(1, sizes[-1] + 1))))
        console.print(tables.exact(exact))
        console.print(tables.drift(list(proof.on_end("fast", sizes))))
    broken = [f"fast on {row.ranks} ranks" for row in fast.rows if not row.holds]
    broken += [f"exact on {outcome.ranks} ranks" for outcome in exact if not outcome.same]
    if broken:
        raise RunFailed(f"not the same model: {', '.join(broken)}")
    show(f"same model on 1 to {sizes[-1]} ranks: fast up to rounding, exact to the last bit")
    if not options.quiet:
        suggest(shlex.join(["lockstep", "train", name, *rest, "--ranks", str(sizes[-1]), "--sync", "exact"]))
    return 0


def _sizes(text: str, lanes: int) -> list[int]:
    """The numbers of ranks to compare, always including 1."""
    if text == "auto":
        most = min(lanes, max(2, resources.visible_gpus()))
        return sorted({1, most, *(2**power for power in range(1, most.bit_length()) if 2**power < most)})
    sizes = sorted({1, *(int(size) for size in text.split(","))})
    if sizes[0] < 1 or sizes[-1] > lanes:
        # Every rank owns at least one lane.
        raise UserError(f"--ranks {text}: allowed: 1 to {lanes}, the lanes of this configuration")
    return sizes


def _format(config: AnyConfig, device: str) -> str:
    """The name of the precision that the configuration trains in."""
    import torch

    from lockstep.compute.precision import Precision

    return Precision(config.run.precision, torch.device(device)).name


@dataclass(frozen=True)
class _Tables:
    """The tables, each with a caption that says what it shows and what is accepted."""

    updates: int
    precision: str
    on_gpu: bool

    def fast(self, proof: FastProof) -> Table:
        """Stretch by stretch, with the yardstick and what it allows."""
        table = _table(
            f"fast: {proof.stretches} stretches of {STRETCH} updates, from the same states, in true fp32",
            ("ranks", "weights", "optimiser", "metrics", ""),
            "Largest difference from one rank, as a fraction of what the stretch itself changed. Yardstick: one rank, "
            "lane by lane, which changes only the order of addition (median of the stretches). Accepted: "
            f"{MULTIPLE} times that, or times fp32's resolution ({RESOLUTION:.1e}) if that is larger; at most "
            f"{CEILING:.0%} of the change. On edge: stretches in which rounding tipped a decision, such as a "
            "sampled action; from a state moved by 1 part in 65,536 they agree.",
        )
        table.add_row("1, lane by lane", *_numbers(proof.yardstick), "yardstick")
        table.add_row("accepted", *_numbers(proof.accepted), f"{MULTIPLE} x yardstick", end_section=True)
        for row in proof.rows:
            verdict = ("holds" if row.holds else "BROKEN") + (f", {row.on_edge} on edge" if row.on_edge else "")
            table.add_row(str(row.ranks), *_numbers(row.gap), verdict)
        return table

    def exact(self, outcomes: list[Outcome]) -> Table:
        """The hash of the weights on each number of ranks."""
        table = _table(
            f"exact: {self.updates} updates in a row, in {self.precision}",
            ("ranks", "weights", "optimiser", "metrics", "sha256 of the weights", ""),
            "Difference from one rank: none is accepted.",
        )
        for outcome in outcomes:
            verdict = "holds" if outcome.same else "BROKEN"
            table.add_row(str(outcome.ranks), *_numbers(outcome.gap), outcome.sha256[:16], verdict)
        return table

    def drift(self, outcomes: list[Outcome]) -> Table:
        """How far rounding makes continuous trainings drift apart, in the precision of training."""
        # TF32 rounds the factors of fp32 products; only fast mode uses it, and only GPUs have it.
        tf32 = " with TF32" if self.on_gpu and self.precision == "fp32" else ""
        table = _table(
            f"for information: fast, {self.updates} updates in a row, in {self.precision}{tf32}",
            ("ranks", "weights", "sha256 of the weights"),
            "Difference from one rank, relative to the weights: how far rounding drifts in the precision of training, "
            "once it changes a decision. Not judged; use `--sync exact` if you need the same bits.",
        )
        for outcome in outcomes:
            table.add_row(str(outcome.ranks), _numbers(outcome.gap)[0], outcome.sha256[:16])
        return table


def _table(title: str, columns: tuple[str, ...], caption: str) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", min_width=72)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _numbers(gap: Gap) -> list[str]:
    return [f"{value:.1e}" if value else "0" for value in astuple(gap)]

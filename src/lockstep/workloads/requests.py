"""From a preset, a file and flags to the run that a user asked for. Nothing here needs torch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lockstep.config.config import AnyConfig
from lockstep.config.run_settings import RunSettings
from lockstep.config.sources import Resolved, given, resolve
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.run.requested_run import RequestedRun
from lockstep.run.starting_point import BranchSource, with_absolute_model
from lockstep.workloads.workload import Workload

Tune = Callable[[Sequence[AnyConfig]], tuple[AnyConfig, list[str]]]
"""Chooses one of several configurations that learn alike, and tells how, a line each."""


def read_wanted(
    workload: Workload, preset: str, file: str | Path | None, overrides: Sequence[str], tune: Tune | None = None
) -> RequestedRun:
    """Resolve preset, file and flags, as `read_request` does; then choose sizes for this machine if asked to."""
    resolved = read_request(workload, preset, file, overrides)
    chosen, tried = tune(resolved.alternatives) if tune and resolved.alternatives else (resolved.config, [])
    config, notes = workload.fit(chosen, resolved.explicit)
    # A branch without a preset has the settings of its source.
    preset = preset or ("" if config.run.branch_from else "base")
    return RequestedRun(resolved.config, config, (*tried, *notes), preset=preset)


def read_request(
    workload: Workload, preset: str, file: str | Path | None, overrides: Sequence[str]
) -> Resolved[AnyConfig]:
    """Resolve preset, file and flags, in rising priority; where the run starts from becomes an absolute path.

    An empty preset is base; for a branch it is the configuration of what it branches from.
    """
    source = _branch_source(workload, file, overrides)
    if source is None or preset:
        resolved = workload.resolve(preset or "base", file, overrides)
    else:
        resolved = _as_its_source(workload, source, file, overrides)

    def placed(config: AnyConfig) -> AnyConfig:
        config = with_absolute_model(config)
        return config if source is None else config.replace(branch_from=str(source.path))

    return replace(
        resolved,
        config=placed(resolved.config),
        alternatives=tuple(placed(config) for config in resolved.alternatives),
    )


def _branch_source(workload: Workload, file: str | Path | None, overrides: Sequence[str]) -> BranchSource | None:
    named = given(overrides, file, ("branch_from", "runs_dir"))
    if not (text := named.get("branch_from")):
        return None
    source = BranchSource.find(text, named.get("runs_dir", RunSettings.runs_dir))
    if source.workload != workload.target:
        raise UserError(f"branch_from {shown(text)}: is of {shown(source.workload)}, not of {workload.name}")
    return source


def _as_its_source(
    workload: Workload, source: BranchSource, file: str | Path | None, overrides: Sequence[str]
) -> Resolved[AnyConfig]:
    """Lay a file and flags over the configuration of the source."""
    stored = workload.read_config(source.config_text, str(source.path), stored_in=source.path)
    # Name, place and origin are the branch's own.
    own = stored.replace(run_name="", runs_dir=RunSettings.runs_dir, load_model="", branch_from="")
    return resolve(own, config_file=file, overrides=overrides)

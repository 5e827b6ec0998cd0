"""--autotune: tries sizes that learn alike on the devices at hand, for at most a minute, and takes the fastest.

Which sizes learn alike is the algorithm's to say (`AlgorithmSettings.sizes_alike`): the batch, the number of gradient
steps per sample, the network and the learning rate stay. So only speed is measured here, and it decides.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.config.config import AlgorithmSettings, AnyConfig
from lockstep.config.sources import from_yaml, to_yaml
from lockstep.distributed.pool import RankError, RankPool
from lockstep.distributed.world import choose_device
from lockstep.launch import environment, resources
from lockstep.launch.failures import is_out_of_memory
from lockstep.output import counted, tell
from lockstep.storage.run_directory import RunDirectory

BUDGET = 50.0
"""Seconds for starting the ranks and all measurements; loading torch takes the rest of the minute."""
GAIN = 1.05
"""Other sizes are taken only if they are faster than those asked for by this factor: less may be noise."""
_SECONDS = 3.0
"""Seconds of one measurement, if an update is not longer than that."""
# Updates before the measurement. A GPU compiles and captures kernels in the first ones; a CPU only allocates memory.
_WARM_UPS = {"cuda": 3}


@dataclass(frozen=True)
class Attempt:
    """What came of one configuration: its speed, or the reason why there is none."""

    config: AnyConfig
    speed: float = 0.0
    """Steps a second over all ranks."""
    problem: str = ""


Measure = Callable[[AnyConfig, float], Attempt]
"""Measures a configuration within so many seconds."""


def fastest(
    candidates: Sequence[AnyConfig], measure: Measure, end: float, clock: Callable[[], float] = time.monotonic
) -> tuple[AnyConfig, list[str]]:
    """The fastest of the candidates, and a line for each; the first is as asked for, and kept unless beaten.

    end: when to stop trying, by the clock.
    """
    attempts: list[Attempt] = []
    for config in candidates:
        left = end - clock()
        # A part of what is left for each, so that a slow one does not keep the others from being tried. More for the
        # first, which others are compared with: on a GPU kernels that all sizes use are built in it.
        most = left / 2 if attempts else left * 2 / 3
        attempts.append(measure(config, most) if left > _SECONDS else _not_tried(config))
    best = max(attempts, key=lambda attempt: attempt.speed)
    chosen = best if best.speed > GAIN * attempts[0].speed else attempts[0]
    names = sorted({name for config in candidates for name in config.differences(candidates[0])})
    lines = [f"{'autotune':12} {_sizes(attempt.config, names)}: {_outcome(attempt)}" for attempt in attempts]
    return chosen.config, [*lines, f"{'autotune':12} takes {_sizes(chosen.config, names)}"]


def _not_tried(config: AnyConfig) -> Attempt:
    return Attempt(config, problem="not tried, the minute is over")


def _sizes(config: AnyConfig, names: Sequence[str]) -> str:
    values = config.values()
    return ", ".join(f"{name} {values[name]}" for name in names) or "the sizes asked for"


def _outcome(attempt: Attempt) -> str:
    return attempt.problem or f"{attempt.speed:,.0f} steps/s"


def on_ranks(pool: RankPool, function: str, workload: str, device: str, start: float = 0.0) -> Measure:
    """Measures with a pool's ranks; `function`: address of one that trains briefly and returns steps and seconds.

    start: seconds that the ranks take to start, which they do again after one that did not answer in time.
    """
    killed = False

    def measure(config: AnyConfig, seconds: float) -> Attempt:
        nonlocal killed
        if killed and (seconds := seconds - start) < _SECONDS:
            return _not_tried(config)
        killed = False
        tried = config.for_world(pool.size).replace(device=device, autotune=False)
        if device == "cuda" and tried.run.compile == "auto":
            # Compiling takes longer for each size than all measurements together may.
            tried = tried.replace(compile="graphs")
        text = to_yaml(tried)
        arguments = (workload, text, _WARM_UPS.get(device, 1), min(_SECONDS, seconds / 4))
        try:
            done = pool.run(function, *arguments, timeout=seconds)
        except TimeoutError:
            killed = True
            return Attempt(config, problem=f"no update within {seconds:.0f} s")
        except RankError as error:
            if not is_out_of_memory(f"{error.kind}: {error.message}"):
                raise
            return Attempt(config, problem="does not fit into memory")
        return Attempt(config, done[0]["steps"] / max(rank["seconds"] for rank in done))

    return measure


def tuned(candidates: Sequence[AnyConfig], ranks: int, function: str, workload: str) -> tuple[AnyConfig, list[str]]:
    """The fastest of the candidates on so many ranks of this machine, and what was tried, a line each.

    A run that exists keeps its sizes. function: see `on_ranks`.
    """
    candidates = [config.replace(autotune=False) for config in candidates]
    first = candidates[0]
    if (begun := _begun(first)) is not None:
        return next((config for config in candidates if config.algorithm == begun), first), []
    if len(candidates) == 1:
        return first, [f"{'autotune':12} nothing to try: no other sizes learn alike with what is given"]
    if environment.launched_rank():
        # Another launcher started this rank: rank 0 tries sizes, and its choice applies to all.
        return first, []
    # Under another launcher the other ranks have work of their own to begin with, so one stands for all.
    ranks = 1 if environment.launched() else ranks
    tell(f"autotune: trying {len(candidates)} sizes on {counted(ranks, 'rank')}, for at most a minute ...")
    end = time.monotonic() + BUDGET
    device = choose_device(first.run.device, 0, ranks).type
    threads = resources.threads_per_rank(ranks, first.run.threads or (1 if first.sync_on(device) == "exact" else None))
    with RankPool(ranks, device, threads) as pool:
        start = time.monotonic() - (end - BUDGET)
        return fastest(candidates, on_ranks(pool, function, workload, device, start), end)


def _begun(config: AnyConfig) -> AlgorithmSettings | None:
    """The sizes of the run that a configuration names, if it exists."""
    run = RunDirectory(Path(config.run.runs_dir) / config.run.run_name)
    if not config.run.run_name or not (run.path / "config.yaml").exists():
        return None
    return from_yaml(run.read_config()[1], config.layout, str(run.path / "config.yaml")).algorithm

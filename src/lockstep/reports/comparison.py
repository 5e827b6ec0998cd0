"""Two runs, or two groups of runs with different seeds, side by side: settings, curves, results, weights."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.config.run_settings import FREE_TO_CHANGE
from lockstep.reports import agreement, curves, intervals
from lockstep.reports.agreement import Agreement
from lockstep.reports.curves import CurveNumbers
from lockstep.reports.intervals import Estimate
from lockstep.reports.recorded_run import RecordedRun, numbers_in
from lockstep.storage.run_directory import LARGEST_VALUE
from lockstep.untrusted import is_number

SEED = "seed"
_UNIMPORTANT = FREE_TO_CHANGE | {SEED}
_MOST_RESULTS = 200


@dataclass(frozen=True)
class Group:
    """The runs of one side; several of them are meant to differ in their seeds."""

    runs: tuple[RecordedRun, ...]

    @property
    def label(self) -> str:
        """The runs' names."""
        return ", ".join(run.name for run in self.runs)


@dataclass(frozen=True)
class Contrast:
    """One number of both sides, and the second side's minus the first's."""

    a: Estimate
    b: Estimate
    difference: Estimate


@dataclass(frozen=True)
class CurveContrast:
    """A metric of both sides over the steps that all runs have."""

    tag: str
    lower_is_better: bool
    first_step: int
    last_step: int
    last: Contrast
    best: Contrast
    mean: Contrast


@dataclass(frozen=True)
class Comparison:
    """What differs between A and B."""

    a: Group
    b: Group
    settings: dict[str, tuple[str, str]]
    """Settings that differ, with the values of both sides; those that change no experiment come last."""
    system: dict[str, tuple[str, str]]
    """Versions, devices and ranks that differ."""
    curves: tuple[CurveContrast, ...]
    results: dict[str, Contrast]
    """Numbers of the last evaluation that both sides have."""
    over: str
    """What the intervals are over: `runs` or `episodes`."""
    weights: tuple[Agreement, ...]

    def to_json(self) -> dict[str, Any]:
        """The same for other programs."""
        return {
            "a": [str(run.path) for run in self.a.runs],
            "b": [str(run.path) for run in self.b.runs],
            "settings": self.settings,
            "system": self.system,
            "curves": [asdict(curve) for curve in self.curves],
            "results": {name: asdict(contrast) for name, contrast in self.results.items()},
            "intervals_over": self.over,
            "weights": [asdict(pair) | {"same": pair.same} for pair in self.weights],
        }


def compare(a: Group, b: Group) -> Comparison:
    """Compare two groups of recorded runs."""
    several = len(a.runs) > 1 or len(b.runs) > 1
    return Comparison(
        a,
        b,
        _settings(a, b),
        _differing([facts(run) for run in a.runs], [facts(run) for run in b.runs]),
        tuple(_curves(a, b)),
        _results_of_runs(a, b) if several else _results_of_episodes(a.runs[0], b.runs[0]),
        "runs" if several else "episodes",
        tuple(agreement.agreement(one, other) for one in a.runs for other in b.runs),
    )


def facts(run: RecordedRun) -> dict[str, str]:
    """Versions, machine and ranks of a run, as far as they are recorded."""
    system = run.system
    versions, devices, world = (_mapping(system.get(name)) for name in ("versions", "devices", "world"))
    found = {**versions, "platform": system.get("platform"), "host": system.get("host")}
    found |= {"ranks": world.get("size"), "lanes": world.get("lanes"), "device": world.get("device")}
    found |= {"threads per rank": devices.get("threads_per_rank"), "cpus": devices.get("cpus")}
    gpus = devices.get("gpus")
    found["gpus"] = ", ".join(map(str, gpus[:16])) if isinstance(gpus, list) and gpus else "none"
    return {str(name)[:40]: str(value)[:200] for name, value in list(found.items())[:40] if value is not None}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _settings(a: Group, b: Group) -> dict[str, tuple[str, str]]:
    found = _differing([run.settings for run in a.runs], [run.settings for run in b.runs])
    found.pop("run_name", None)
    # The order of the file otherwise: sorted() is stable.
    return dict(sorted(found.items(), key=lambda item: item[0] in _UNIMPORTANT))


def _differing(ours: Sequence[Mapping[str, str]], theirs: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, str]]:
    """Names whose values are not the same on both sides; the different values of one side are joined."""
    names = dict.fromkeys(name for side in (*ours, *theirs) for name in side)
    sides = {name: (_joined(ours, name), _joined(theirs, name)) for name in names}
    return {name: values for name, values in sides.items() if values[0] != values[1]}


def _joined(side: Sequence[Mapping[str, str]], name: str) -> str:
    return ", ".join(dict.fromkeys(values.get(name, "-") for values in side))


def _curves(a: Group, b: Group) -> list[CurveContrast]:
    runs = (*a.runs, *b.runs)
    tags = [tag for tag in runs[0].curves if all(tag in run.curves for run in runs)]
    return [found for tag in tags if (found := _curve(tag, a, b)) is not None]


def _curve(tag: str, a: Group, b: Group) -> CurveContrast | None:
    steps = curves.common_steps([run.curves[tag] for run in (*a.runs, *b.runs)])
    if steps is None:
        return None
    lower = curves.lower_is_better(tag, a.runs[0].summary)
    sides = [[curves.numbers(run.curves[tag], *steps, lower) for run in group.runs] for group in (a, b)]
    last, best, mean = (_contrast(*(_column(side, name) for side in sides)) for name in ("last", "best", "mean"))
    return CurveContrast(tag, lower, *steps, last, best, mean)


def _column(side: Sequence[CurveNumbers], name: str) -> list[float]:
    return [getattr(numbers, name) for numbers in side]


def _contrast(ours: Sequence[float], theirs: Sequence[float]) -> Contrast:
    a, b, difference = intervals.mean_of(ours), intervals.mean_of(theirs), intervals.difference(ours, theirs)
    assert a and b and difference, "both sides have values"
    return Contrast(a, b, difference)


def _results_of_runs(a: Group, b: Group) -> dict[str, Contrast]:
    """Every mean of the last evaluations, where a run counts as one value."""
    names = [name for name in means(a.runs[0]) if all(name in means(run) for run in (*a.runs, *b.runs))]
    return {name: _contrast(*([means(run)[name] for run in group.runs] for group in (a, b))) for name in names}


def means(run: RecordedRun) -> dict[str, float]:
    """The means and single numbers of the run's last evaluation."""
    spreads = ("_deviation", "_min", "_max", "_median")
    facts_of_it = ("seed", "step", "episodes", "samples", "matches")
    return {
        name: float(value)
        for name, value in list(run.evaluation.items())[:_MOST_RESULTS]
        if is_number(value, LARGEST_VALUE)
        and not name.endswith(spreads)
        and name not in facts_of_it
        and name.isidentifier()
    }


def _results_of_episodes(one: RecordedRun, other: RecordedRun) -> dict[str, Contrast]:
    """Every number of two evaluations; with an interval where every episode's value is recorded."""
    ours, theirs = means(one), means(other)
    names = [name for name in ours if name in theirs]
    return {
        name: _contrast(episodes(one, name) or [ours[name]], episodes(other, name) or [theirs[name]]) for name in names
    }


def episodes(run: RecordedRun, name: str) -> list[float]:
    """The values of all episodes that a mean of an evaluation is over; empty if they are not recorded."""
    stem = name.removesuffix("_mean")
    column = {"return": "episode_returns", "length": "episode_lengths"}.get(stem, f"episode_{stem}")
    values = run.evaluation.get(column) if name.endswith("_mean") else None
    # A null is a value that is undefined for its episode; it is no part of the mean.
    return numbers_in(values)

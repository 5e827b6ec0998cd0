"""The proof that 1 and N ranks train the same model: what is compared, and what difference is accepted.

In `exact` mode it is simple: the hashes are equal. In `fast` mode two trainings differ by rounding, and comparing them
after many updates is meaningless: once one sampled action or clipped ratio differs, everything after it does. So a
training on one rank, in true fp32, is cut into stretches of two updates (the second one starts from the environments
and memory that the first left). N ranks repeat every stretch from *the same saved state*, and the difference is stated
as a fraction of what the stretch itself changed.

The size of rounding errors is measured on one rank, where no bug between ranks can affect it: the same stretch computed
lane by lane, as in `exact`, changes only batch sizes and the order of addition, and more so than any number of ranks.
The median over the stretches is the yardstick; up to MULTIPLE times that is accepted, but never more than CEILING of
the change. Gradients that are not averaged, or a mean of rank means, alter a change by several percent.

A stretch that exceeds the limit may contain a decision that rounding tipped over. It is then repeated from
nudged states, on one rank and on N: such a decision then agrees, a bug stays.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lockstep.config.config import AnyConfig
from lockstep.config.sources import to_yaml
from lockstep.errors import UserError
from lockstep.workloads.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.distributed.pool import RankPool

# Updates per stretch: two, so that the second one starts from state that this number of ranks produced.
STRETCH = 2
# Measured on CPUs, rounding alone reaches eleven times the median, in the first update in which control learns; the
# bugs that the tests plant reach 100,000 times.
MULTIPLE = 32
# The largest accepted difference, as a fraction of a stretch's change.
CEILING = 0.01
# Repeats from nudged states before a stretch counts as broken.
NUDGES = 4
# The weights are fp32: a yardstick below its resolution is meaningless.
RESOLUTION = 2.0**-23
_SHORT_RUNS = "lockstep.cli.short_runs"

Tensors = dict[str, "Tensor"]
Answers = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Gap:
    """How far apart two results of the same stretch are, as fractions of what it changed."""

    weights: float
    optimizer: float
    metrics: float
    """The largest over metrics and counters, relative to their size (absolute for those below one)."""

    def within(self, limit: "Gap") -> bool:
        """Whether every part is within the limit; a NaN never is."""
        return all(mine <= most for mine, most in zip(astuple(self), astuple(limit), strict=True))

    @classmethod
    def over(cls, gaps: list["Gap"], choose: Callable[[list[float]], float]) -> "Gap":
        """Reduce many gaps to one, part by part, e.g. with max or median."""
        return cls(*(choose(list(column)) for column in zip(*map(astuple, gaps), strict=True)))


@dataclass(frozen=True)
class Row:
    """The result of `fast` on one number of ranks: the largest gap over the stretches."""

    ranks: int
    gap: Gap
    on_edge: int
    """Stretches that were within the limit only when repeated from a nudged state."""
    holds: bool


@dataclass(frozen=True)
class FastProof:
    """`fast`, stretch by stretch from the same states, on every number of ranks."""

    stretches: int
    """Stretches that were compared: those that changed the weights."""
    yardstick: Gap
    accepted: Gap
    rows: list[Row]


@dataclass(frozen=True)
class Outcome:
    """A continuous training on one number of ranks, and how far its result is from that of one rank."""

    sync: str
    ranks: int
    sha256: str
    gap: Gap

    @property
    def same(self) -> bool:
        """Whether there is no difference at all, as `exact` promises."""
        return not any(astuple(self.gap))


class Proof:
    """Runs short trainings on the ranks of a pool; their results are kept in a folder."""

    def __init__(self, pool: "RankPool", workload: Workload, config: AnyConfig, updates: int, folder: Path) -> None:
        self._pool, self._workload, self._updates, self._folder = pool, workload, updates, folder
        # log_every=1: the last update's metrics are compared, so every update must report some.
        self._config = config.replace(threads=1, log_every=1)
        self._timeout = 600.0 + 60.0 * updates  # seconds

    def fast(self, sizes: list[int], redo: str | Callable[..., Any] = f"{_SHORT_RUNS}:redo") -> FastProof:
        """Compare stretches in true fp32; `redo` trains them on several ranks (tests plant bugs through it)."""
        place, count = self._place("walk"), -(-self._updates // STRETCH)
        arguments = (self._text("fast", "fp32"), count, STRETCH, str(place))
        one = _Results(place, self._run(f"{_SHORT_RUNS}:walk", *arguments, ranks=1))
        # Stretches before there is enough data to learn from change no weights: there is nothing to compare.
        starts = {name: a["start"] for name, a in one.answers.items() if one.moved(name, a["start"])}
        if not starts:
            raise UserError(f"--updates {self._updates}: too few, no weights were changed; give more")
        lanes = self._redo(f"{_SHORT_RUNS}:redo", "exact", 1, starts)
        yardstick = Gap.over([one.gap(lanes, name, start) for name, start in starts.items()], median)
        limit = Gap(*(min(CEILING, MULTIPLE * max(part, RESOLUTION)) for part in astuple(yardstick)))
        rows = [self._row(redo, size, starts, one, limit) for size in sizes if size > 1]
        return FastProof(len(starts), yardstick, limit, rows)

    def on_end(self, sync: str, sizes: list[int]) -> Iterator[Outcome]:
        """Train all updates without a break, in the configuration's own precision, on each number of ranks."""
        results: dict[int, _Results] = {}
        for size in sizes:
            place = self._place(f"{sync}-{size}-on-end")
            text = self._text(sync, self._config.run.precision)
            arguments = (text, self._updates, str(place / "all"))
            results[size] = _Results(place, {"all": self._run(f"{_SHORT_RUNS}:train_briefly", *arguments, ranks=size)})
            gap = results[sizes[0]].gap(results[size], "all", None)
            yield Outcome(sync, size, results[size].answers["all"]["sha256"], gap)

    def _row(
        self, redo: str | Callable[..., Any], size: int, starts: dict[str, str], one: "_Results", limit: Gap
    ) -> Row:
        many = self._redo(redo, "fast", size, starts)
        gaps = {name: one.gap(many, name, start) for name, start in starts.items()}
        outside = {name: starts[name] for name, gap in gaps.items() if not gap.within(limit)}
        on_edge = len(outside)
        for nudge in range(1, NUDGES + 1):
            if not outside:
                break
            # Both sides start from the same nudged state, so one rank has to repeat the stretch as well.
            again = self._redo(f"{_SHORT_RUNS}:redo", "fast", 1, outside, nudge)
            many = self._redo(redo, "fast", size, outside, nudge)
            gaps |= {name: again.gap(many, name, start) for name, start in outside.items()}
            outside = {name: start for name, start in outside.items() if not gaps[name].within(limit)}
        return Row(size, Gap.over(list(gaps.values()), max), on_edge - len(outside), not outside)

    def _redo(
        self, function: str | Callable[..., Any], sync: str, size: int, starts: dict[str, str], nudge: int = 0
    ) -> "_Results":
        place = self._place(f"{sync}-{size}-{nudge}")
        arguments = (self._text(sync, "fp32"), starts, STRETCH, str(place), nudge)
        return _Results(place, self._run(function, *arguments, ranks=size))

    def _run(self, function: str | Callable[..., Any], *arguments: Any, ranks: int) -> Any:
        return self._pool.run(function, self._workload.target, *arguments, ranks=ranks, timeout=self._timeout)[0]

    def _text(self, sync: Any, precision: Any) -> str:
        return to_yaml(self._config.replace(sync=sync, precision=precision))

    def _place(self, name: str) -> Path:
        place = self._folder / name
        place.mkdir(exist_ok=True)
        return place


@dataclass(frozen=True)
class _Results:
    """The results of stretches: a folder of files for each, and what the ranks returned."""

    place: Path
    answers: Answers

    def moved(self, name: str, start: str) -> bool:
        """Whether the stretch changed any weight."""
        return _length(_minus(_read(self.place / name, "model"), _read(Path(start), "model"))) > 0

    def gap(self, other: "_Results", name: str, start: str | None) -> Gap:
        """How far another result of the same stretch is from this one; without a start, relative to this one."""

        def part(file: str) -> float:
            before = _read(Path(start), file) if start else {}
            return distance(before, _read(self.place / name, file), _read(other.place / name, file))

        metrics = _largest_difference(self.answers[name]["metrics"], other.answers[name]["metrics"])
        return Gap(part("model"), part("optimizer"), metrics)


def distance(before: Tensors, one: Tensors, other: Tensors) -> float:
    """The L2 norm of the difference of two results, relative to how far the first moved from `before`.

    What is missing in `before`, such as an optimiser's moments before its first step, counts as zero.
    """
    if one.keys() != other.keys():
        return math.inf
    apart, way = _length(_minus(other, one)), _length(_minus(one, before))
    return apart / way if way else (math.inf if apart else 0.0)


def _minus(one: Tensors, other: Tensors) -> Tensors:
    return {name: value - other[name] if name in other else value for name, value in one.items()}


def _length(tensors: Tensors) -> float:
    return math.sqrt(sum(float(value.square().sum()) for value in tensors.values()))


def _read(place: Path, file: str) -> Tensors:
    """A file of tensors in float64, without the optimiser's step counts, which would dwarf its moments in a norm."""
    from lockstep.storage.tensor_file import decode
    from lockstep.untrusted import LARGEST_NUMBER, read_regular

    found = decode(read_regular(place / f"{file}.safetensors", LARGEST_NUMBER))
    return {name: value.double() for name, value in found.items() if not name.startswith("step.")}


def _largest_difference(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The largest over all metrics, relative to their size (absolute below one); two NaNs are equal."""
    if one.keys() != other.keys():
        return math.inf
    same = {tag for tag in one if one[tag] == other[tag] or (math.isnan(one[tag]) and math.isnan(other[tag]))}
    gaps = [abs(one[tag] - other[tag]) / max(abs(one[tag]), 1.0) for tag in one if tag not in same]
    return max((math.inf if math.isnan(gap) else gap for gap in gaps), default=0.0)

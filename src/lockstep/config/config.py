"""A run's configuration: how to run, the algorithm, the workload and the network, and what follows from them together.

Flags, files and presets are flat: every setting has one name among all groups (`Schema`). Code reads a setting from its
group (`config.run.seed`, `config.algorithm.batch_size`), so that it is plain who owns it. Nothing here needs torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from lockstep.config.outside import absolute_name
from lockstep.config.run_settings import FREE_TO_CHANGE, ORIGIN, RunSettings, automatic_lanes
from lockstep.config.schema import Schema
from lockstep.config.settings import Settings
from lockstep.config.values import shown
from lockstep.errors import UserError

if TYPE_CHECKING:
    from torch import nn

Headline = tuple[tuple[str, str, str], ...]
"""What the progress line shows: (metric, label, format) each."""
RUN, NETWORK = "run", "network"
LARGEST_COUNTER = 2**32
"""Random numbers are told apart by counters below it."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmSettings(Settings):
    """What learns: sizes are over all ranks."""

    length_field: ClassVar[str] = "total_timesteps"
    """The field that says how long a run is."""
    per_rank_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that weak scaling multiplies by the number of ranks."""
    learning_rate_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that lr_scaling multiplies."""
    run_defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings of the run whose default is another one with this algorithm."""
    headline: ClassVar[Headline] = ()
    """What the progress line shows; empty = return, evaluation and losses."""

    def check(self, config: "AnyConfig") -> None:
        """Raise UserError where this group does not go together with the others of a configuration."""

    def lane_units(self) -> int:
        """How many units (environments) the lanes split among them; 0 = no limit."""
        return 0

    def in_smaller_parts(self, lanes: int) -> dict[str, Any] | None:
        """The changes that compute the same in micro-batches half as large; None where they cannot be halved."""
        return None

    def sizes_alike(self, given: Collection[str]) -> Iterator[dict[str, Any]]:
        """For --autotune: changes of sizes with which a run learns alike at equal steps, the nearest to these first.

        Batch, gradient steps per sample, network and learning rate stay, and so does what was `given`.
        """
        yield {}

    def scaled(self, size: int, rate: float) -> dict[str, Any]:
        """The changes that weak scaling makes on so many ranks: larger sizes, and learning rates times `rate`."""
        sizes = {name: getattr(self, name) * size for name in self.per_rank_fields}
        return sizes | {name: getattr(self, name) * rate for name in self.learning_rate_fields if getattr(self, name)}

    def forbids_resume(self, before: "AlgorithmSettings") -> set[str]:
        """Fields whose change makes this another experiment although a longer run usually is the same one."""
        return set()

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """List the sizes worth knowing before a start; `shared` writes a number with each rank's part of it."""
        return []


@dataclass(frozen=True, kw_only=True)
class WorkloadSettings(Settings):
    """What is learned: the problem's own knobs."""

    headline: ClassVar[Headline] = ()
    """What the progress line shows; empty = what the algorithm shows."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Names that this workload's users know for settings of the run or the algorithm."""
    exact_on: ClassVar[tuple[str, ...]] = ()
    """Kinds of devices on which `exact` is the default: it costs less than 15% there (benchmarks/exact_cost.py)."""

    def check(self, config: "AnyConfig") -> None:
        """Raise UserError where this group does not go together with the others of a configuration."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, where the workload has any; more than one if a model learns them together."""
        return ()

    def translate(self, config: "AnyConfig") -> dict[str, Any]:
        """Settings of any group that this workload's users give in other units, such as episodes for steps."""
        return {}

    def automatic_lanes(self, config: "AnyConfig") -> int | None:
        """The number of lanes where none is given; None = what the run would choose by itself."""
        return None

    def work(self) -> list[tuple[str, str]]:
        """List what of the problem is worth knowing before a start."""
        return []


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(Settings, ABC):
    """Which network learns it, and how large it is."""

    @property
    def recurrent(self) -> bool:
        """Whether the network has a memory, and so learns from sequences of steps."""
        return False

    def check(self, config: "AnyConfig") -> None:
        """Raise UserError where this group does not go together with the others of a configuration."""

    @abstractmethod
    def build(self, problem: Any, config: "AnyConfig") -> "nn.Module":
        """Make the network for a problem, with the same first weights wherever it is made."""

    def work(self) -> list[tuple[str, str]]:
        """List what of the network is worth knowing before a start."""
        return []


A = TypeVar("A", bound=AlgorithmSettings, covariant=True)
W = TypeVar("W", bound=WorkloadSettings, covariant=True)
N = TypeVar("N", bound=NetworkSettings, covariant=True)


@dataclass(frozen=True)
class Config(Generic[A, W, N]):
    """Everything that a run is told. `Layout.config` makes it, `replace` changes it, and both check it as a whole."""

    layout: "Layout"
    run: RunSettings
    algorithm: A
    workload: W
    network: N

    def values(self) -> dict[str, Any]:
        """Every setting with its value, group by group."""
        return {name: value for group in self._groups() for name, value in group.values().items()}

    def _groups(self) -> tuple[Settings, ...]:
        return self.run, self.algorithm, self.workload, self.network

    def replace(self, **changes: Any) -> Self:
        """The same with other values of some settings, whichever groups they are in."""
        return self.layout.config(self.values() | changes)  # type: ignore[return-value]

    @property
    def headline(self) -> Headline:
        """What the progress line shows."""
        return self.workload.headline or self.algorithm.headline

    @property
    def length(self) -> int:
        """How long the run is: steps, or epochs."""
        return int(getattr(self.algorithm, self.algorithm.length_field))

    @property
    def length_flag(self) -> str:
        """The flag that makes a run longer."""
        return "--" + self.algorithm.length_field.replace("_", "-")

    # Lanes and ranks

    @property
    def effective_lanes(self) -> int:
        """The number of lanes that the run has."""
        if self.run.lanes:
            return self.run.lanes
        return self.workload.automatic_lanes(self) or automatic_lanes(self.algorithm.lane_units())

    def sync_on(self, device: str) -> Literal["fast", "exact"]:
        """How ranks are kept equal on this kind of device."""
        if self.run.sync != "auto":
            return self.run.sync
        return "exact" if device in self.workload.exact_on and self.run.deterministic else "fast"

    def ranks_with_lanes(self, most: int) -> int:
        """As many ranks, up to `most`, as there are lanes for."""
        return next(size for size in range(most, 0, -1) if size <= self._scaled(size).effective_lanes)

    def more_lanes(self, wanted: int) -> str:
        """How a user would start the run with so many lanes."""
        units = f" and a multiple of {wanted} environments" if self.algorithm.lane_units() % wanted else ""
        return f"start the run with --lanes {wanted}{units}"

    def for_world(self, size: int) -> Self:
        """Work out weak scaling for `size` ranks: the result is what is in force; doing so again changes nothing."""
        effective = self._scaled(size)
        lanes = effective.effective_lanes
        if size > lanes:
            raise UserError(
                f"ranks {size} is more than the run's {lanes} lanes; use at most {lanes} ranks, or "
                f"{effective.more_lanes(size)}"
            )
        return effective

    def _scaled(self, size: int) -> Self:
        assert size >= 1
        if self.run.scaling == "strong":
            return self
        growth = {"none": 1.0, "sqrt": size**0.5, "linear": float(size)}[self.run.lr_scaling]
        return self.replace(scaling="strong", lr_scaling="none", **self.algorithm.scaled(size, growth))

    def halved(self, times: int) -> Self | None:
        """The same in micro-batches halved so often, for want of memory; None where that is too often."""
        config = self
        for _ in range(times):
            changes = config.algorithm.in_smaller_parts(config.effective_lanes)
            if changes is None:
                return None
            config = config.replace(**changes)
        return config

    # One run on several machines, and the same run again

    def _settings_of_machine(self) -> set[str]:
        paths = (
            name for group in (self.run, self.algorithm, self.workload, self.network) for name in group.path_fields
        )
        # In exact the number of threads moves bits, so there it belongs to the experiment.
        return {*self.run.machine_fields, *paths} - ({"threads"} if self.run.sync == "exact" else set())

    def shared_settings(self) -> dict[str, Any]:
        """Every setting, with its value, that must be the same on all ranks of a run."""
        return {name: value for name, value in self.values().items() if name not in self._settings_of_machine()}

    def on_machine_of(self, other: "AnyConfig") -> Self:
        """Take over what may differ between machines from another rank's configuration."""
        theirs = other.values()
        return self.replace(**{name: theirs[name] for name in self._settings_of_machine()})

    def differences(self, before: "AnyConfig") -> dict[str, tuple[Any, Any]]:
        """Every setting that was another one before, with both values."""
        old, new = before.values(), self.values()
        return {name: (old.get(name), value) for name, value in new.items() if old.get(name) != value}

    def changes_since(self, before: "AnyConfig") -> dict[str, tuple[Any, Any]]:
        """What makes this another experiment than the one before; a longer run is the same one."""
        same = FREE_TO_CHANGE | ORIGIN | {self.algorithm.length_field}
        same -= self.algorithm.forbids_resume(before.algorithm)
        return {name: values for name, values in self.differences(before).items() if name not in same}

    # What is said about it

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """List the sizes worth knowing before a start; `shared` writes a number with each rank's part of it."""
        return self.workload.work() + self.network.work() + self.algorithm.work(shared)

    def refuse_repetition(self, counts: Mapping[str, int]) -> None:
        """Raise UserError where a run of this length would reach a counter at which random numbers repeat."""
        for what, count in counts.items():
            if count >= LARGEST_COUNTER:
                raise UserError(
                    f"{self.algorithm.length_field} {self.length}: would be {count:,} {what}, and random numbers "
                    f"repeat after {LARGEST_COUNTER:,}; lower {self.length_flag}, or share it among more environments"
                )


AnyConfig: TypeAlias = Config[AlgorithmSettings, WorkloadSettings, NetworkSettings]


@dataclass(frozen=True)
class Layout:
    """Which groups a configuration is composed of: the choice of an algorithm, a workload and a network."""

    algorithm: type[AlgorithmSettings]
    workload: type[WorkloadSettings] = WorkloadSettings
    network: type[NetworkSettings] = field(kw_only=True)
    algorithm_name: str = "algorithm"
    workload_name: str = "workload"
    network_name: str = ""
    defaults: tuple[tuple[str, Any], ...] = ()
    """Settings whose default is another one in this workload."""

    @cached_property
    def schema(self) -> Schema:
        """Every setting, found by any of its names."""
        sections: dict[str, type] = {
            RUN: RunSettings,
            # An algorithm from outside is chosen as module:Class, and has its settings under the class's name.
            self.algorithm_name.rpartition(":")[2].lower(): self.algorithm,
            self.workload_name: self.workload,
            NETWORK: self.network,
        }
        return Schema(sections, self.workload.aliases, self._defaults())

    def _defaults(self) -> dict[str, Any]:
        return {**self.algorithm.run_defaults, **dict(self.defaults)}

    def config(self, values: Mapping[str, Any]) -> AnyConfig:
        """The configuration with these values, and defaults for the rest; UserError where they do not go together."""
        config = self.composed(values)
        # The workload first: it knows why a number is impossible where the algorithm only sees that it is.
        for group in (config.workload, config.algorithm, config.network):
            group.check(config)
        return config

    def composed(self, values: Mapping[str, Any]) -> AnyConfig:
        """The same without seeing whether the groups go together."""
        given = {**self._defaults(), **values}
        for name, chosen in (("algorithm", self.algorithm_name), ("network", self.network_name)):
            # They decide which settings there are, so they are chosen with the layout and not changed afterwards.
            # A file may be given relative to the working directory; the layout has its absolute path.
            if given.get(name) and absolute_name(str(given[name])) != chosen:
                raise UserError(
                    f"{name} {shown(given[name])}: this run has {chosen or 'none'}; start a new run with it"
                )
            given[name] = chosen
        config = self._grouped(given)
        translated = config.workload.translate(config)
        return self._grouped(config.values() | translated) if translated else config

    def _grouped(self, values: Mapping[str, Any]) -> AnyConfig:
        run, algorithm, workload, network = self.schema.split(values).values()
        return Config(
            self, RunSettings(**run), self.algorithm(**algorithm), self.workload(**workload), self.network(**network)
        )


@dataclass(frozen=True)
class Preset:
    """A named configuration to start from: what differs from the defaults."""

    summary: str
    values: Mapping[str, Any]

    def but(self, summary: str, **values: Any) -> "Preset":
        """Another preset that differs from this one in some settings."""
        return replace(self, summary=summary, values={**self.values, **values})


def preset(summary: str, **values: Any) -> Preset:
    """A preset with these settings."""
    return Preset(summary, values)

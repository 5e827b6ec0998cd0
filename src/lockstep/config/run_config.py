"""The configuration that every run has, checked when it is made: a wrong one cannot exist.

A workload's configuration is a subclass. The line under each field is its --help, its type and marks (`Range`, `Alias`,
`Spelling`) are what is allowed. Nothing here needs torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from lockstep.config.fields import (
    Alias,
    Count,
    OffOrCount,
    Pattern,
    Range,
    Seed,
    Spelling,
    Steps,
    settings_of,
    values_of,
)
from lockstep.config.values import check, shown
from lockstep.errors import UserError

DEFAULT_LANES = 8
LARGEST_COUNTER = 2**32
"""Random numbers are told apart by counters below it."""
# What does not change the experiment may differ when the same run goes on.
FREE_TO_CHANGE = {"run_name", "runs_dir", "max_updates", "max_hours", "checkpoint_every", "keep", "log_every"}
FREE_TO_CHANGE |= {"check_every", "device", "threads", "timeout", "wandb", "wandb_project", "grad_accum"}
FREE_TO_CHANGE |= {"nonfinite_limit", "wandb_entity"}
RUN_NAME = r"(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$))[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""What a run may be called, so that it is a folder everywhere: no path, nothing hidden, no device of Windows."""
_RUN_NAME_WORDS = "up to 100 letters, digits and . _ -, the first a letter or digit (and no device as CON), or nothing"


def automatic_lanes(units: int) -> int:
    """Count the lanes for so many units (0 = no limit): 8, or one for each unit where those are 1, 2 or 4."""
    return units if 0 < units < DEFAULT_LANES and DEFAULT_LANES % units == 0 else DEFAULT_LANES


def nearest_to_split(count: int, lanes: int, *, automatic: bool = False) -> str:
    """The counts next to one that so many lanes can split, in words; automatic: they become as many as few units."""
    few = [units for units in range(1, DEFAULT_LANES) if automatic and automatic_lanes(units) == units]
    below = max(units for units in (*few, count // lanes * lanes) if units < count)
    above = min(units for units in (*few, -(-count // lanes) * lanes) if units > count)
    return " or ".join(str(units) for units in (below, above) if units)


def absolute(path: str) -> str:
    """The path as it is found from any working directory: a run is used from others than it was started in."""
    return str(Path(path).absolute())


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How to run: the same for every workload."""

    sync: Literal["fast", "exact"] = "fast"
    """How ranks are kept equal: fast (up to rounding) or exact (the same bits for any number of ranks)."""
    lanes: Annotated[int, Range(at_least=0, at_most=4096)] = 0
    """Units of data-parallel work, over all ranks; 0 = 8, or as many as environments where 1, 2 or 4."""
    seed: Seed = 42
    """Where every random number of the run starts from."""
    run_name: Annotated[str, Pattern(f"({RUN_NAME})?", _RUN_NAME_WORDS)] = ""
    """Name of the run's folder; empty = workload and time."""
    runs_dir: Annotated[str, Pattern(".+", "the path of a folder"), Alias("logdir")] = "runs"
    """Folder that holds the runs."""
    max_updates: Steps = 0
    """Stop after this many updates; 0 = no limit."""
    max_hours: Annotated[float, Range(at_least=0)] = 0.0
    """Stop after this many hours; 0 = no limit."""
    checkpoint_every: Annotated[Steps, Alias("save_freq")] = 50_000
    """Steps over all ranks between checkpoints; 0 = only at the end."""
    keep: Count = 3
    """How many checkpoints to keep, besides the best."""
    eval_every: Annotated[Steps, Alias("eval_freq")] = 10_000
    """Steps over all ranks between evaluations; 0 = never."""
    eval_episodes: Annotated[int, Range(at_least=1, at_most=1_000_000)] = 10
    """Episodes of an evaluation, over all ranks."""
    log_every: Annotated[Count, Alias("log_freq")] = 1
    """Updates between log points."""
    check_every: OffOrCount = 50
    """Updates between comparisons of the weights' hash over all ranks; 0 = only at checkpoints."""
    precision: Annotated[Literal["auto", "fp32", "bf16", "fp16"], Spelling("amp", "bf16")] = "auto"
    """Arithmetic of the networks; auto = bf16 on a GPU that has it, else fp32."""
    compile: Literal["auto", "none", "default"] = "auto"
    """Use torch.compile: auto = on a GPU with sync fast where kernels can be built, none = never, default = always."""
    deterministic: bool = True
    """Same bits when a run is repeated or resumed; off = faster GPU kernels, and only in fast."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; auto = the GPUs that are visible, else the CPU."""
    threads: Annotated[int, Range(at_least=0, at_most=1024)] = 0
    """CPU threads of each rank; 0 = this machine's cores shared among its ranks in fast, 1 in exact."""
    timeout: Annotated[float, Range(above=0, at_most=604_800)] = 600.0
    """Seconds a rank waits for the others."""
    nonfinite: Literal["skip", "stop"] = "skip"
    """What all ranks do when a gradient is not finite: skip the update or stop the run."""
    nonfinite_limit: OffOrCount = 25
    """With skip, how many updates in a row may have such a gradient before the run stops; 0 = any number."""
    scaling: Literal["strong", "weak"] = "strong"
    """strong = sizes are over all ranks; weak = sizes are per rank and grow with the number of ranks."""
    lr_scaling: Literal["none", "sqrt", "linear"] = "none"
    """With weak scaling, how the learning rate grows with the number of ranks."""
    lr_warmup: Steps = 0
    """Steps over all ranks during which the learning rate rises from 0."""
    wandb: bool = False
    """Also log to Weights & Biases."""
    wandb_project: str = "lockstep"
    """Project to log to with --wandb."""
    wandb_entity: str = ""
    """Team or user whose project it is; none = the one that W&B takes for you."""

    per_rank_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that weak scaling multiplies by the number of ranks."""
    length_field: ClassVar[str] = "total_timesteps"
    """The field that says how long a run is."""
    path_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that name a file or a folder, which are made absolute."""
    machine_fields: ClassVar[tuple[str, ...]] = ("runs_dir", "device", "threads", "timeout")
    """Fields that may differ between the machines of one run, as path_fields may."""
    learning_rate_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that lr_scaling multiplies."""
    headline: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    """What the progress line tells: (tag, word, format) each; none = return, evaluation and losses."""
    told_elsewhere: ClassVar[Mapping[str, str]] = {
        "preset": "it names what a new run starts from: `lockstep train WORKLOAD --preset NAME`",
        "config": "it names the file a new run starts from: `lockstep train WORKLOAD --config FILE`",
        **dict.fromkeys(("ranks", "gpus", "nnodes"), "where it runs is told to the command, as --gpus N or --ranks N"),
    }
    """Words of the command that are no fields, and where they belong."""
    only_values: ClassVar[Mapping[str, str]] = {}
    """Keys of other programs' files to which there is one answer here: this value is accepted, any other refused."""

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)).values():
            value = getattr(self, setting.name)
            try:
                object.__setattr__(self, setting.name, check(setting, value))
            except ValueError as error:
                problem = f"{setting.name} {shown(value)}: {error}; allowed: {setting.allowed}"
                raise UserError(problem) from None
        for name in filter(lambda name: getattr(self, name), self.path_fields):
            object.__setattr__(self, name, absolute(getattr(self, name)))
        self.validate()

    def about_to_wandb(self) -> dict[str, Any]:
        """What Weights & Biases is told of a run: whose it is, and all that was set."""
        return {"project": self.wandb_project, "entity": self.wandb_entity or None, "config": values_of(self)}

    def validate(self) -> None:
        """Raise UserError where fields do not go together; subclasses add their rules and call super()."""
        if self.sync == "exact" and not self.deterministic:
            raise UserError("deterministic false: exact mode is deterministic; leave it on, or use --sync fast")
        if self.lr_scaling != "none" and self.scaling == "strong":
            raise UserError(
                f"lr_scaling {self.lr_scaling} needs scaling weak: with scaling strong the global batch stays the same "
                "on any number of ranks; add --scaling weak or leave --lr-scaling out"
            )

    def _settings_of_machine(self) -> set[str]:
        # In exact the number of threads moves bits, so there it belongs to the experiment.
        return {*self.machine_fields, *self.path_fields} - ({"threads"} if self.sync == "exact" else set())

    def shared_settings(self) -> dict[str, Any]:
        """Every field, with its value, that must be the same on all ranks of a run."""
        return {name: value for name, value in values_of(self).items() if name not in self._settings_of_machine()}

    def on_machine_of(self, other: Self) -> Self:
        """Take over what may differ between machines from another rank's configuration."""
        return replace(self, **{name: getattr(other, name) for name in self._settings_of_machine()})

    def refuse_repetition(self, counts: Mapping[str, int]) -> None:
        """Raise UserError where a run of this length would come to a counter of random numbers that begins anew."""
        for what, count in counts.items():
            if count >= LARGEST_COUNTER:
                length = f"{self.length_field} {getattr(self, self.length_field)}"
                raise UserError(
                    f"{length}: would be {count:,} {what}, and random numbers repeat after {LARGEST_COUNTER:,}; "
                    f"lower --{self.length_field.replace('_', '-')}, or share it among more environments"
                )

    def lane_units(self) -> int:
        """How many units (environments) the lanes split among them; 0 = no limit."""
        return 0

    def changes_since(self, before: Self) -> dict[str, tuple[Any, Any]]:
        """List what makes this another experiment than the one before, by name: a longer run is none."""
        same = FREE_TO_CHANGE | {self.length_field}
        values = {name: (getattr(before, name), getattr(self, name)) for name in settings_of(type(self))}
        return {name: (old, new) for name, (old, new) in values.items() if old != new and name not in same}

    def in_smaller_parts(self) -> Self | None:
        """Compute the same in micro-batches half as large, for want of memory; None where they cannot be halved."""
        return None

    def halved(self, times: int) -> Self | None:
        """Halve the micro-batches so often; None where that is too often."""
        config: Self | None = self
        for _ in range(times):
            config = config.in_smaller_parts() if config is not None else None
        return config

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """List the sizes worth knowing before a start; `shared` writes a number with each rank's part of it."""
        return []

    @property
    def effective_lanes(self) -> int:
        """The number of lanes that the run has."""
        return self.lanes or automatic_lanes(self.lane_units())

    def ranks_with_lanes(self, most: int) -> int:
        """As many ranks, up to `most`, as there are lanes for."""
        return next(size for size in range(most, 0, -1) if size <= self._scaled(size).effective_lanes)

    def more_lanes(self, wanted: int) -> str:
        """How a user would start the run with so many lanes."""
        units = f" and a multiple of {wanted} environments" if self.lane_units() % wanted else ""
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
        scaled: dict[str, Any] = {}
        if self.scaling == "weak":
            growth = {"none": 1.0, "sqrt": size**0.5, "linear": float(size)}[self.lr_scaling]
            scaled = {name: getattr(self, name) * size for name in self.per_rank_fields}
            scaled |= {name: getattr(self, name) * growth for name in self.learning_rate_fields}
        return replace(self, scaling="strong", lr_scaling="none", **scaled)

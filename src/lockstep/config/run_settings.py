"""How to run: the settings that every run has, whatever it learns. Nothing here needs torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from lockstep.config.fields import (
    Alias,
    Count,
    Listed,
    NoneIsEmpty,
    OffOrCount,
    OptionalPath,
    Pattern,
    Range,
    Seed,
    Spelling,
    Steps,
)
from lockstep.config.settings import Settings
from lockstep.config.values import shown
from lockstep.errors import UserError

DEFAULT_LANES = 8
PLACES = {"run_name", "runs_dir"}
"""Settings that say where a run is, and nothing about what it is."""
# What does not change the experiment may differ when the same run is continued.
FREE_TO_CHANGE = PLACES | {"max_updates", "max_hours", "checkpoint_every", "keep", "log_every"}
FREE_TO_CHANGE |= {"check_every", "device", "threads", "timeout", "wandb", "wandb_project", "grad_accum"}
FREE_TO_CHANGE |= {"nonfinite_limit", "wandb_entity", "loggers"}
ORIGIN = {"load_model", "branch_from"}
"""Where a new run begins: of no consequence once it has a checkpoint of its own."""
RUN_NAME = r"(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$))[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""What a run may be called, so that it is a folder everywhere: no path, nothing hidden, no device of Windows."""
_LOGGER = "(tensorboard|wandb|trackio|mlflow|csv)"
_LOGGER_WORDS = "any of tensorboard, wandb, trackio, mlflow and csv (separated by commas)"
_RUN_NAME_WORDS = (
    "up to 100 letters, digits and . _ -, the first a letter or digit (and no device name such as CON), or nothing"
)


def automatic_lanes(units: int) -> int:
    """Count the lanes for so many units (0 = no limit): 8, or one for each unit where those are 1, 2 or 4."""
    return units if 0 < units < DEFAULT_LANES and DEFAULT_LANES % units == 0 else DEFAULT_LANES


def nearest_to_split(count: int, lanes: int, *, automatic: bool = False) -> str:
    """The counts next to one that so many lanes can split, in words; automatic: they become as many as few units."""
    few = [units for units in range(1, DEFAULT_LANES) if automatic and automatic_lanes(units) == units]
    below = max(units for units in (*few, count // lanes * lanes) if units < count)
    above = min(units for units in (*few, -(-count // lanes) * lanes) if units > count)
    return " or ".join(str(units) for units in (below, above) if units)


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """How to run: the same for every workload."""

    algorithm: str = ""
    """The algorithm; `lockstep list` shows which ones a workload has. Empty = the workload's default."""
    network: str = ""
    """The network; it brings settings of its own. Empty = the default for workload and algorithm."""
    sync: Literal["auto", "fast", "exact"] = "auto"
    """How ranks are kept equal: fast (up to rounding), exact (to the bit), auto = exact where it costs under 15%."""
    lanes: Annotated[int, Range(at_least=0, at_most=4096)] = 0
    """Units of data-parallel work, over all ranks; 0 = 8, or as many as environments where 1, 2 or 4."""
    seed: Seed = 42
    """Where every random number of the run starts from."""
    run_name: Annotated[str, Pattern(f"({RUN_NAME})?", _RUN_NAME_WORDS)] = ""
    """Name of the run's folder; empty = workload and time."""
    runs_dir: Annotated[str, Pattern(".+", "the path of a folder"), Alias("logdir")] = "runs"
    """Folder that holds the runs."""
    load_model: Annotated[OptionalPath, Alias("checkpoint")] = ""
    """Start with the weights of this run, checkpoint or file, as far as they fit; all else begins anew. None = new."""
    branch_from: OptionalPath = ""
    """Start as a copy of this run (its newest checkpoint) or checkpoint, with other settings if given. None = new."""
    max_updates: Steps = 0
    """Stop after this many updates; 0 = no limit."""
    max_hours: Annotated[float, Range(at_least=0)] = 0.0
    """Stop after this many hours; 0 = no limit."""
    checkpoint_every: Annotated[Steps, Alias("save_freq")] = 50_000
    """Steps over all ranks between checkpoints; 0 = only at the end."""
    keep: Annotated[int, Range(at_least=0), Spelling("all", "0")] = 3
    """How many checkpoints to keep, besides the best; 0 = all of them."""
    eval_every: Annotated[Steps, Alias("eval_freq")] = 10_000
    """Steps (samples, where data is learned from) over all ranks between evaluations; 0 = never."""
    eval_episodes: Annotated[int, Range(at_least=1, at_most=10**9)] = 10
    """Episodes of an evaluation, over all ranks; for workloads that learn from data, validation samples at most."""
    log_every: Annotated[Count, Alias("log_freq")] = 1
    """Updates between log points."""
    check_every: OffOrCount = 50
    """Updates between comparisons of the weights' hash over all ranks; 0 = only at checkpoints."""
    precision: Annotated[Literal["auto", "fp32", "bf16", "fp16"], Spelling("amp", "bf16")] = "auto"
    """Arithmetic of the networks; auto = bf16 on a GPU that has it, else fp32."""
    compile: Annotated[
        Literal["auto", "none", "graphs", "default"], Spelling("true", "auto"), Spelling("false", "none")
    ] = "auto"
    """torch.compile: auto = on GPUs that can build kernels, none = never, default = always, graphs = record only."""
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
    autotune: Annotated[bool, Alias("auto_scale"), Alias("max_utilization")] = False
    """Try equivalent sizes on these devices for at most a minute, and train with the fastest."""
    scaling: Literal["strong", "weak"] = "strong"
    """strong = sizes are over all ranks; weak = sizes are per rank and grow with the number of ranks."""
    lr_scaling: Literal["none", "sqrt", "linear"] = "none"
    """With weak scaling, how the learning rate grows with the number of ranks."""
    lr_warmup: Steps = 0
    """Steps over all ranks during which the learning rate rises from 0."""
    loggers: Annotated[str, Pattern(f"{_LOGGER}(,{_LOGGER})*|", _LOGGER_WORDS), Listed(), NoneIsEmpty()] = "tensorboard"
    """Where metrics go besides metrics.jsonl: tensorboard, wandb, trackio, mlflow, csv; missing packages only warn."""
    wandb: Annotated[bool, Alias("enable_wandb")] = False
    """Also log to Weights & Biases; the same as wandb among the --loggers."""
    wandb_project: Annotated[str, Alias("project")] = "lockstep"
    """Project to log to with W&B and trackio; the experiment of MLflow."""
    wandb_entity: str = ""
    """Team or user whose project it is; none = W&B's default."""

    machine_fields: ClassVar[tuple[str, ...]] = ("runs_dir", "device", "threads", "timeout")
    """Fields that may differ between the machines of one run, as path_fields may."""
    foreign_keys: ClassVar[Mapping[str, str]] = {
        "preset": "it names what a new run starts from: `lockstep train WORKLOAD --preset NAME`",
        "config": "it names the file a new run starts from: `lockstep train WORKLOAD --config FILE`",
        **dict.fromkeys(("ranks", "gpus", "nnodes"), "where it runs is told to the command, as --gpus N or --ranks N"),
    }
    """Words of the command that are no fields, and where they belong."""

    @property
    def logger_names(self) -> tuple[str, ...]:
        """The loggers to use, each once."""
        names = [*filter(None, self.loggers.split(",")), *(("wandb",) if self.wandb else ())]
        return tuple(dict.fromkeys(names))

    def validate(self) -> None:
        """See that origin, synchronisation, determinism and scaling go together."""
        if self.load_model and self.branch_from:
            raise UserError(
                f"load_model {shown(self.load_model)}: a branch has the weights of its checkpoint; leave out one of "
                "--load-model and --branch-from"
            )
        if self.sync == "exact" and not self.deterministic:
            raise UserError("deterministic false: exact mode is deterministic; leave it on, or use --sync fast")
        if self.lr_scaling != "none" and self.scaling == "strong":
            raise UserError(
                f"lr_scaling {self.lr_scaling} needs scaling weak: with scaling strong the global batch stays the same "
                "on any number of ranks; add --scaling weak or leave --lr-scaling out"
            )

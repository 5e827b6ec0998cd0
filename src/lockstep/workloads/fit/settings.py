"""Settings of supervised learning on data from outside. Nothing here needs torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from lockstep.algorithms.supervised.settings import SupervisedSettings
from lockstep.config import outside
from lockstep.config.config import AnyConfig, Config, Headline, NetworkSettings, WorkloadSettings
from lockstep.config.fields import Range
from lockstep.config.values import shown
from lockstep.errors import UserError

if TYPE_CHECKING:
    from torch import nn

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class FitSettings(WorkloadSettings):
    """The data, by name: a dataset or a function that returns one, as module:name or file.py:name."""

    train_data: str = ""
    """Dataset to learn from; empty = the workload's own."""
    val_data: str = ""
    """Dataset to validate on; empty = the workload's own."""
    metrics: str = ""
    """More metrics: label=module:function, separated by commas; (prediction, target) -> a number for each sample."""
    evaluation: str = ""
    """A function (predict, val_set) -> {label: number} whose numbers are added to every validation."""
    memory_gb: Annotated[float, Range(at_least=0, at_most=100_000)] = 2.0
    """Data up to this size is read into memory once, by every rank; larger data is streamed, batch by batch."""
    data_workers: Annotated[int, Range(at_least=0, at_most=1024)] = 0
    """Worker processes of a rank that read data ahead; 0 = the rank reads itself."""

    headline: ClassVar[Headline] = (
        ("train/epoch", "epoch", ".2f"),
        ("train/loss", "loss", ".4f"),
        ("eval/loss", "eval loss", ".4f"),
        ("eval/accuracy", "accuracy", ".4f"),
        ("eval/r2", "R2", ".4f"),
        ("train/learning_rate", "rate", ".1e"),
    )
    aliases: ClassVar[Mapping[str, str]] = {"num_workers": "data_workers"}

    def validate(self) -> None:
        """Check the metrics; files' paths are made absolute, so that any folder can resume."""
        for name in ("train_data", "val_data", "evaluation"):
            object.__setattr__(self, name, outside.absolute_name(getattr(self, name)))
        named = self.named_metrics()
        object.__setattr__(self, "metrics", ",".join(f"{label}={source}" for label, source in named.items()))

    def named_metrics(self) -> dict[str, str]:
        """The sources of the metrics, by label."""
        found = {}
        for part in filter(None, self.metrics.split(",")):
            label, equals, source = part.strip().partition("=")
            if not label.isidentifier() or not equals or not source:
                raise UserError(f"metrics {shown(part)}: not a metric; write it like top2=my_file.py:top2")
            found[label] = outside.absolute_name(source)
        return found

    @property
    def memory(self) -> int:
        """The largest size in bytes that is read into memory."""
        return int(self.memory_gb * GIB)

    def work(self) -> list[tuple[str, str]]:
        """Where the data comes from."""
        workers = f", {self.data_workers} worker(s) a rank" if self.data_workers else ""
        return [("data", f"{self.train_data or 'its own'}{workers}")]


@dataclass(frozen=True, kw_only=True)
class ModuleSettings(NetworkSettings):
    """A module of the user's."""

    model: str = ""
    """The network: a torch.nn.Module or a function that returns one, as module:name or file.py:name; empty = own."""

    def validate(self) -> None:
        """Make a file's path absolute, so that any folder can resume."""
        object.__setattr__(self, "model", outside.absolute_name(self.model))

    def build(self, problem: Any, config: AnyConfig) -> "nn.Module":
        """Make the module; its first weights follow from the seed."""
        return problem.make_network(config.run.seed)

    def work(self) -> list[tuple[str, str]]:
        """Where the module comes from."""
        return [("network", self.model or "its own")]


FitConfig = Config[SupervisedSettings, FitSettings, ModuleSettings]

"""Settings of the matches for next-ball prediction. Nothing here needs torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from lockstep.config.config import AnyConfig, WorkloadSettings
from lockstep.config.fields import Alias, OptionalPath, Range
from lockstep.config.values import shown
from lockstep.errors import UserError


@dataclass(frozen=True, kw_only=True)
class CricketSettings(WorkloadSettings):
    """Cricket: the matches, and how their deliveries become samples."""

    data: Annotated[OptionalPath, Alias("data_dir")] = ""
    """Folder or zip of Cricsheet match files (JSON); empty = a simulated league."""
    split: OptionalPath = ""
    """JSON file that names the training and validation matches; empty = 80/10/10 by split_seed."""
    split_seed: Annotated[int, Range(at_least=0, at_most=2**31)] = 42
    """Without a split file: seed of the split into training, validation and test matches."""
    bad_files: Literal["refuse", "skip"] = "refuse"
    """What to do with a file that is not a match: refuse = stop, skip = leave it out with a warning."""
    cache_dir: Annotated[OptionalPath, Alias("processed_dir")] = ""
    """Folder for prepared tables; empty = the user's cache, which `lockstep cache` shows and clears."""
    matches: Annotated[int, Range(at_least=10, at_most=100_000)] = 400
    """Without data: matches of the simulated league."""
    careers: Literal["all", "earlier"] = "all"
    """Training matches that count in a player's, team's or venue's career: all others, or those of earlier days."""
    history_groups: Annotated[int, Range(at_least=1, at_most=24)] = 6
    """Number of lengths that histories are padded to: more means less padding, fewer suits small batches."""

    path_fields: ClassVar[tuple[str, ...]] = ("data", "split", "cache_dir")
    only_values: ClassVar[Mapping[str, str]] = {"min_history": "1"}

    def validate(self) -> None:
        """Check that a split file comes with --data."""
        if self.split and not self.data:
            raise UserError(
                f"split {self.split}: names matches of --data, which is missing; add --data or leave --split out"
            )

    def check(self, config: AnyConfig) -> None:
        """Check that the loss is one of classes."""
        loss = config.values()["loss"]
        if loss not in ("cross_entropy", "focal"):
            raise UserError(f"loss {shown(loss)}: outcomes are classes; allowed: cross_entropy, focal")

    def work(self) -> list[tuple[str, str]]:
        """Where the matches come from."""
        return [("data", self.data or f"a simulated league of {self.matches} matches")]

"""What can be set about next-ball prediction. Nothing here needs torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from lockstep.algorithms.supervised.config import SupervisedConfig
from lockstep.config.fields import Alias, Count, Range
from lockstep.errors import UserError
from lockstep.workloads.cricket.graph import kept_relations


@dataclass(frozen=True, kw_only=True)
class CricketConfig(SupervisedConfig):
    """Cricket: the matches, the graph network and what of the graph it has."""

    data: Annotated[str, Alias("data_dir")] = ""
    """Folder or zip of Cricsheet match files (JSON); none = a simulated league."""
    split: str = ""
    """JSON file that names the training and validation matches; none = 80/10/10 by split_seed."""
    split_seed: Annotated[int, Range(at_least=0, at_most=2**31)] = 42
    """Without a split file: what decides which matches are for training, validation and testing."""
    bad_files: Literal["refuse", "skip"] = "refuse"
    """What to do with a file that is not a match: end, or leave it out and say so."""
    cache_dir: Annotated[str, Alias("processed_dir")] = ""
    """Folder for what was read from the match files; none = .lockstep-cache beside them."""
    matches: Annotated[int, Range(at_least=10, at_most=100_000)] = 400
    """Without data: matches of the simulated league."""
    model: Annotated[
        Literal["base", "hybrid", "phase_modulated", "innings_conditional", "full"], Alias("model_class")
    ] = "base"
    """The network: base, with a matchup of striker and bowler, also modulated by phase, with two heads, or all."""
    hidden_dim: Annotated[int, Range(at_least=4, at_most=4096)] = 128
    """Channels of every node; a multiple of num_heads, and of 4."""
    num_layers: Annotated[int, Range(at_least=1, at_most=16)] = 3
    """Rounds of message passing; the last is the query's alone."""
    num_heads: Annotated[int, Range(at_least=1, at_most=64)] = 4
    """Attention heads."""
    dropout: Annotated[float, Range(at_least=0, below=1)] = 0.1
    """Share of each node's channels that training leaves out."""
    id_dropout: Annotated[float, Range(at_least=0, at_most=1)] = 0.1
    """Share of venues, teams and players whose name training hides, as it will be with unknown ones."""
    members: Annotated[int, Range(at_least=1, at_most=64)] = 1
    """Networks that learn side by side from different starts and whose probabilities are averaged."""
    player_dim: Count = 64
    """Numbers learned for each player by name."""
    drop_relations: str = ""
    """Relations of the graph to leave out, separated by commas; ball = all that start at earlier balls."""
    history_groups: Annotated[int, Range(at_least=1, at_most=24)] = 6
    """Lengths that histories are padded to, evenly spread: more waste less arithmetic, fewer suit small batches."""

    path_fields: ClassVar[tuple[str, ...]] = ("data", "split", "cache_dir")
    only_values: ClassVar[dict[str, str]] = {"min_history": "1"}

    def validate(self) -> None:
        """See that heads divide the channels, and that the relations to be dropped are there."""
        super().validate()
        if self.hidden_dim % self.num_heads or self.hidden_dim % 4:
            raise UserError(
                f"hidden_dim {self.hidden_dim} must be a multiple of num_heads {self.num_heads} and of 4; "
                "change one of them"
            )
        if self.split and not self.data:
            raise UserError(f"split {self.split}: names matches of --data, which is missing; add it or leave this out")
        kept_relations(self.drop_relations)

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Data and network besides what is learned how."""
        without = f", without {self.drop_relations}" if self.drop_relations else ""
        sizes = f"{self.num_layers} rounds of {self.hidden_dim} channels, {self.num_heads} heads"
        data = self.data or f"a simulated league of {self.matches} matches"
        return [("data", data), ("network", f"{self.members} x {self.model}, {sizes}{without}"), *super().work(shared)]

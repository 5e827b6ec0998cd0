"""Settings of the graph network. Nothing here needs torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from lockstep.config.config import AnyConfig, NetworkSettings
from lockstep.config.fields import Alias, Count, Listed, Range
from lockstep.errors import UserError
from lockstep.workloads.cricket.network.graph import kept_relations, reads_balls

if TYPE_CHECKING:
    from torch import nn

    from lockstep.workloads.cricket.problem import CricketProblem


@dataclass(frozen=True, kw_only=True)
class GraphSettings(NetworkSettings):
    """Graph network: its variant, size and relations."""

    model: Annotated[
        Literal["base", "hybrid", "phase_modulated", "innings_conditional", "full"], Alias("model_class")
    ] = "base"
    """The network: base, with a matchup of striker and bowler, also modulated by phase, with two heads, or all."""
    hidden_dim: Annotated[int, Range(at_least=4, at_most=4096)] = 128
    """Channels of every node; a multiple of num_heads, and of 4."""
    num_layers: Annotated[int, Range(at_least=1, at_most=16)] = 3
    """Rounds of message passing; the last updates the query only."""
    num_heads: Annotated[int, Range(at_least=1, at_most=64)] = 4
    """Attention heads."""
    dropout: Annotated[float, Range(at_least=0, below=1)] = 0.1
    """Dropout probability of each node's channels."""
    id_dropout: Annotated[float, Range(at_least=0, at_most=1)] = 0.1
    """Probability of hiding a venue's, team's or player's id in training, to prepare for unknown ones."""
    members: Annotated[int, Range(at_least=1, at_most=64)] = 1
    """Ensemble size: networks trained from different initial weights, whose probabilities are averaged."""
    player_dim: Count = 64
    """Width of a player's embedding."""
    drop_relations: Annotated[str, Listed()] = ""
    """Relations of the graph to leave out, separated by commas; ball = all that start at earlier balls."""

    @property
    def kept(self) -> frozenset[str]:
        """The relations that are computed."""
        return kept_relations(self.drop_relations)

    @property
    def reads_balls(self) -> bool:
        """Whether the earlier balls of an innings are part of the graph."""
        return reads_balls(self.kept)

    def validate(self) -> None:
        """Check that heads divide the channels, and that the relations to drop exist."""
        # The matchup readout has a hidden layer of a quarter of the channels.
        if self.hidden_dim % self.num_heads or self.hidden_dim % 4:
            raise UserError(
                f"hidden_dim {self.hidden_dim} must be a multiple of num_heads {self.num_heads} and of 4; "
                "change one of them"
            )
        kept_relations(self.drop_relations)

    def build(self, problem: "CricketProblem", config: AnyConfig) -> "nn.Module":
        """Build the network for a problem's vocabulary and feature scales."""
        from lockstep.workloads.cricket.network.model import Sizes, network
        from lockstep.workloads.cricket.network.variants import VARIANTS

        sizes = Sizes(
            hidden=self.hidden_dim,
            layers=self.num_layers,
            heads=self.num_heads,
            dropout=self.dropout,
            id_dropout=self.id_dropout,
            player_width=self.player_dim,
            kept=self.kept,
            variant=VARIANTS[self.model],
        )
        return network(sizes, self.members, problem.vocabulary, problem.prior, problem.scales, config.run.seed)

    def work(self) -> list[tuple[str, str]]:
        """Variant and size of the network."""
        without = f", without {self.drop_relations}" if self.drop_relations else ""
        sizes = f"{self.num_layers} rounds of {self.hidden_dim} channels, {self.num_heads} heads"
        return [("network", f"{self.members} x {self.model}, {sizes}{without}")]

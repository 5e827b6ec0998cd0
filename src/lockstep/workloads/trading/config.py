"""What can be set about trading: the market, the network and how it learns. Nothing here needs torch."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from lockstep.algorithms.ppo.config import RecurrentPPOConfig
from lockstep.config.fields import Alias, OffOrCount, Range
from lockstep.config.run_config import absolute
from lockstep.errors import UserError
from lockstep.workloads.trading.market_config import MarketConfig


@dataclass(frozen=True, kw_only=True)
class TradingConfig(MarketConfig, RecurrentPPOConfig):
    """Trading: the network, and the guide's own words for the lengths of a run."""

    network: Literal["lstm", "clstm"] = "lstm"
    """lstm = one recurrent layer; clstm = the guide's three blocks of LSTM and attention."""
    lstms: Literal["shared", "two"] = "shared"
    """Whether actor and critic of network lstm share one LSTM or have one each."""
    hidden_size: Annotated[int, Range(at_least=8, at_most=4096)] = 256
    """Units of each LSTM; for network clstm a multiple of its 8 heads."""
    attention_window: Annotated[int, Range(at_least=2, at_most=512)] = 20
    """Steps, the present one among them, that the attention of network clstm sees."""
    aux_coef: Annotated[float, Range(at_least=0, at_most=100)] = 0.0
    """Weight of the error in foretelling the next day's price, volatility and volume; 0 = nothing is foretold."""
    learning_rate: Annotated[float, Range(above=0, at_most=1), Alias("lr"), Alias("learning_rate_actor")] = 3e-4
    """Adam's step size at the start, for all but the critic's own weights."""
    learning_rate_critic: Annotated[float, Range(above=0, at_most=1)] = 1e-3
    """The same for the critic's own weights."""
    clip_range: Annotated[float, Range(above=0), Alias("clip_coef"), Alias("epsilon")] = 0.2
    """How far the policy's probability ratio may move from 1 before its gradient is cut."""
    episodes: OffOrCount = 0
    """Episodes to train for, over all ranks: sets total_timesteps to so many times episode_length; 0 = leave it."""
    update_interval: OffOrCount = 0
    """Steps between updates, over all ranks: sets n_steps to this / n_envs; 0 = leave it."""
    checkpoint_interval: OffOrCount = 0
    """Episodes between checkpoints, over all ranks: sets checkpoint_every; 0 = leave it."""
    no_data_load: bool = False
    """Trade simulated prices only: forget data, symbols and dates."""

    learning_rate_fields: ClassVar[tuple[str, ...]] = ("learning_rate", "learning_rate_critic")

    def validate(self) -> None:
        """Put the guide's words into everybody's, and see that the network can be built."""
        self._translate()
        super().validate()
        if self.network == "clstm" and self.hidden_size % 8:
            raise UserError(f"hidden_size {self.hidden_size}: network clstm needs a multiple of its 8 heads")
        if self.network == "clstm" and self.lstms == "two":
            raise UserError("lstms two: network clstm has one cascade for both; leave this out or use --network lstm")

    def _translate(self) -> None:
        """Keep in steps what the guide counts otherwise. Its words are used up by this, so that later ones count."""
        changes: dict[str, Any] = {}
        if self.episodes:
            changes |= {"total_timesteps": self.episodes * self.episode_length, "episodes": 0}
        if self.checkpoint_interval:
            changes |= {"checkpoint_every": self.checkpoint_interval * self.episode_length, "checkpoint_interval": 0}
        if self.update_interval:
            changes |= {"n_steps": self._steps_between_updates(), "update_interval": 0}
        if self.no_data_load:
            changes |= {
                "data": "",
                "historical_lanes": "all",
                "symbols": "",
                "start_date": "",
                "end_date": "",
                "no_data_load": False,
            }
        elif self.data:
            files = filter(None, map(str.strip, self.data.split(",")))
            changes["data"] = ",".join(absolute(name) for name in files) or self.data
        for name, value in changes.items():
            object.__setattr__(self, name, value)

    def _steps_between_updates(self) -> int:
        if self.update_interval % self.n_envs == 0:
            return self.update_interval // self.n_envs
        below = self.update_interval // self.n_envs * self.n_envs
        near = " or ".join(str(count) for count in (below, below + self.n_envs) if count)
        raise UserError(
            f"update_interval {self.update_interval} is no multiple of n_envs {self.n_envs}; nearest: {near}, "
            "or change --n-envs"
        )

    @property
    def planned_episodes(self) -> int:
        """Episodes of the whole run, over all ranks, where none ends early."""
        return max(self.total_timesteps // self.episode_length, 1)

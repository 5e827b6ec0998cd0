"""The settings of trading and its networks. No torch here: flags are read before it is imported."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.config.config import AnyConfig, Config, NetworkSettings, WorkloadSettings
from lockstep.config.fields import Listed, OffOrCount, Pattern, Range
from lockstep.config.settings import absolute
from lockstep.errors import UserError
from lockstep.workloads.trading.market.settings import MarketSettings

if TYPE_CHECKING:
    from lockstep.rl.problem import EnvProblem
    from lockstep.rl.recurrent_policy import LSTMPolicy
    from lockstep.workloads.trading.model import CLSTMPolicy

HEADS = 8
"""Attention heads of network clstm, as in the guide; they divide its units among them."""
_LANES = Pattern(r"all|none|\d+(-\d+)?(,\d+(-\d+)?)*", "all, none, or lane numbers such as 0,2,4-7")


@dataclass(frozen=True, kw_only=True)
class TradingSettings(MarketSettings, WorkloadSettings):
    """Trading: which lanes trade real prices, and lengths of a run in the guide's units."""

    historical_lanes: Annotated[str, _LANES, Listed()] = "all"
    """Lanes that trade the data's prices, if there is data; the others trade simulated ones."""
    episodes: OffOrCount = 0
    """Episodes to train for, over all ranks: sets total_timesteps to this x episode_length; 0 = use total_timesteps."""
    update_interval: OffOrCount = 0
    """Steps between updates, over all ranks: sets n_steps to this / n_envs; 0 = use n_steps."""
    checkpoint_interval: OffOrCount = 0
    """Episodes between checkpoints, over all ranks: sets checkpoint_every; 0 = use checkpoint_every."""
    no_data_load: bool = False
    """Trade simulated prices only: ignore data, symbols and dates."""

    # The guide's names for these settings.
    aliases: ClassVar[Mapping[str, str]] = {"learning_rate_actor": "learning_rate", "epsilon": "clip_range"}

    def validate(self) -> None:
        """Check the data's settings, and make its paths absolute, so that a run can be resumed from anywhere."""
        if self.no_data_load:
            # `translate` drops the data's settings, so they need not be valid.
            return
        super().validate()
        if self.data:
            # Settings are frozen; this is the only change after their creation.
            for field in ("data", "chains"):
                text = getattr(self, field)
                names = filter(None, map(str.strip, text.split(",")))
                object.__setattr__(self, field, ",".join(map(absolute, names)) or text)
        elif self.historical_lanes not in ("all", "none"):
            raise UserError(f"historical_lanes {self.historical_lanes}: there is no data to trade; add --data")

    def check(self, config: AnyConfig) -> None:
        """Check that historical_lanes names lanes of the run."""
        # Called for its errors; the number of lanes is only known once the whole configuration is.
        self.lanes_with_history(config.effective_lanes)

    def lanes_with_history(self, lanes: int) -> list[bool]:
        """For each of the run's lanes, whether it trades the data's prices."""
        if not self.data or self.historical_lanes in ("all", "none"):
            return [bool(self.data) and self.historical_lanes == "all"] * lanes
        chosen = set[int]()
        for part in self.historical_lanes.split(","):
            first, _, last = part.partition("-")
            if int(last or first) < int(first) or int(last or first) >= lanes:
                raise UserError(
                    f"historical_lanes {self.historical_lanes}: {part} is not among the run's lanes; "
                    f"allowed: 0 to {lanes - 1}, the smaller number first"
                )
            chosen.update(range(int(first), int(last or first) + 1))
        return [lane in chosen for lane in range(lanes)]

    def translate(self, config: AnyConfig) -> dict[str, Any]:
        """Convert the guide's settings, counted in episodes, to steps.

        Each of them returns to its default, so that it does not override a later total_timesteps or n_steps.
        """
        changes: dict[str, Any] = {}
        if self.episodes:
            # If no account goes bankrupt: an episode may be shorter than episode_length.
            changes |= {config.algorithm.length_field: self.episodes * self.episode_length, "episodes": 0}
        if self.checkpoint_interval:
            changes |= {"checkpoint_every": self.checkpoint_interval * self.episode_length, "checkpoint_interval": 0}
        if self.update_interval:
            changes |= {"n_steps": self._steps_between_updates(config.algorithm.lane_units()), "update_interval": 0}
        if self.no_data_load:
            dropped = dict.fromkeys(("data", "chains", "symbols", "start_date", "end_date", "validation_from"), "")
            changes |= {**dropped, "historical_lanes": "all", "no_data_load": False}
        return changes

    def _steps_between_updates(self, accounts: int) -> int:
        """Steps of each account between updates."""
        if self.update_interval % accounts == 0:
            return self.update_interval // accounts
        below = self.update_interval // accounts * accounts
        near = " or ".join(str(count) for count in (below, below + accounts) if count)
        raise UserError(
            f"update_interval {self.update_interval}: must be a multiple of n_envs {accounts}; nearest: {near}; "
            "or change --n-envs"
        )


@dataclass(frozen=True, kw_only=True)
class RecurrentSettings(NetworkSettings):
    """A recurrent network, which can also learn to predict the next day."""

    hidden_size: Annotated[int, Range(at_least=8, at_most=4096)] = 256
    """Units of each LSTM; with network clstm a multiple of its 8 heads."""
    aux_coef: Annotated[float, Range(at_least=0, at_most=100)] = 0.0
    """Weight of the error in predicting the next day's price, volatility and volume; 0 = nothing is predicted."""

    @property
    def recurrent(self) -> bool:
        """It has a memory."""
        return True


@dataclass(frozen=True, kw_only=True)
class LSTMSettings(RecurrentSettings):
    """One recurrent layer."""

    lstms: Literal["shared", "two"] = "shared"
    """Whether actor and critic of network lstm share one LSTM or have one each ("two")."""

    foreign_keys: ClassVar[Mapping[str, str]] = {
        "attention_window": "network lstm has no attention; leave it out or use --network clstm"
    }

    def build(self, problem: "EnvProblem", config: AnyConfig) -> "LSTMPolicy":
        """The network for a problem's observations and actions."""
        from lockstep.workloads.trading.model import lstm

        forecasts, separate = self.aux_coef > 0, self.lstms == "two"
        return lstm(problem, self.hidden_size, separate=separate, forecasts=forecasts, seed=config.run.seed)


@dataclass(frozen=True, kw_only=True)
class CLSTMSettings(RecurrentSettings):
    """The guide's cascade: three blocks of LSTM and attention."""

    attention_window: Annotated[int, Range(at_least=2, at_most=512)] = 20
    """Steps, including the current one, that the attention of network clstm sees."""

    foreign_keys: ClassVar[Mapping[str, str]] = {
        "lstms": "network clstm has one cascade for both; leave it out or use --network lstm"
    }

    def validate(self) -> None:
        """Check that the attention heads divide the units."""
        if self.hidden_size % HEADS:
            raise UserError(f"hidden_size {self.hidden_size}: must be a multiple of the {HEADS} heads of network clstm")

    def build(self, problem: "EnvProblem", config: AnyConfig) -> "CLSTMPolicy":
        """The network for a problem's observations and actions."""
        from lockstep.workloads.trading.model import clstm

        size, window, forecasts = self.hidden_size, self.attention_window, self.aux_coef > 0
        return clstm(problem, size, window=window, heads=HEADS, forecasts=forecasts, seed=config.run.seed)


TradingConfig = Config[PPOSettings, TradingSettings, NetworkSettings]

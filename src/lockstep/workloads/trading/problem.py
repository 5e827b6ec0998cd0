"""Trading as a reinforcement learning problem: accounts on real and on simulated prices. E: accounts."""

import torch
from torch import Tensor

from lockstep.distributed.world import World
from lockstep.rl.problem import Discrete, EnvProblem, Forecast
from lockstep.rl.rollout import Episodes
from lockstep.workloads.trading.account.actions import ACTIONS
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.data_record import data_record
from lockstep.workloads.trading.market.history import load_history
from lockstep.workloads.trading.model import forecast_target
from lockstep.workloads.trading.observation import SIZES, symbols_told
from lockstep.workloads.trading.settings import RecurrentSettings, TradingConfig


def trading_problem(config: TradingConfig, world: World) -> EnvProblem:
    """The accounts, on this rank's device. Called by every rank."""
    settings, network = config.workload, config.network
    # Loaded once and shared by all environments of this rank.
    history = load_history(settings) if settings.data else None
    lanes = settings.lanes_with_history(config.effective_lanes)
    replays = any(lanes)

    def make_env(index: Tensor, seed: int) -> TradingEnv:
        # Staggered, so that not all accounts end their episodes in the same update.
        historical = accounts_with_history(lanes, config.algorithm.n_envs, index)
        return TradingEnv(settings, index, seed, world.device, history=history, historical=historical, staggered=True)

    def make_test(index: Tensor, seed: int) -> TradingEnv:
        # Real prices if any account learns from them, on the same days: validation days stay unseen during training.
        return TradingEnv(settings, index, seed, world.device, history=history, historical=replays, split="train")

    forecast = None
    if isinstance(network, RecurrentSettings) and network.aux_coef:
        forecast = Forecast(network.aux_coef, forecast_target)
    # The encoding of the symbol is in every observation if there is data, also on lanes that trade simulated prices.
    return EnvProblem(
        name="trading",
        observation_shape=(sum(SIZES.values()) + symbols_told(settings, history),),
        actions=Discrete(len(ACTIONS)),
        make_env=make_env,
        batch_invariant=True,
        make_test=make_test,
        forecast=forecast,
        data=data_record(history, settings.episode_length, settings.historical_lanes) if history else {},
        describe=lambda episodes: described(episodes, by_source=replays),
    )


def accounts_with_history(lanes: list[bool], count: int, index: Tensor) -> Tensor:
    """(E,) which of the accounts `index` trade real prices: those in marked lanes; `count`: accounts of all lanes."""
    # Lanes own contiguous accounts. On the CPU: the environment asks whether there are any before it uses them.
    return torch.tensor(lanes)[index.cpu() * len(lanes) // count]


def described(episodes: Episodes, by_source: bool) -> dict[str, Tensor]:
    """The ratios of the episodes that have them and, if asked for, results by the source of the prices."""
    ratios = {name: defined(episodes.info[name]) for name in ("sharpe", "sortino")}
    return ratios | (results_by_price_source(episodes) if by_source else {})


def defined(ratios: Tensor) -> Tensor:
    """Those that are numbers: an account that took no risk has no ratio, and must not count in a mean."""
    return ratios[~ratios.isnan()]


def results_by_price_source(episodes: Episodes) -> dict[str, Tensor]:
    """Reward, profit and Sharpe ratio of the episodes on real and on simulated prices, separately."""
    real = episodes.info["historical"] > 0
    kinds = {"historical": real, "simulated": ~real}
    columns = {"reward": episodes.returns, "profit": episodes.info["profit"], "sharpe": episodes.info["sharpe"]}
    return {f"{kind}_{name}": defined(column[mask]) for kind, mask in kinds.items() for name, column in columns.items()}

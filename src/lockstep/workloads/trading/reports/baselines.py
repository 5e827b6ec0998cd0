"""Traders without a network. E: accounts.

The rules that follow a direction (momentum, oracle) hold calls while they expect a rise and puts while they expect a
fall: they fill every free slot, one a day, and close all positions when the direction changes. The oracle knows the
hidden regime. Buy-and-hold puts the initial capital into the underlying itself, without costs, which no action can do.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import evaluate
from lockstep.workloads.trading.account.actions import ACTIONS, BUY_CALL, BUY_PUT, CLOSE_ALL, HOLD
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.history import History, Split
from lockstep.workloads.trading.market.indicators import CLOSE
from lockstep.workloads.trading.market.settings import MarketSettings

TAG = "trading"
"""Prefix of the results that the environment reports."""


def hold(env: TradingEnv) -> Tensor:
    """Do nothing."""
    return torch.full_like(env.index, HOLD)


def random_action(env: TradingEnv) -> Tensor:
    """Draw one of the eleven actions uniformly."""
    # Keyed by account and clock, so that the world size does not matter. A 32-bit word times N, shifted by 32 bits, is
    # a uniform number from 0 to N - 1.
    word = random.random_words(env.seed, "trading-random", env.index, env.market.clock, torch.zeros_like(env.index))[0]
    return (word * len(ACTIONS)) >> 32


def always_call(env: TradingEnv) -> Tensor:
    """Buy a call whenever there is room for a position, and hold it until it expires."""
    return follow(env, torch.ones_like(env.market.spot))


def momentum(env: TradingEnv) -> Tensor:
    """Follow the direction of the price over the 20 bars of the observation."""
    closes = env.market.bars[:, CLOSE]
    return follow(env, torch.sign(closes[:, -1] - closes[:, 0]))


def oracle(env: TradingEnv) -> Tensor:
    """Follow the hidden regime; holds in a market without regimes."""
    return follow(env, env.market.regime)


def follow(env: TradingEnv, direction: Tensor) -> Tensor:
    """Hold calls if direction (E,) is above 0, puts if it is below, and change nothing if it is 0."""
    positions = env.account.positions
    # Delta tells the direction of what is held: calls have a positive one, puts a negative one.
    held = torch.sign(positions.greeks[:, 0])
    order = torch.where(direction > 0, BUY_CALL, BUY_PUT)
    # No order without a free slot; closing, in the last line, needs none.
    order = torch.where(positions.open.all(1) | (direction == 0), HOLD, order)
    return torch.where(held * direction < 0, CLOSE_ALL, order)


TRADERS: dict[str, Callable[[TradingEnv], Tensor]] = {
    "hold": hold,
    "random": random_action,
    "buy_and_hold": hold,
    "always_call": always_call,
    "momentum": momentum,
    "oracle": oracle,
}
"""Baselines by name. buy_and_hold makes no trades here: its result is computed from the prices."""


def evaluate_baseline(
    name: str,
    settings: MarketSettings,
    world: World,
    episodes: int,
    seed: int,
    *,
    history: History | None = None,
    historical: bool = False,
    split: Split = "train",
) -> Evaluation:
    """Evaluate one of TRADERS, on simulated prices or on days of the data. Called by every rank."""
    trader = TRADERS[name]
    result = evaluate(
        world,
        lambda index: TradingEnv(
            settings, index, seed, world.device, history=history, historical=historical, split=split
        ),
        lambda _, env: trader(env),
        episodes,
        seed,
        tag=TAG,
    )
    return _of_underlying(settings, result) if name == "buy_and_hold" else result


def _of_underlying(settings: MarketSettings, watched: Evaluation) -> Evaluation:
    """The result of investing the initial capital in the underlying, from the prices that each episode reports."""
    growth, risk = watched.extra[f"{TAG}_underlying"], watched.extra[f"{TAG}_underlying_risk"]
    capital = settings.initial_capital
    # Only results that make sense for an investment without options.
    extra = {
        "profit": [capital * rate for rate in growth],
        "value": [capital * (1.0 + rate) for rate in growth],
        "risk": [capital * deviation for deviation in risk],
        "underlying": growth,
        "underlying_risk": risk,
        "historical": watched.extra[f"{TAG}_historical"],
    }
    return replace(
        watched,
        returns=[settings.reward_scale * profit for profit in extra["profit"]],
        extra={f"{TAG}_{name}": column for name, column in extra.items()},
    )

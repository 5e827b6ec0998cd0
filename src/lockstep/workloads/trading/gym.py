"""Trading for Gymnasium: one account, or many in one vector environment."""

from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from lockstep.envs.gym_adapter import GymDeclaration, TensorGymEnv, TensorGymVectorEnv, settings_from, vector_metadata
from lockstep.workloads.trading.account.actions import ACTIONS
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.history import History, load_history
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.observation import LIMIT, SIZES, symbols_told

ENV_ID = "lockstep/Trading-v0"


class TradingGymEnv(TensorGymEnv[TradingEnv]):
    """One account; keyword arguments are the fields of `MarketSettings`. `ansi` renders the account in one line."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        self.settings = settings_from(ENV_ID, MarketSettings, options)
        super().__init__(_declaration(self.settings), render_mode)


class TradingGymVectorEnv(TensorGymVectorEnv[TradingEnv]):
    """Many accounts stepped together; keyword arguments are the fields of `MarketSettings`."""

    metadata = vector_metadata(TradingGymEnv.metadata)

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **options: Any) -> None:
        self.settings = settings_from(ENV_ID, MarketSettings, options)
        super().__init__(_declaration(self.settings), num_envs, render_mode)


def _declaration(settings: MarketSettings) -> GymDeclaration[TradingEnv]:
    # Read here and passed on, so that a seeded reset does not read the files again.
    history = load_history(settings) if settings.data else None
    size = sum(SIZES.values()) + symbols_told(settings, history)
    return GymDeclaration(
        env_id=ENV_ID,
        observation_space=spaces.Box(-LIMIT, LIMIT, (size,), np.float32),
        actions=ACTIONS,
        make=partial(_accounts, settings, history),
        renderers={"ansi": _line},
    )


def _accounts(settings: MarketSettings, history: History | None, index: Tensor, seed: int) -> TradingEnv:
    return TradingEnv(settings, index, seed, torch.device("cpu"), history=history)


def _line(accounts: TradingEnv, number: int) -> str:
    account, market = accounts.account, accounts.market
    return (
        f"day {int(account.steps[number])}: price {float(market.spot[number]):.2f}, "
        f"cash ${float(account.cash[number]):,.2f}, {int(account.positions.open[number].sum())} positions, "
        f"value ${float(account.value[number]):,.2f}"
    )

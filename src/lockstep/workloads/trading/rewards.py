"""What a step is paid for: the change of the account's value after costs, and terms that can be added. E: accounts."""

import torch
from torch import Tensor

from lockstep.workloads.trading.account import Account
from lockstep.workloads.trading.market_config import MarketConfig


def reward(config: MarketConfig, account: Account, change: Tensor) -> Tensor:
    """(E,) float32; change (E,): dollars by which the value changed in this step."""
    dollars = change
    if config.trade_penalty:
        dollars = dollars - config.trade_penalty * account.traded
    if config.realised_bonus:
        dollars = dollars + config.realised_bonus * account.realised.clamp(min=0.0)
    total = config.reward_scale * dollars
    if config.idle_penalty:
        total = total - config.idle_penalty * ~account.positions.open.any(1)
    return total.to(torch.float32)

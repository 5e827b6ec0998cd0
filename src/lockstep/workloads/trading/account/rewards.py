"""The reward: the change of the account's value after costs, plus optional terms. E: accounts."""

import torch
from torch import Tensor

from lockstep.workloads.trading.account.account import Account
from lockstep.workloads.trading.market.settings import MarketSettings


def reward(settings: MarketSettings, account: Account, change: Tensor) -> Tensor:
    """(E,) float32; change (E,): dollars by which the value changed in this step."""
    dollars = change
    if settings.trade_penalty:
        dollars = dollars - settings.trade_penalty * account.traded
    if settings.realised_bonus:
        dollars = dollars + settings.realised_bonus * account.realised.clamp(min=0.0)
    total = settings.reward_scale * dollars
    if settings.idle_penalty:
        total = total - settings.idle_penalty * ~account.positions.open.any(1)
    return total.to(torch.float32)

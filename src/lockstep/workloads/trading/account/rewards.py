"""The reward: the change of the account's value after costs, plus optional terms. E: accounts."""

import torch
from torch import Tensor

from lockstep.workloads.trading.account.account import Account
from lockstep.workloads.trading.market.settings import MarketSettings


def reward(settings: MarketSettings, account: Account, change: Tensor) -> Tensor:
    """(E,) float32; change (E,): dollars by which the value changed in this step."""
    # Branches on settings, not on tensors: they cost nothing in a captured graph.
    dollars = change
    if settings.trade_penalty:
        dollars = dollars - settings.trade_penalty * account.traded
    if settings.realised_bonus:
        # A bonus for profits only. Losses, like profits, are in the change of value already.
        dollars = dollars + settings.realised_bonus * account.realised.clamp(min=0.0)
    total = settings.reward_scale * dollars
    if settings.idle_penalty:
        total = total - settings.idle_penalty * ~account.positions.open.any(1)
    return total.to(torch.float32)

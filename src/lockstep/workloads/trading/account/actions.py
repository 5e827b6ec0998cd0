"""The eleven actions and the contracts that each trades.

Contracts are numbered as in the chain's ladder: the calls of the five strikes (0-4), then the puts (5-9), all of one
expiry.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.workloads.trading.market.chain import STRIKES
from lockstep.workloads.trading.market.settings import MONEYNESS

# The order is the guide's, and a policy's outputs are numbered by it.
ACTIONS = (
    "hold",
    "buy_call",
    "buy_put",
    "sell_call",
    "sell_put",
    "bull_call_spread",
    "bear_put_spread",
    "iron_condor",
    "straddle",
    "strangle",
    "close_all_positions",
)
(
    HOLD,
    BUY_CALL,
    BUY_PUT,
    SELL_CALL,
    SELL_PUT,
    BULL_CALL_SPREAD,
    BEAR_PUT_SPREAD,
    IRON_CONDOR,
    STRADDLE,
    STRANGLE,
    CLOSE_ALL,
) = range(11)

MAX_LEGS = 4  # Of the iron condor.
_CALL = {0.9: 0, 0.95: 1, 1.0: 2, 1.05: 3, 1.1: 4}
_PUT = {strike: place + STRIKES for strike, place in _CALL.items()}

LEGS: dict[int, tuple[tuple[int, int], ...]] = {
    BUY_CALL: ((+1, _CALL[1.0]),),
    BUY_PUT: ((+1, _PUT[1.0]),),
    SELL_CALL: ((-1, _CALL[1.05]),),
    SELL_PUT: ((-1, _PUT[0.95]),),
    BULL_CALL_SPREAD: ((+1, _CALL[1.0]), (-1, _CALL[1.05])),
    BEAR_PUT_SPREAD: ((+1, _PUT[1.0]), (-1, _PUT[0.95])),
    IRON_CONDOR: ((-1, _PUT[0.95]), (+1, _PUT[0.9]), (-1, _CALL[1.05]), (+1, _CALL[1.1])),
    STRADDLE: ((+1, _CALL[1.0]), (+1, _PUT[1.0])),
    STRANGLE: ((+1, _CALL[1.05]), (+1, _PUT[0.95])),
}
"""The legs of one unit of each position: +1 bought or -1 sold, and the contract's number. Short legs are sold 5 % out
of the money; the covering legs of the condor are another 5 % away."""
NAKED = (SELL_CALL, SELL_PUT)
"""Short positions without a leg that limits the loss."""
CONDOR_WIDTH = 0.05
"""The largest loss of one unit of the condor, as a fraction of the price when it was sold."""


@dataclass
class ActionTable:
    """LEGS as tensors, so that actions can be looked up on the device: 11 rows, padded to four legs with side 0."""

    contract: Tensor
    """(11, 4) number of the contract."""
    side: Tensor
    """(11, 4) 1.0 bought, -1.0 sold, 0.0 no leg."""
    moneyness: Tensor
    """(11, 4) strike as a fraction of the price."""
    call: Tensor
    """(11, 4) bool: True for a call, False for a put."""
    legs: Tensor
    """(11,) number of legs, as float64."""
    naked: Tensor
    """(11,) 1.0 if sold uncovered, else 0.0."""
    width: Tensor
    """(11,) the largest loss of a covered short, as a fraction of the price."""

    @classmethod
    def on(cls, device: torch.device) -> "ActionTable":
        """Build the table on a device."""
        # A missing leg is contract 0 with side 0: it is priced, and counts nothing.
        contract = torch.zeros(len(ACTIONS), MAX_LEGS, dtype=torch.int64)
        side = torch.zeros(len(ACTIONS), MAX_LEGS, dtype=torch.float64)
        naked, width = torch.zeros(len(ACTIONS), dtype=torch.float64), torch.zeros(len(ACTIONS), dtype=torch.float64)
        for action, legs in LEGS.items():
            for place, (sign, number) in enumerate(legs):
                contract[action, place], side[action, place] = number, float(sign)
        naked[list(NAKED)] = 1.0
        width[IRON_CONDOR] = CONDOR_WIDTH
        # Calls and puts have the same strikes in the same order.
        moneyness = torch.tensor(MONEYNESS, dtype=torch.float64)[contract % STRIKES]
        tensors = (contract, side, moneyness, contract < STRIKES, side.abs().sum(1), naked, width)
        return cls(*(tensor.to(device) for tensor in tensors))

"""The eleven actions and what each trades."""

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

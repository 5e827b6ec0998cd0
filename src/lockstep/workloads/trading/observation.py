"""What an account sees: the guide's parts side by side in one flat vector. E: accounts."""

from torch import Tensor

HISTORY_BARS, HISTORY_COLUMNS = 20, 5
INDICATORS = 20
CHAIN_ROWS, CHAIN_COLUMNS = 20, 15
SIZES = {
    "price_history": HISTORY_BARS * HISTORY_COLUMNS,
    "technical_indicators": INDICATORS,
    "options_chain": CHAIN_ROWS * CHAIN_COLUMNS,
    "portfolio_state": 5,
    "greeks_summary": 5,
}
"""Numbers of each part, in the order in which they lie in the observation."""


def parts(symbols: int) -> dict[str, slice]:
    """Where each part lies in the flat observation; `symbol_encoding` only where there are symbols."""
    sizes = SIZES | ({"symbol_encoding": symbols} if symbols else {})
    ends = [sum(list(sizes.values())[: i + 1]) for i in range(len(sizes))]
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def split(observation: Tensor, symbols: int) -> dict[str, Tensor]:
    """The parts of a flat (..., 430 + symbols) observation by name; views."""
    return {name: observation[..., place] for name, place in parts(symbols).items()}

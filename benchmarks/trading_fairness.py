"""What blind policies earn in the simulated markets before costs: nothing, if the quotes are fair.

    python benchmarks/trading_fairness.py [--accounts 10000] [--seed 1] [--device cuda] [MARKET]...

Twenty policies that decide by the calendar alone trade an episode of 250 days with so many accounts each, which have
enough capital never to stop.
"""

import argparse

import torch

from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.reports.fairness import measure

MARKETS = ("brownian", "jumps", "stochastic", "regime")


def main() -> None:
    """Print a line for each policy in each market, and the farthest from zero."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("markets", nargs="*", default=MARKETS)
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    for market in options.markets:
        print(f"{market}: dollars before costs, standard error, mean in standard errors")
        found = measure(MarketSettings(market=market), options.accounts, options.seed, torch.device(options.device))
        for result in found:
            print("  " + result.line())
        print(f"  farthest: {max(abs(result.errors) for result in found):.2f} standard errors", flush=True)


if __name__ == "__main__":
    main()

"""Steps per second of the trading accounts with random actions: many in one, and one through Gymnasium.

python benchmarks/trading_env.py [--accounts 256] [--market regime] [--data FILE] [--threads 1] [--device cpu]
On a GPU the step is recorded as one graph, as in training.
"""

import argparse
import time

import gymnasium
import torch

from lockstep.compute.graphs import Accelerator
from lockstep.workloads.registry import register_environments
from lockstep.workloads.trading.account.actions import ACTIONS
from lockstep.workloads.trading.env import TradingEnv
from lockstep.workloads.trading.market.settings import MarketSettings


def rate(step, steps_per_call, seconds, finish=lambda: None):
    """Steps per second of wall time, the best of three thirds, and per second of this process's CPU time."""
    for _ in range(20):
        step()
    best = busy = 0.0
    for _ in range(3):
        finish()
        calls, start, work = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - start < seconds / 3:
            for _ in range(10):
                step()
            calls += 10
        finish()
        best = max(best, calls * steps_per_call / (time.perf_counter() - start))
        busy = max(busy, calls * steps_per_call / (time.process_time() - work))
    return best, busy


def batched(args):
    device = torch.device(args.device)
    settings = MarketSettings(market=args.market, data=args.data)
    env = TradingEnv(settings, torch.arange(args.accounts), 0, device)
    env.reset()
    table = torch.randint(0, len(ACTIONS), (64, args.accounts), generator=torch.Generator().manual_seed(0)).to(device)
    clock = torch.zeros(1, dtype=torch.int64, device=device)

    def step():
        env.step(table.index_select(0, clock).squeeze(0))
        clock.add_(1).remainder_(len(table))

    with torch.no_grad():
        recorded = Accelerator(device, "auto", exact=False).record(step)
        finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        return rate(recorded, args.accounts, args.seconds, finish)


def single(args):
    register_environments()
    env = gymnasium.make("lockstep/Trading-v0", market=args.market)
    env.reset(seed=0)
    env.action_space.seed(0)

    def step():
        if env.step(env.action_space.sample())[2]:
            env.reset()

    return rate(step, 1, args.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accounts", type=int, default=256)
    parser.add_argument("--market", default="regime", choices=("regime", "brownian", "stochastic", "jumps"))
    parser.add_argument("--data", default="", help="trade the bars of this file instead")
    parser.add_argument("--threads", type=int, default=1, help="more make these small operations slower")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=6.0, help="measuring time for each of the two")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    ours, busy = batched(args)
    where = f"{args.device}, {args.threads} threads" if args.device == "cpu" else args.device
    print(f"batched: {ours:12,.0f} steps/s  ({args.accounts} accounts, {args.data or args.market}, {where})")
    print(f"         {busy:12,.0f} steps per second of CPU time, whoever else is at work")
    print(f"single:  {single(args)[0]:12,.0f} steps/s  (one account through Gymnasium, cpu)")


if __name__ == "__main__":
    main()

"""Steps per second of the batched Snake environment beside a plain-Python one, both with random actions.

python benchmarks/snake_env.py [--boards 4096] [--grid-size 12] [--threads 2] [--device cpu] [--seconds 3]
"""

import argparse
import time
from itertools import cycle

import numpy as np
import torch
from plain_snake import PlainSnakeEnv

from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.rules import SnakeRules


def steps_per_second(step, actions, steps_per_call, seconds, finish=lambda: None):
    """The best of three measurements, each a third of the time."""
    best, actions = 0.0, cycle(actions)
    for _ in range(20):
        step(next(actions))
    for _ in range(3):
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / 3:
            for _ in range(20):
                step(next(actions))
            calls += 20
        finish()
        best = max(best, calls * steps_per_call / (time.perf_counter() - start))
    return best


def batched(args):
    device = torch.device(args.device)
    env = SnakeEnv(SnakeRules(grid_size=args.grid_size), torch.arange(args.boards), 0, device)
    env.reset()
    actions = torch.randint(0, 4, (64, args.boards), generator=torch.Generator().manual_seed(0)).to(device)
    finish = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    return steps_per_second(env.step, actions.unbind(), args.boards, args.seconds, finish)


def plain(args):
    env = PlainSnakeEnv(args.grid_size)
    env.reset(seed=0)

    def step(action):
        if env.step(action)[2]:
            env.reset()

    return steps_per_second(step, np.random.default_rng(0).integers(4, size=4096).tolist(), 1, args.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", type=int, default=4096)
    parser.add_argument("--grid-size", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1, help="more make these small operations slower")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="measuring time for each of the two")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    ours, theirs = batched(args), plain(args)
    where = f"{args.device}, {args.threads} threads" if args.device == "cpu" else args.device
    print(f"batched: {ours:12,.0f} steps/s  ({args.boards} boards of {args.grid_size}x{args.grid_size}, {where})")
    print(f"plain:   {theirs:12,.0f} steps/s  (one board, as one writes it for Gymnasium)")
    print(f"ratio:   {ours / theirs:12.1f}")


if __name__ == "__main__":
    main()

"""Steps per second of the batched 3v3 Snakes game beside a plain-Python one, both with random actions.

python benchmarks/snakes3v3_game.py [--boards 1024] [--threads 2] [--device cpu] [--seconds 3]

A step moves all six snakes of a board; games that end begin anew. On a GPU steps are captured in a graph.
"""

import argparse
import random
import time
from itertools import cycle

import torch
from plain_snakes3v3 import PlainSnakesGame

from lockstep.core.graphs import Recording
from lockstep.workloads.snakes3v3.game import SnakesGame
from lockstep.workloads.snakes3v3.rules import SNAKES_3V3


def steps_per_second(step, actions, steps_per_call, seconds, finish=lambda: None):
    """The best of three measurements, each a third of the time."""
    best, actions = 0.0, cycle(actions)
    for _ in range(200):
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
    game = SnakesGame(SNAKES_3V3, torch.arange(args.boards), 0, device)
    game.reset()
    actions = torch.randint(0, 4, (64, args.boards, 6), generator=torch.Generator().manual_seed(0)).to(device)
    chosen = torch.zeros_like(actions[0])

    def advance():
        done = game.step(chosen)
        game.restart(done.ended)

    advance = Recording(advance, device) if device.type == "cuda" else advance

    def step(action):
        chosen.copy_(action)
        advance()

    finish = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    return steps_per_second(step, actions.unbind(), args.boards, args.seconds, finish)


def plain(args):
    game, numbers = PlainSnakesGame(), random.Random(0)
    game.reset()
    actions = [[numbers.randrange(4) for _ in range(6)] for _ in range(4096)]

    def step(action):
        if game.step(action)[2]:
            game.reset()

    return steps_per_second(step, actions, 1, args.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="measuring time for each of the two")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    ours, theirs = batched(args), plain(args)
    where = f"{args.device}, {args.threads} threads" if args.device == "cpu" else args.device
    print(f"batched: {ours:12,.0f} board steps/s  ({args.boards} boards, {where})")
    print(f"plain:   {theirs:12,.0f} board steps/s  (one board, plain Python)")
    print(f"ratio:   {ours / theirs:12.1f}")


if __name__ == "__main__":
    main()

"""Steps per second of the batched 3v3 Snakes game beside a plain-Python one, both with random actions.

python benchmarks/snakes3v3_game.py [--boards 1024] [--processes 2] [--seconds 3]
python benchmarks/snakes3v3_game.py --device cuda --boards 4096,16384,65536

A step moves all six snakes of a board; games that end begin anew. The boards are shared out over the processes, which
have one thread each. On a GPU a step is recorded once and then replayed.
"""

import argparse
import random
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle
from multiprocessing import get_context

import torch
from plain_snakes3v3 import PlainSnakesGame

from lockstep.compute.graphs import Recording
from lockstep.workloads.snakes3v3.engine.game import SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3

_ROUNDS = 3


def steps_per_second(step, actions, steps_per_call, seconds, start=None, finish=lambda: None):
    """The best of three measurements, each a third of the time; `start`: when to begin, by the clock of all."""
    best, actions = 0.0, cycle(actions)
    for _ in range(200):
        step(next(actions))
    finish()
    if start is not None:
        time.sleep(max(start - time.time(), 0.0))
    for _ in range(_ROUNDS):
        calls, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds / _ROUNDS:
            for _ in range(20):
                step(next(actions))
            calls += 20
            finish()
        best = max(best, calls * steps_per_call / (time.perf_counter() - begun))
    return best


def batched(first, boards, device_name, seconds, start=None):
    torch.set_num_threads(1)
    device = torch.device(device_name)
    game = SnakesGame(SNAKES_3V3, torch.arange(first, first + boards), 0, device)
    game.reset()
    actions = torch.randint(0, 4, (64, boards, 6), generator=torch.Generator().manual_seed(0)).to(device)
    chosen = torch.zeros_like(actions[0])

    def advance():
        done = game.step(chosen)
        game.restart(done.ended)

    advance = Recording(advance, device) if device.type == "cuda" else advance

    def step(action):
        chosen.copy_(action)
        advance()

    finish = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    return steps_per_second(step, actions.unbind(), boards, seconds, start, finish)


def on_processes(boards, processes, device_name, seconds):
    """All of them together, measuring at the same time."""
    if processes == 1:
        return batched(0, boards, device_name, seconds)
    share = boards // processes
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        start = time.time() + 10.0
        parts = [pool.submit(batched, n * share, share, device_name, seconds, start) for n in range(processes)]
        return sum(part.result() for part in parts)


def plain(seconds):
    game, numbers = PlainSnakesGame(), random.Random(0)
    game.reset()
    actions = [[numbers.randrange(4) for _ in range(6)] for _ in range(4096)]

    def step(action):
        if game.step(action)[2]:
            game.reset()

    return steps_per_second(step, actions, 1, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", default="1024", help="numbers of boards, one after the other, such as 4096,16384")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="measuring time for each figure")
    args = parser.parse_args()
    theirs = plain(args.seconds)
    print(f"plain:   {theirs:14,.0f} board steps/s  (one board, plain Python)", flush=True)
    for boards in map(int, args.boards.split(",")):
        ours = on_processes(boards, args.processes, args.device, args.seconds)
        where = args.device if args.device != "cpu" else f"cpu, {args.processes} process(es)"
        speed = f"{ours:14,.0f} board steps/s  {ours / theirs:8.1f} times"
        print(f"batched: {speed}  ({boards:,} boards, {where})", flush=True)


if __name__ == "__main__":
    main()

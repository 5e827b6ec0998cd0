"""Steps per second of control's environments: in one process, in several, and in threads of one.

python benchmarks/control_env.py [--task walker-walk] [--envs 16] [--workers 2,4,8] [--seconds 3]
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

os.environ.setdefault("MUJOCO_GL", "disabled")

import numpy as np

from lockstep.envs.hosting import Host, Simulators, Sizes
from lockstep.envs.worker_pool import shared_pool
from lockstep.workloads.control import names

OPENER = "lockstep.workloads.control.simulators:open_simulation"


def steps_per_second(step, actions, seconds):
    """The best of three measurements, each a third of the time."""
    best = 0.0
    for _ in range(3):
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / 3:
            step(actions[calls % len(actions)])
            calls += 1
        best = max(best, calls * actions.shape[1] / (time.perf_counter() - start))
    return best


class Threads:
    """Environments shared out over threads of this process."""

    def __init__(self, count, simulators):
        edges = [len(simulators.names) * i // count for i in range(count + 1)]
        self._parts = [slice(a, b) for a, b in pairwise(edges)]
        self._hosts = [Host(simulators.part(part)) for part in self._parts]
        self._pool = ThreadPoolExecutor(count)

    def reset(self, seeds):
        """Begin an episode everywhere."""
        for host, part in zip(self._hosts, self._parts, strict=True):
            host.reset(seeds[part])

    def step(self, actions, seeds, last):
        """Act everywhere."""

        def one(number):
            part = self._parts[number]
            return self._hosts[number].step(actions[part], seeds[part], last[part])

        return list(self._pool.map(one, range(len(self._parts))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="walker-walk")
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--workers", default="2,4,8")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    observation, action = names.SUITE[options.task]
    tasks, dims = (options.task,) * options.envs, (action,) * options.envs
    simulators = Simulators(OPENER, tasks, dims, Sizes(observation, action))
    seeds, never = np.arange(options.envs, dtype=np.uint32), np.zeros(options.envs, np.bool_)
    actions = np.random.RandomState(0).uniform(-1, 1, (64, options.envs, action)).astype(np.float32)
    hosts = {"one process": Host(simulators)}
    for count in map(int, options.workers.split(",")):
        hosts[f"{count} processes"] = shared_pool().host(count, simulators)
        hosts[f"{count} threads"] = Threads(count, simulators)
    print(f"{options.task}, {options.envs} environments, {os.cpu_count()} processors, agent steps/s:")
    for name, host in hosts.items():
        host.reset(seeds)
        speed = steps_per_second(lambda chosen, host=host: host.step(chosen, seeds, never), actions, options.seconds)
        print(f"  {name:14}{speed:10,.0f}", flush=True)


if __name__ == "__main__":
    main()

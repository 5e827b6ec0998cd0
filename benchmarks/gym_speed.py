"""Steps per second of PPO on Gymnasium environments, beside Stable-Baselines3 with the same settings, in one run.

python benchmarks/gym_speed.py --env CartPole-v1 --seconds 20 --rounds 3

Each program trains for a while in turns, so that a busy machine slows all of them alike; the table has the median of
each and the ratio to the best one of Stable-Baselines3's: both vector environments, on one and on two threads.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from functools import partial

SETTINGS = {"n_envs": 16, "n_steps": 128, "batch_size": 256, "n_epochs": 10, "learning_rate": 3e-4, "ent_coef": 0.0}
"""Of both programs; their networks are two perceptrons with two layers of 64 units and tanh."""
STEPS = SETTINGS["n_envs"] * SETTINGS["n_steps"]


def one_rank(env_id: str, seconds: float, threads: int, workers: int = 0) -> float:
    """Lockstep as `lockstep train gym --env-id ID --threads N --env-workers N` runs it.

    By default there are 2 threads on two cores, and as many workers if a step is slow enough to pay for them.
    """
    from lockstep.distributed.world import open_world

    with open_world("cpu", 600.0) as world:
        return trained(world, env_id, seconds, threads, workers)


def two_ranks(env_id: str, seconds: float) -> float:
    """The same with `--ranks 2`, a thread each."""
    from lockstep.distributed.pool import RankPool

    with RankPool(2) as pool:
        return pool.run(trained, env_id, seconds, 1, timeout=600)[0]


def trained(world, env_id: str, seconds: float, threads: int, workers: int = 0) -> float:
    """Steps per second of updates after the first two. Called by every rank."""
    from lockstep.run import arithmetic
    from lockstep.workloads import registry

    config = registry.load("gym").config(
        env_id=env_id, env_workers=workers, device="cpu", total_timesteps=10**9, threads=threads, **SETTINGS
    )
    # As a run does: lanes, threads, and how small matrix products are computed.
    world = world.with_lanes(config.effective_lanes, config.sync_on(world.device.type))
    arithmetic.fix(config.run, world)
    learner = registry.load("gym").build(config, world)
    for _ in range(2):
        learner.step()
    # The ranks end together, whose clock it may be.
    return _measured(learner.step, seconds, lambda over: bool(world.agree(int(over))))


def sb3(env_id: str, seconds: float, kind: str, threads: int) -> float:
    """Steps per second of whole updates after the first."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    torch.set_num_threads(threads)
    settings = dict(SETTINGS)
    kinds = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
    env = make_vec_env(env_id, n_envs=settings.pop("n_envs"), vec_env_cls=kinds[kind])
    model = PPO("MlpPolicy", env, device="cpu", **settings)
    model.learn(STEPS)
    return _measured(lambda: model.learn(STEPS, reset_num_timesteps=False), seconds, bool)


def _measured(update, seconds: float, agreed) -> float:
    done, start = 0, time.perf_counter()
    while not agreed(time.perf_counter() - start >= seconds):
        update()
        done += STEPS
    return done / (time.perf_counter() - start)


PROGRAMS = {
    "Lockstep, 1 thread": partial(one_rank, threads=1),
    "Lockstep, 1 thread, 2 workers": partial(one_rank, threads=1, workers=2),
    "Lockstep, 2 threads": partial(one_rank, threads=2),
    "Lockstep, two ranks": two_ranks,
    "SB3 DummyVecEnv, 1 thread": partial(sb3, kind="dummy", threads=1),
    "SB3 DummyVecEnv, 2 threads": partial(sb3, kind="dummy", threads=2),
    "SB3 SubprocVecEnv, 1 thread": partial(sb3, kind="subproc", threads=1),
    "SB3 SubprocVecEnv, 2 threads": partial(sb3, kind="subproc", threads=2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without", help="leave out the programs with this in their names, such as '2 threads'")
    parser.add_argument("--one", help="measure one program and print it (used for the processes of the rounds)")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(PROGRAMS[options.one](options.env, options.seconds)))
        return
    speeds: dict[str, list[float]] = {
        name: [] for name in PROGRAMS if not options.without or options.without not in name
    }
    for _ in range(options.rounds):
        for name, found in speeds.items():
            command = [sys.executable, __file__, "--env", options.env, "--seconds", str(options.seconds), "--one", name]
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(float(answer.stdout.strip().splitlines()[-1]))
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    best = max(speed for name, speed in medians.items() if name.startswith("SB3"))
    print(f"{options.env}: {SETTINGS}")
    for name, speed in medians.items():
        rounds = ", ".join(f"{found:,.0f}" for found in speeds[name])
        print(f"{name:30}{speed:10,.0f} steps/s  {speed / best:5.2f} x  ({rounds})")


if __name__ == "__main__":
    main()

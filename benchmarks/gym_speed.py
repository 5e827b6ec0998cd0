"""Steps per second of PPO on Gymnasium environments, beside Stable-Baselines3 with the same settings, in one run.

python benchmarks/gym_speed.py --env CartPole-v1 --seconds 20 --rounds 3

Each program trains for a while in turns, so that a busy machine slows all of them alike; the table has the median of
each and the ratio to the better one of Stable-Baselines3's two vector environments.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

SETTINGS = {"n_envs": 16, "n_steps": 128, "batch_size": 256, "n_epochs": 10, "learning_rate": 3e-4, "ent_coef": 0.0}


def lockstep_speed(env_id: str, seconds: float, workers: int) -> float:
    """Steps per second of updates after the first two."""
    from lockstep.distributed.world import open_world
    from lockstep.run import arithmetic
    from lockstep.workloads import registry

    config = registry.load("gym").config(
        env_id=env_id, env_workers=workers, device="cpu", total_timesteps=10**9, threads=workers, **SETTINGS
    )
    with open_world("cpu", 600.0) as world:
        # As a run does: threads, and how small matrix products are computed.
        arithmetic.fix(config.run, world)
        learner = registry.load("gym").build(config, world)
        for _ in range(2):
            learner.step()
        return _measured(lambda: learner.step(), SETTINGS["n_envs"] * SETTINGS["n_steps"], seconds)


def sb3_speed(env_id: str, seconds: float, kind: str) -> float:
    """Steps per second of whole updates after the first."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    torch.set_num_threads(2)
    settings = dict(SETTINGS)
    count = settings.pop("n_envs")
    env = make_vec_env(env_id, n_envs=count, vec_env_cls=SubprocVecEnv if kind == "subproc" else DummyVecEnv)
    model = PPO("MlpPolicy", env, device="cpu", **settings)
    size = count * settings["n_steps"]
    model.learn(size)

    def update() -> None:
        model.learn(size, reset_num_timesteps=False)

    return _measured(update, size, seconds)


def _measured(update, steps: int, seconds: float) -> float:
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        update()
        done += steps
    return done / (time.perf_counter() - start)


PROGRAMS = {
    "lockstep, in one process": lambda env, seconds: lockstep_speed(env, seconds, 1),
    "lockstep, two workers": lambda env, seconds: lockstep_speed(env, seconds, 2),
    "SB3 DummyVecEnv": lambda env, seconds: sb3_speed(env, seconds, "dummy"),
    "SB3 SubprocVecEnv": lambda env, seconds: sb3_speed(env, seconds, "subproc"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help="measure one program and print it (used for the processes of the rounds)")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(PROGRAMS[options.one](options.env, options.seconds)))
        return
    speeds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
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
        print(f"{name:26}{speed:10,.0f} steps/s  {speed / best:5.2f} x  ({rounds})")


if __name__ == "__main__":
    main()

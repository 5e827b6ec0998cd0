"""Returns of PPO on Gymnasium environments after training, beside Stable-Baselines3 with the same settings.

python benchmarks/gym_scores.py --env HalfCheetah-v5 Hopper-v5 --seeds 3 --steps 1000000 --at-once 2

Both programs train on one thread with the settings below, observations and rewards normalised in both, and play 20
episodes with the most likely actions at the end. The same seed means nothing across programs; the table shows each.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

SETTINGS = {
    "n_envs": 8,
    "n_steps": 256,
    "batch_size": 256,
    "n_epochs": 10,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}
EPISODES = 20


def lockstep_score(env_id: str, seed: int, steps: int) -> float:
    """The mean return of a policy that Lockstep trained."""
    import lockstep

    with tempfile.TemporaryDirectory() as folder:
        run = lockstep.train(
            "gym",
            env_id=env_id,
            seed=seed,
            total_timesteps=steps,
            device="cpu",
            threads=1,
            env_workers=1,
            normalize_observation=True,
            normalize_reward=True,
            # The loss has half the squared error, Stable-Baselines3's the whole.
            vf_coef=2 * SETTINGS["vf_coef"],
            eval_every=0,
            quiet=True,
            runs_dir=folder,
            **{name: value for name, value in SETTINGS.items() if name != "vf_coef"},
        )
        return float(lockstep.evaluate(run, episodes=EPISODES)["return_mean"])


def sb3_score(env_id: str, seed: int, steps: int) -> float:
    """The mean return of a policy that Stable-Baselines3 trained."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = dict(SETTINGS)
    env = VecNormalize(make_vec_env(env_id, n_envs=settings.pop("n_envs"), seed=seed), gamma=settings["gamma"])
    model = PPO("MlpPolicy", env, device="cpu", seed=seed, **settings)
    model.learn(steps)
    env.training, env.norm_reward = False, False
    return float(evaluate_policy(model, env, n_eval_episodes=EPISODES)[0])


PROGRAMS = {"lockstep": lockstep_score, "sb3": sb3_score}


def _in_own_process(program: str, env_id: str, seed: int, steps: int) -> float:
    command = [sys.executable, __file__, "--env", env_id, "--steps", str(steps), "--one", program, str(seed)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(f"{program} on {env_id}, seed {seed}: {answer.stderr.strip()[-2000:]}")
    score: float = json.loads(answer.stdout.strip().splitlines()[-1])
    print(f"{env_id} {program} seed {seed}: {score:,.1f}", file=sys.stderr, flush=True)
    return score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", nargs="+", default=["HalfCheetah-v5", "Hopper-v5"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--at-once", type=int, default=2, help="trainings that run at the same time, one thread each")
    parser.add_argument("--one", nargs=2, metavar=("PROGRAM", "SEED"), help="train once and print the score")
    options = parser.parse_args()
    if options.one:
        program, seed = options.one
        print(json.dumps(PROGRAMS[program](options.env[0], int(seed), options.steps)))
        return
    jobs = [
        (program, env_id, seed, options.steps)
        for env_id in options.env
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for program in PROGRAMS
    ]
    with ThreadPoolExecutor(options.at_once) as pool:
        scores = dict(zip(jobs, pool.map(lambda job: _in_own_process(*job), jobs), strict=True))
    print(f"{options.steps:,} steps, {SETTINGS}")
    for env_id in options.env:
        for program in PROGRAMS:
            found = [score for job, score in scores.items() if job[:2] == (program, env_id)]
            each = ", ".join(f"{score:,.0f}" for score in found)
            print(f"{env_id:18}{program:10}{statistics.mean(found):10,.0f}  ({each})")


if __name__ == "__main__":
    main()

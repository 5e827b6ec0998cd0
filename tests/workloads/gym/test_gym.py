"""Environments from outside: ids, classes, files, functions; one result on any number of ranks; resume."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

import lockstep
from lockstep.cli.main import main
from lockstep.distributed.world import World
from lockstep.envs.gym_simulation import step_seconds
from lockstep.errors import UserError
from lockstep.launch import given
from lockstep.storage.weights import load_weights
from lockstep.workloads.gym.problem import evaluate_random
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single import GymEnv, workers_for
from lockstep.workloads.gym.single_facts import facts_of

SMALL = {"preset": "debug", "max_updates": 3, "threads": 1, "eval_every": 0, "quiet": True}


def environments(count=3, **settings):
    return GymEnv(facts_of(GymSettings(**settings)), torch.arange(count), 1)


def same(one, other):
    ours, theirs = load_weights(one.final)[0], load_weights(other.final)[0]
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_a_registered_environment_plays_its_own_episodes():
    env = environments(env_id="CartPole-v1")
    own = gymnasium.make("CartPole-v1")
    first = env.reset()
    seed = int(env._seeds(env._episode)[1])
    assert np.array_equal(own.reset(seed=seed)[0], first[1].numpy())
    done = env.step(torch.tensor([0, 1, 0]))
    observation, reward, *_ = own.step(1)
    assert np.array_equal(observation, done.observation[1].numpy()) and float(done.reward[1]) == reward


def test_images_arrive_as_bytes_with_channels_first():
    env = environments(env_id="gym_envs:Pictures")
    seen = env.reset()
    assert seen.dtype == torch.uint8 and tuple(seen.shape) == (3, 3, 16, 16)
    done = env.step(torch.zeros(3, dtype=torch.int64))
    assert done.observation.dtype == torch.uint8 and tuple(done.final_observation.shape) == (3, 3, 16, 16)


def test_frames_are_stacked_and_actions_repeated():
    env = environments(env_id="gym_envs:Good", frame_stack=3, frame_skip=2)
    assert tuple(env.reset().shape) == (3, 6)
    done = env.step(torch.ones(3, dtype=torch.int64))
    # Two steps up from s: rewards 0.1 (s + 1) and 0.1 (s + 2).
    start = done.observation[:, -2] - 2
    assert torch.allclose(done.reward, 0.1 * (2 * start + 3))


def test_a_time_limit_truncates_and_the_last_observation_is_kept():
    env = environments(env_id="gym_envs:Good", max_episode_steps=2)
    env.reset()
    env.step(torch.zeros(3, dtype=torch.int64))
    done = env.step(torch.zeros(3, dtype=torch.int64))
    assert done.truncated.all() and not done.terminated.any()
    assert (done.final_observation[:, 1] == 2).all() and (done.observation[:, 1] == 0).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Good", "replay"), ("SavesState", "state"), ("Unseeded", "restart"), ("CarriesOver", "replay")],
)
def test_how_an_environment_resumes_is_found_out(name, expected):
    facts = facts_of(GymSettings(env_id=f"gym_envs:{name}"))
    assert facts.resume_by == expected and facts.spec.fresh == (name == "CarriesOver")


@pytest.mark.parametrize("name", ["Good", "SavesState", "CarriesOver"])
def test_a_restored_environment_continues_with_the_same_bits(name):
    env, later = environments(env_id=f"gym_envs:{name}"), environments(env_id=f"gym_envs:{name}")
    env.reset()
    for step in range(37):
        env.step(torch.tensor([step % 2, 1, 0]))
    assert torch.equal(later.load(env.state()), torch.from_numpy(env._observation))
    for step in range(30):
        one, other = (each.step(torch.tensor([step % 2, 1, 1])) for each in (env, later))
        assert torch.equal(one.observation, other.observation) and torch.equal(one.reward, other.reward)


@pytest.mark.parametrize("name", ["SavesState", "Snapshots"])
def test_a_restored_environment_keeps_its_stack_of_frames_and_its_time_limit(name):
    settings = {"env_id": f"gym_envs:{name}", "frame_stack": 3, "max_episode_steps": 6}
    env, later = environments(**settings), environments(**settings)
    env.reset()
    for _ in range(4):
        env.step(torch.ones(3, dtype=torch.int64))
    later.load(env.state())
    for _ in range(4):
        one, other = (each.step(torch.zeros(3, dtype=torch.int64)) for each in (env, later))
        assert torch.equal(one.observation, other.observation) and torch.equal(one.truncated, other.truncated)


def test_a_state_that_cannot_be_saved_is_refused_in_one_line():
    with pytest.raises(UserError, match="resume_by state: CartPole-v1 cannot save its state; give it `state`"):
        facts_of(GymSettings(env_id="CartPole-v1", resume_by="state"))


def test_a_forbidden_action_is_never_taken(tmp_path):
    # The environment itself asserts that every action it gets is allowed.
    run = lockstep.train("gym_envs:Masked", runs_dir=tmp_path, **SMALL)
    assert run.status.step == 3 * 256


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Hopper-v5"])  # by replay, and by MuJoCo's state
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, env_id):
    if env_id == "Hopper-v5":
        pytest.importorskip("mujoco")
    settings = SMALL | {"sync": "exact", "runs_dir": tmp_path, "env_id": env_id}
    whole = lockstep.train("gym", **settings)
    lockstep.train("gym", **(settings | {"max_updates": 2, "run_name": "stopped"}))
    resumed = lockstep.train("gym", run_name="stopped", **settings)
    assert same(whole, resumed)


@pytest.mark.slow  # tests/golden has one and three ranks in a pool
def test_one_two_and_three_ranks_train_the_same_model_and_a_resumed_run_too(tmp_path):
    settings = SMALL | {"sync": "exact", "runs_dir": tmp_path}
    one = lockstep.train("gym", env_id="CartPole-v1", **settings)
    several = lockstep.train("gym", env_id="CartPole-v1", ranks=3, **settings)
    stopped = {**settings, "run_name": "stopped"}
    lockstep.train("gym", env_id="CartPole-v1", ranks=2, **(stopped | {"max_updates": 2}))
    resumed = lockstep.train("gym", env_id="CartPole-v1", **stopped)
    assert same(one, several) and same(one, resumed)


def test_a_class_a_file_a_module_and_a_function_are_the_same_run(tmp_path):
    import gym_envs

    settings = SMALL | {"runs_dir": tmp_path}
    by_class = lockstep.train(gym_envs.Good, **settings)
    by_module = lockstep.train("gym_envs:Good", **settings)
    by_file = lockstep.train(f"{gym_envs.__file__}:Good", **settings)
    by_function = lockstep.train(lambda: gym_envs.Good(), env_workers=2, **settings)
    assert same(by_class, by_module) and same(by_class, by_file) and same(by_class, by_function)
    assert by_class.config["env_id"] == "gym_envs:Good"


@pytest.mark.parametrize("limit", [4, 6])
def test_workers_use_a_function_as_it_was_defined_last(limit):
    import gym_envs

    source = given.give(lambda: gym_envs.Good(limit), "made")
    env = GymEnv(facts_of(GymSettings(env_id=source)), torch.arange(2), 1, workers=2)
    env.reset()
    ends = [bool(env.step(torch.zeros(2, dtype=torch.int64)).truncated.all()) for _ in range(limit)]
    assert ends == [False] * (limit - 1) + [True]


def test_arguments_reach_the_environment(tmp_path):
    facts = facts_of(GymSettings(env_id="gym_envs:Good", env_kwargs='{"limit": 5}'))
    env = GymEnv(facts, torch.arange(1), 1)
    env.reset()
    ends = [bool(env.step(torch.zeros(1, dtype=torch.int64)).truncated) for _ in range(5)]
    assert ends == [False] * 4 + [True]
    with pytest.raises(UserError, match="env_kwargs '\\{bad': not JSON"):
        GymSettings(env_kwargs="{bad")


def test_a_new_folder_trains_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "maze"]) == 0
    monkeypatch.chdir(tmp_path / "maze")
    assert main(["train", "./maze.py", "--preset", "debug", "--max-updates", "2", "--threads", "1"]) == 0
    assert main(["new", "Maze-1"]) == 2
    monkeypatch.chdir(tmp_path)
    assert main(["new", "maze"]) == 2
    assert "already exists" in capsys.readouterr().err


def test_a_policy_acts_on_one_observation_or_a_batch(tmp_path):
    run = lockstep.train("gym", env_id="Pendulum-v1", runs_dir=tmp_path, **SMALL)
    policy = lockstep.load(run)
    env = gymnasium.make("Pendulum-v1")
    observation, _ = env.reset(seed=1)
    action = policy.act(observation)
    assert env.action_space.contains(action)
    several = policy.act(np.stack([observation, observation]))
    assert several.shape == (2, 1) and np.allclose(several[0], action)


def test_an_exported_policy_needs_torch_alone(tmp_path):
    run = lockstep.train("gym", env_id="CartPole-v1", runs_dir=tmp_path, **SMALL)
    file = tmp_path / "policy.pt2"
    assert main(["export", str(run.path), "--format", "torch", "--output", str(file)]) == 0
    code = f"import sys, torch; print(torch.export.load({str(file)!r}).module()(torch.ones(3, 4))[0].tolist())"
    code += "; assert 'lockstep' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    probabilities = lockstep.load(run).probabilities(np.ones((3, 4), np.float32))
    assert np.allclose(torch.tensor(json.loads(done.stdout)).softmax(-1).numpy(), probabilities, atol=1e-6)


def test_cheap_environments_are_stepped_in_the_rank_itself_and_slow_ones_by_workers(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    settings = GymSettings(env_id="CartPole-v1")
    measured = facts_of(settings)
    assert 0 < measured.step_seconds < 1
    # 16 steps of 10 microseconds: two workers would save 80, and being asked costs them more. Of 1 ms they save 8.
    cheap, slow = (replace(measured, step_seconds=seconds) for seconds in (1e-5, 1e-3))
    assert (workers_for(settings, cheap, 16), workers_for(settings, slow, 16)) == (1, 2)
    assert workers_for(GymSettings(env_id="CartPole-v1", env_workers=3), cheap, 16) == 3


def test_a_step_that_fails_when_it_is_timed_counts_as_slow():
    env = gymnasium.make("CartPole-v1")
    env.unwrapped.step = lambda action: 1 / 0
    assert step_seconds(env) == math.inf


@pytest.mark.parametrize(("source", "room"), [("gym_envs:Endless", "single"), ("relay:Endless", "agents")])
def test_an_evaluation_cuts_off_episodes_that_nothing_limits(source, room, monkeypatch):
    if room == "agents":
        pytest.importorskip("pettingzoo")
    monkeypatch.setattr(f"lockstep.workloads.gym.{room}.LONGEST_TEST", 24)
    assert evaluate_random(GymSettings(env_id=source, env_workers=1), World(), 2, seed=1).lengths == [24, 24]
    limited = GymSettings(env_id=source, env_workers=1, max_episode_steps=7)
    assert evaluate_random(limited, World(), 2, seed=1).lengths == [7, 7]


def test_a_plan_says_that_no_time_limit_is_known():
    endless = facts_of(GymSettings(env_id="gym_envs:Endless"))
    assert "no known time limit (evaluations end after 10,000 steps" in endless.summary()
    assert facts_of(GymSettings(env_id="CartPole-v1")).summary().endswith("at most 500 steps")

"""PettingZoo's parallel environments: rows worked out by hand, resumes, the same bits on any number of ranks."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.envs.gym_spaces import _shrunk
from lockstep.envs.parallel_simulation import ParallelSimulation, ParallelSpec
from lockstep.errors import RunFailed, UserError
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads import registry
from lockstep.workloads.gym.agents import AgentsEnv
from lockstep.workloads.gym.agents_facts import agents_facts
from lockstep.workloads.gym.fitting import step_bytes
from lockstep.workloads.gym.problem import evaluate_random
from lockstep.workloads.gym.settings import GymSettings

FILE = Path(__file__).with_name("relay.py")


def settings(name, **changes):
    return GymSettings(env_id=f"{FILE}:{name}", env_workers=1, **changes)


def envs(name, count=2, team_reward=False, workers=1, **changes):
    return AgentsEnv(agents_facts(settings(name, **changes)), torch.arange(count), 5, workers, team_reward=team_reward)


def config(name, preset="debug", **changes):
    return registry.load("gym").preset(preset, algorithm="maddpg").replace(env_id=f"{FILE}:{name}", **changes)


def test_agents_leave_one_after_another_and_the_last_one_ends_the_episode():
    simulation = ParallelSimulation(ParallelSpec(f"{FILE}:Relay"))
    assert simulation.reset(1007).reshape(3, 3).tolist() == [[0, 7, 0], [1, 7, 0], [2, 7, 0]]
    first = simulation.step(np.array([1, 2, 0], np.float32))
    # Rewards, terminations, truncations, and who took part.
    assert first.agents.tolist() == [[1, 12, 20], [1, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert first.reward == 33 and not first.terminated and not first.truncated
    assert first.observation.reshape(3, 3).tolist() == [[0, 7, 1], [1, 7, 1], [2, 7, 1]]
    assert first.following.reshape(3, 3).tolist() == [[0, 0, 0], [1, 7, 1], [2, 7, 1]], "a has left: zeros"
    second = simulation.step(np.array([2, 2, 2], np.float32))
    assert second.agents.tolist() == [[0, 12, 22], [1, 0, 0], [0, 0, 0], [0, 1, 1]]
    third = simulation.step(np.array([2, 0, 0], np.float32))
    assert third.agents.tolist() == [[0, 10, 20], [1, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert not third.truncated and third.following.reshape(3, 3).tolist() == [[0, 0, 0], [0, 0, 0], [2, 7, 3]]
    last = simulation.step(np.array([2, 0, 1], np.float32))
    assert last.agents.tolist() == [[0, 0, 21], [1, 1, 0], [0, 0, 1], [0, 0, 1]]
    assert last.truncated and not last.terminated and last.following is None


def test_a_batch_resets_in_the_same_step_and_keeps_the_last_observation():
    env = envs("Relay")
    names = env.reset()[:, 0, 1].tolist()
    for _ in range(4):
        done = env.step(torch.ones(2, 3))
    assert done.final_observation[:, 2].tolist() == [[2, name, 4] for name in names]
    assert done.observation[:, :, 2].eq(0).all() and done.observation[0, 0, 1] != names[0], "the next episode"
    assert (
        done.truncated.tolist() == [[False, False, True]] * 2 and done.terminated.tolist() == [[True, True, False]] * 2
    )
    assert done.valid.tolist() == [[False, False, True]] * 2 and env.episode.tolist() == [1, 1]
    whole = envs("Relay", team_reward=True)
    whole.reset()
    done = whole.step(torch.ones(2, 3))
    assert done.reward.tolist() == [33, 33] and done.terminated.shape == (2,)


@pytest.mark.parametrize("resume_by", ["replay", "restart"])
def test_workers_give_the_same_and_a_state_is_taken_up(resume_by):
    here, there = envs("Relay", 3, resume_by=resume_by), envs("Relay", 3, workers=2, resume_by=resume_by)
    assert torch.equal(here.reset(), there.reset())
    for number in range(6):
        action = torch.full((3, 3), float(number % 3))
        one, other = here.step(action), there.step(action)
        for name in ("observation", "reward", "terminated", "truncated", "valid", "final_observation"):
            assert torch.equal(getattr(one, name), getattr(other, name))
    later = envs("Relay", 3, resume_by=resume_by)
    seen = later.load(here.state())
    if resume_by == "restart":
        assert later.episode.tolist() == [2, 2, 2], "the unfinished episodes are lost"
        return
    assert torch.equal(seen, one.observation)
    for _ in range(3):
        one, other = (each.step(torch.ones(3, 3)) for each in (here, later))
        assert torch.equal(one.reward, other.reward) and torch.equal(one.observation, other.observation)


def test_continuous_actions_are_scaled_to_each_agents_bounds():
    env = envs("Aiming")
    wanted = env.reset()[:, :, 2]
    # -1 and 1 are the bounds 0 and 4, and 0 is their middle.
    done = env.step(torch.tensor([[[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]] * 2))
    torch.testing.assert_close(done.reward, -(torch.tensor([0.0, 2.0, 4.0]) - wanted).abs())
    later = envs("Aiming")
    assert torch.equal(later.load(env.state()), done.observation)


def test_settings_for_discrete_actions_are_refused_for_continuous_ones():
    gym = registry.load("gym")
    assert "3 agents, observation 3, 2 continuous actions each" in gym.fit(config("Aiming"), ())[1][0]
    with pytest.raises(UserError, match=r"remember vector: is for discrete actions, and those of .*Aiming are cont"):
        gym.fit(config("Aiming", remember="vector"), ("remember",))


def test_a_time_limit_of_the_settings_cuts_all_agents_off():
    env = envs("Relay", max_episode_steps=2)
    env.reset()
    env.step(torch.ones(2, 3))
    done = env.step(torch.ones(2, 3))
    assert done.truncated.tolist() == [[False, True, True]] * 2 and env.episode.tolist() == [1, 1]


def test_images_are_shrunk_to_means_of_blocks():
    image = np.arange(24, dtype=np.uint8).reshape(1, 4, 6)
    # The first block is 0, 1, 6, 7; the fifth column and row would be incomplete blocks.
    assert _shrunk(image, 2).tolist() == [[[4, 6, 8], [16, 18, 20]]] and _shrunk(image, 1) is image
    assert _shrunk(image, 3).tolist() == [[[7, 10]]]
    facts = agents_facts(settings("Pictures", shrink_images=2))
    assert facts.observation_shape == (3, 3, 8, 12) and step_bytes(3, facts.rows.each, half=True) == 2 * 3 * 3 * 8 * 12


def hash_after(world, text, updates, first=None):
    """Train; returns the hash of the weights. Called by every rank."""
    learner = open_learner(world, "gym", text)
    for _ in range(updates):
        learner.step()
    return weights_hash(dict(learner.model.state_dict()))


@pytest.mark.parametrize("name", ["Relay", "Pictures", "Aiming"])
def test_exact_mode_gives_the_same_bits_on_one_and_two_ranks(ranks, name):
    text = to_yaml(config(name, sync="exact", threads=1, device="cpu", lanes=4, n_step=2))
    answers = {count: ranks.run(hash_after, text, 4, ranks=count) for count in (1, 2)}
    assert len({answer for group in answers.values() for answer in group}) == 1


def test_a_resumed_run_ends_in_the_same_bits():
    text = to_yaml(config("Relay", sync="exact", threads=1, device="cpu"))
    whole = open_learner(World(), "gym", text)
    for _ in range(3):
        whole.step()
    later = open_learner(World(), "gym", text)
    snapshot = whole.state()
    later.load(replace(snapshot, lanes={k: {n: t.clone() for n, t in v.items()} for k, v in snapshot.lanes.items()}))
    for learner in (whole, later):
        learner.step(), learner.step()
    assert weights_hash(dict(whole.model.state_dict())) == weights_hash(dict(later.model.state_dict()))


def test_agents_learn_what_they_are_paid_for():
    learner = open_learner(
        World(),
        "gym",
        to_yaml(
            config("Steady", device="cpu", threads=1, a_lr=3e-3, c_lr=3e-3, epsilon_speed=0.999, total_timesteps=20_000)
        ),
    )
    for _ in range(60):
        learner.step()
    # At random 3 agents earn 10 of 30 points in an episode.
    assert np.mean(learner.evaluate(8, seed=1).returns) > 25
    assert 5 < np.mean(evaluate_random(settings("Steady"), World(), 8, seed=1).returns) < 15


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Unequal", "b has another observation_space than a; all agents share one network"),
        ("Switches", "several agents are supported with Discrete actions"),
        ("Nobody", "its possible_agents is empty"),
    ],
)
def test_what_cannot_be_learned_together_is_refused_in_one_line(name, message):
    with pytest.raises(UserError, match=message) as refused:
        registry.load("gym").fit(config(name), ())
    assert "\n" not in str(refused.value)


def test_the_algorithm_must_suit_the_number_of_agents():
    gym = registry.load("gym")
    with pytest.raises(UserError, match=r"algorithm ppo: learns one agent, and .*Relay has several; choose .*maddpg"):
        gym.fit(gym.preset("debug").replace(env_id=f"{FILE}:Relay"), ())


def test_how_an_environment_resumes_is_found_out_and_exact_refuses_new_episodes():
    gym = registry.load("gym")
    fitted, notes = gym.fit(config("Relay"), ())
    assert (
        fitted.workload.resume_by == "replay" and "3 agents, observation 3, 3 actions each, at most 4 steps" in notes[0]
    )
    fitted, notes = gym.fit(config("Forgetful", sync="exact"), ())
    assert fitted.workload.resume_by == "restart" and "the same seed and actions give other results" in notes[1]
    learner = open_learner(World(), "gym", to_yaml(fitted))
    with pytest.raises(UserError, match="cannot be resumed with sync exact"):
        learner.load(learner.state())


def test_a_replay_buffer_of_large_images_is_made_smaller_unless_its_size_was_asked_for(monkeypatch):
    monkeypatch.setattr("lockstep.workloads.gym.fitting._LARGEST_BUFFER", 500 * 2 * 3 * 3 * 16 * 24)
    gym, chosen = registry.load("gym"), config("Pictures")
    fitted, notes = gym.fit(chosen, ())
    assert fitted.algorithm.buffer_size == 496, "a whole number of steps of 8 environments"
    assert "buffer_size 496 instead of 2,048" in notes[-1]
    assert gym.fit(chosen, ("buffer_size",))[0].algorithm.buffer_size == 2048


def test_an_error_names_the_environment_and_the_step():
    env = envs("Failing", resume_by="restart")
    env.reset()
    with pytest.raises(RunFailed, match=r"environment 0: failed in step \(RuntimeError: the baton fell, .*relay.py:"):
        for _ in range(10):
            env.step(torch.zeros(2, 3))


def test_a_reset_that_does_not_return_is_told_before_a_run():
    with pytest.raises(UserError, match=r"relay.py:Sleeping: did not return for 1 s when it was tried; correct it, or"):
        agents_facts(settings("Sleeping", env_timeout=1))


@pytest.mark.slow
def test_pistonball_trains_as_it_is():
    pytest.importorskip("pymunk", reason="pistonball needs pymunk and pygame")
    gym = registry.load("gym")
    changes = {"n_envs": 2, "n_steps": 4, "batch_size": 4, "buffer_size": 64, "total_timesteps": 64, "lanes": 2}
    chosen = gym.preset("debug", algorithm="maddpg").replace(
        env_id="pettingzoo.butterfly.pistonball_v6:parallel_env", env_kwargs='{"continuous": false}', **changes
    )
    fitted, notes = gym.fit(chosen, changes)
    assert "20 agents, observation 3x76x20 bytes, 3 actions each, images 6 times smaller" in notes[0]
    learner = open_learner(World(), "gym", to_yaml(fitted))
    for _ in range(4):
        stats = learner.step()
    assert all(np.isfinite(stat.mean) for part in stats for stat in part.values() if stat.count)


@pytest.mark.slow
@pytest.mark.parametrize("continuous", [False, True])
def test_simple_spread_is_learned_beyond_random(continuous):
    pytest.importorskip("mpe2", reason="mpe2 is not installed")
    source, kwargs = "mpe2.simple_spread_v3:parallel_env", json.dumps({"continuous_actions": continuous})
    chosen = (
        registry.load("gym")
        .preset("base", algorithm="maddpg")
        .replace(env_id=source, env_kwargs=kwargs, total_timesteps=200_000, device="cpu", threads=2)
    )
    learner = open_learner(World(), "gym", to_yaml(chosen))
    while not learner.done():
        learner.step()
    random = np.mean(evaluate_random(GymSettings(env_id=source, env_kwargs=kwargs), World(), 100, seed=7).returns)
    assert np.mean(learner.evaluate(100, seed=7).returns) > random + 20

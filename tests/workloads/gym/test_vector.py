"""Gymnasium's vector environments: every way of resetting gives the transitions of single environments."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import RunFailed, UserError
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads import registry
from lockstep.workloads.gym.problem import gym_problem
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single import GymEnv
from lockstep.workloads.gym.single_facts import facts_of

FILE = Path(__file__).with_name("counting.py")
FIELDS = ("observation", "reward", "terminated", "truncated", "final_observation")


def envs(name, count=2, **changes):
    problem = gym_problem(GymSettings(env_id=f"{FILE}:{name}", env_workers=1, **changes), torch.device("cpu"))
    return problem.environments(torch.arange(count), 3)


def single_environments():
    facts = facts_of(GymSettings(env_id=f"{FILE}:Counting", resume_by="restart"))
    # Episodes follow from the one before and not from their seeds, so the environment must stay the same object.
    return GymEnv(replace(facts, spec=replace(facts.spec, fresh=False)), torch.arange(2), 3)


def config(name, **changes):
    return registry.load("gym").preset("debug").replace(env_id=f"{FILE}:{name}", device="cpu", threads=1, **changes)


def transitions(env, steps):
    """What one environment after another went through, without steps that took no action."""
    env.reset()
    seen, number = [], 0
    for _ in range(steps):
        # The same actions in the same steps that count, whether or not there are others between them.
        action = torch.tensor([number % 4] * env.count)
        done = env.step(action)
        if done.valid is None or bool(done.valid.all()):
            seen.append(done)
            number += 1
        else:
            assert not done.valid.any() and not done.terminated.any() and not done.truncated.any()
            assert done.reward.eq(0).all(), "a step without an action"
    return seen


@pytest.mark.parametrize("name", ["same_step", "disabled", "next_step", "processes"])
def test_each_way_of_resetting_gives_the_transitions_of_single_environments(name):
    expected = transitions(single_environments(), 16)
    # Episodes of 3 and 5 steps: 1 + 2 + 3, then 1 + 2 + 3 + 4 + 5.
    assert [float(done.reward[0]) for done in expected[:9]] == [1, 2, 3, 1, 2, 3, 4, 5, 1]
    assert [bool(done.terminated[0]) for done in expected[:9]] == [False, False, True] + [False] * 6
    assert [bool(done.truncated[0]) for done in expected[:9]] == [False] * 7 + [True, False]
    assert expected[7].final_observation[0].tolist() == [1, 5, 3], "episode 1, step 5, the eighth action"
    found = transitions(envs(name), 20)[:16] if name == "next_step" else transitions(envs(name), 16)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        for field in FIELDS:
            mine, theirs = getattr(one, field), getattr(other, field)
            if field == "observation" and name == "next_step" and bool((other.terminated | other.truncated).any()):
                # What a step without an action is taken on: the last observation once more.
                theirs = other.final_observation
            assert torch.equal(mine, theirs), (number, field)


def test_a_batch_of_its_own_with_one_seed_is_taken_up_from_its_state():
    env, later = envs("Native", 3), envs("Native", 3)
    first = env.reset()
    assert torch.equal(first, later.reset()), "the seed decides"
    for _ in range(4):
        done = env.step(torch.ones(3))
    assert done.terminated.all()
    assert torch.equal(later.load(env.state()), done.observation)
    one, other = (each.step(torch.ones(3)) for each in (env, later))
    assert not other.valid.any() and torch.equal(one.observation, other.observation), "the reset is due"
    again = envs("next_step", 3)
    again.load(envs("next_step", 3).state() | {"episode": torch.tensor([4, 4, 4])})
    assert again.state()["episode"].tolist() == [5, 5, 5], "the unfinished episodes are lost"


def test_steps_without_an_action_are_not_counted_in_episodes():
    learner = open_learner(World(), "gym", to_yaml(config("next_step", n_envs=8, n_steps=12, batch_size=96)))
    (stats,) = learner.step()
    # 3 steps, a reset, 5 steps, a reset, 2 more steps: two episodes of each environment, with returns 6 and 15.
    assert stats["rollout/length_mean"].count == 16 and stats["rollout/length_mean"].mean == 4
    assert stats["rollout/return_mean"].mean == 10.5
    (stats,) = learner.step()
    # 1 step, a reset, 5 steps, a reset, 3 steps, a reset: 1 + 2 of them belong to the rollout before.
    assert stats["rollout/length_mean"].count == 24 and stats["rollout/return_mean"].mean == 9


def hash_after(world, text, updates):
    """Train; returns the hash of the weights. Called by every rank."""
    learner = open_learner(world, "gym", text)
    for _ in range(updates):
        learner.step()
    return weights_hash(dict(learner.model.state_dict()))


@pytest.mark.parametrize("name", ["next_step", "Native"])
def test_exact_mode_gives_the_same_bits_on_one_and_two_ranks(ranks, name):
    text = to_yaml(config(name, sync="exact", lanes=4))
    answers = {count: ranks.run(hash_after, text, 3, ranks=count) for count in (1, 2)}
    assert len({answer for group in answers.values() for answer in group}) == 1


def test_two_ranks_in_fast_mode_agree_with_one(ranks):
    text = to_yaml(config("guesses", normalize_advantage=True))
    one = open_learner(World(), "gym", text)
    for _ in range(2):
        one.step()
    two = ranks.run(weights_after, text, 2, ranks=2)[0]
    for name, weight in one.model.state_dict().items():
        torch.testing.assert_close(torch.tensor(two[name]), weight, rtol=1e-4, atol=1e-5)


def weights_after(world, text, updates):
    """Train; returns the weights. Called by every rank."""
    learner = open_learner(world, "gym", text)
    for _ in range(updates):
        learner.step()
    return {name: weight.tolist() for name, weight in learner.model.state_dict().items()}


def test_a_vector_environment_with_a_state_resumes_to_the_same_bits():
    text = to_yaml(config("Native", sync="exact"))
    whole, later = open_learner(World(), "gym", text), open_learner(World(), "gym", text)
    whole.step(), whole.step()
    later.load(whole.state())
    for learner in (whole, later):
        learner.step()
    assert weights_hash(dict(whole.model.state_dict())) == weights_hash(dict(later.model.state_dict()))


def test_a_policy_is_learned_past_steps_without_an_action():
    learner = open_learner(World(), "gym", to_yaml(config("guesses", learning_rate=1e-2, total_timesteps=30_000)))
    for _ in range(30):
        learner.step()
    # At random 5 / 3 points.
    assert np.mean(learner.evaluate(20, seed=1).returns) > 4.5


def test_how_it_resets_and_resumes_is_said_before_the_start():
    gym = registry.load("gym")
    fitted, notes = gym.fit(config("next_step"), ())
    assert "a vector environment, observation 3, 4 actions, autoreset NextStep" in notes[0]
    assert fitted.workload.resume_by == "restart" and "exact mode refuses to resume" in notes[1]
    assert gym.fit(config("Native"), ())[0].workload.resume_by == "state"
    learner = open_learner(World(), "gym", to_yaml(config("same_step", sync="exact")))
    with pytest.raises(UserError, match="cannot be resumed with sync exact"):
        learner.load(learner.state())


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("Silent", {}, "does not say when it resets ended episodes"),
        ("fixed", {}, "makes a vector environment of a fixed size; give it a parameter num_envs"),
        ("not_a_vector", {}, "which is not a gymnasium.vector.VectorEnv"),
        ("next_step", {"frame_stack": 4}, "frame_stack 4: a vector environment does that itself"),
        ("next_step", {"resume_by": "replay"}, "resume_by replay: .* resumes by restart"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(name, changes, message):
    with pytest.raises(UserError, match=message) as refused:
        registry.load("gym").fit(config(name, **changes), ())
    assert "\n" not in str(refused.value)


def test_algorithms_that_do_not_take_vectors_say_so():
    gym = registry.load("gym")
    with pytest.raises(UserError, match="which only ppo takes"):
        gym.fit(gym.preset("debug", algorithm="tdmpc2").replace(env_id=f"{FILE}:next_step"), ())


def test_errors_in_a_run_name_the_environments():
    env = envs("Broken", 3)
    env.reset()
    with pytest.raises(RunFailed, match=r"environments 0 to 2: failed in step \(RuntimeError: out of numbers"):
        env.step(torch.zeros(3))
    with pytest.raises(UserError, match="made 4 environments, and was asked for 3"):
        envs("Greedy", 3)

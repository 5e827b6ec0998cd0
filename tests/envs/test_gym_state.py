"""Environments whose simulator saves its state: restored in mid-episode they continue with the same bits."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import wrappers

from lockstep.envs.gym_simulation import EnvSpec, GymSimulation, restores
from lockstep.envs.gym_state import state_of
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single import GymEnv
from lockstep.workloads.gym.single_facts import facts_of

BODIES = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedPendulum-v5"),
    *("InvertedDoublePendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
)


def continued(spec, before, after):
    """Outcomes after `before` steps: of an undisturbed environment, and of another that was restored there."""
    one, other = GymSimulation(spec), GymSimulation(spec)
    actions = np.random.default_rng(0).uniform(-0.3, 0.3, (before + after, one.actions.size)).astype(np.float32)
    one.reset(5)
    for action in actions[:before]:
        one.step(action)
    # Another episode first: nothing of it may be left.
    other.reset(6)
    other.step(actions[0])
    other.restore(5, one.save())
    return [(one.step(action), other.step(action)) for action in actions[before:]]


def same(one, other):
    return one.observation.tobytes() == other.observation.tobytes() and one[1:4] == other[1:4]


@pytest.mark.parametrize("name", BODIES)
def test_a_body_continues_from_mujocos_state_with_the_same_bits(name):
    pytest.importorskip("mujoco")
    spec = EnvSpec(name, resume="state")
    assert all(same(*pair) for pair in continued(spec, 3, 6))
    assert restores(spec) == ""


def test_wrappers_continue_too_with_frames_and_with_the_steps_that_a_limit_has_counted():
    pytest.importorskip("mujoco")
    pairs = continued(EnvSpec("Reacher-v5", resume="state", frame_stack=3, frame_skip=2, max_steps=9), 5, 4)
    assert all(same(*pair) for pair in pairs)
    assert [pair[1].truncated for pair in pairs] == [False, False, False, True]


def test_hopper_is_saved_by_its_state_after_it_was_tried_and_can_still_be_replayed():
    pytest.importorskip("mujoco")
    facts = facts_of(GymSettings(env_id="Hopper-v5"))
    assert facts.resume_by == "state" and facts.reason == "its simulator's state is saved"
    replayed = facts_of(GymSettings(env_id="Hopper-v5", resume_by="replay"))
    # A thousand steps with three actions each, or a state of some dozen numbers.
    assert replayed.resume_by == "replay" and replayed.state_size == 3000 > 10 * facts.state_size


def test_hoppers_in_workers_continue_with_the_same_bits():
    pytest.importorskip("mujoco")
    facts = facts_of(GymSettings(env_id="Hopper-v5"))
    one, other = (GymEnv(facts, torch.arange(4), 1, workers=workers) for workers in (2, 1))
    one.reset()
    actions = torch.rand(40, 4, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    for action in actions[:25]:
        one.step(action)
    other.load(one.state())
    for action in actions[25:]:
        mine, theirs = one.step(action), other.step(action)
        assert torch.equal(mine.observation, theirs.observation) and torch.equal(mine.reward, theirs.reward)


def test_what_might_keep_something_of_its_own_is_not_saved():
    pytest.importorskip("mujoco")
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    class Tired(HopperEnv):
        """May keep anything in its attributes."""

    assert state_of(gymnasium.make("Hopper-v5")) is not None
    assert state_of(wrappers.NormalizeObservation(gymnasium.make("Hopper-v5"))) is None
    assert state_of(Tired()) is None
    assert state_of(gymnasium.make("CartPole-v1")) is None


def test_an_atari_game_continues_with_the_same_bits():
    ale_py = pytest.importorskip("ale_py")
    gymnasium.register_envs(ale_py)
    facts = facts_of(GymSettings(env_id="ALE/Breakout-v5", frame_stack=2))
    assert facts.resume_by == "state"
    one, other = (GymEnv(facts, torch.arange(2), 1) for _ in range(2))
    one.reset()
    for step in range(30):
        one.step(torch.tensor([step % 4, 1]))
    other.load(one.state())
    for step in range(30):
        mine, theirs = (env.step(torch.tensor([step % 3, 1])) for env in (one, other))
        assert torch.equal(mine.observation, theirs.observation) and torch.equal(mine.reward, theirs.reward)

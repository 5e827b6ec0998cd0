"""DeepMind Control stepped and restored by us gives its own numbers, to the last bit."""

import numpy as np
import pytest

pytest.importorskip("dm_control")

from dm_control.rl.control import PhysicsError
from dm_control.suite.wrappers import action_scale

from lockstep.workloads.control.names import CUSTOM, SUITE
from lockstep.workloads.control.suite import SuiteSimulation, load

BODIES = {task.split("-")[0]: task for task in reversed(SUITE) if task not in CUSTOM}
FAMILIES = sorted({*BODIES.values(), "cartpole-balance-sparse", "finger-spin", "finger-turn-hard", *CUSTOM})
"""One task of every body, and all custom tasks."""


def flat(step):
    return np.concatenate([np.ravel(part) for part in step.observation.values()], dtype=np.float32)


def actions(task, count):
    return np.random.RandomState(1).uniform(-1, 1, (count, SUITE[task][1])).astype(np.float32)


@pytest.mark.parametrize("task", FAMILIES)
def test_an_episode_restored_in_another_object_continues_bitwise_identically(task):
    one, other = SuiteSimulation(task), SuiteSimulation(task)
    first = one.reset(7)
    assert first.shape == SUITE[task][:1]
    acts = actions(task, 24)
    saved, outcomes = {}, []
    for number, action in enumerate(acts):
        saved[number] = one.save()
        outcomes.append(one.step(action))
    # The other object's own past must not matter.
    other.reset(8)
    other.step(acts[0])
    for start in (0, 11):
        other.restore(7, saved[start])
        for action, expected in zip(acts[start:], outcomes[start:], strict=True):
            found = other.step(action)
            assert np.array_equal(found.observation, expected.observation)
            assert found.reward == expected.reward


@pytest.mark.parametrize("task", ["walker-walk", "cup-catch", "humanoid-stand", "acrobot-swingup"])
def test_a_step_is_two_control_steps_of_dm_control_with_the_rewards_added(task):
    ours, theirs = SuiteSimulation(task), action_scale.Wrapper(load(task), -1.0, 1.0)
    theirs.task._random = np.random.RandomState(5)
    assert np.array_equal(ours.reset(5), flat(theirs.reset()))
    for action in actions(task, 10):
        steps = [theirs.step(action.astype(np.float64)) for _ in range(2)]
        found = ours.step(action)
        assert np.array_equal(found.observation, flat(steps[1]))
        assert found.reward == steps[0].reward + steps[1].reward
        assert not found.terminated and not found.truncated


def test_actions_are_scaled_to_the_bounds_of_the_actuators():
    simulation = SuiteSimulation("cartpole-swingup")
    simulation.reset(0)
    spec = simulation._env.action_spec()
    for action, control in ((-1.0, spec.minimum), (0.0, (spec.minimum + spec.maximum) / 2), (1.0, spec.maximum)):
        simulation.step(np.array([action], np.float32))
        assert simulation._physics.control() == pytest.approx(control)


def test_the_same_seed_gives_the_same_episode():
    simulation = SuiteSimulation("reacher-easy")
    first = simulation.reset(3)
    assert not np.array_equal(simulation.reset(4), first)
    assert np.array_equal(simulation.reset(3), first)


def test_nothing_random_happens_within_an_episode():
    simulation = SuiteSimulation("finger-turn-hard")
    simulation.reset(3)
    before = simulation._task.random.get_state()[2]
    for action in actions("finger-turn-hard", 5):
        simulation.step(action)
    assert simulation._task.random.get_state()[2] == before


def test_a_diverged_simulation_is_truncated_with_the_last_valid_observation(monkeypatch):
    simulation = SuiteSimulation("pendulum-swingup")
    simulation.reset(0)
    valid = simulation.step(np.zeros(1, np.float32)).observation

    def explode(_):
        raise PhysicsError("invalid state")

    monkeypatch.setattr(simulation._physics, "step", explode)
    outcome = simulation.step(np.ones(1, np.float32))
    assert outcome.truncated and not outcome.terminated and outcome.reward == 0.0
    assert np.array_equal(outcome.observation, valid)

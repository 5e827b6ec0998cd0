"""Gymnasium's continuous environments: scaling, endings, and restoring by replaying the episode."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from lockstep.envs.gym_simulation import EnvSpec
from lockstep.errors import UserError
from lockstep.workloads.control import gymnasium_tasks
from lockstep.workloads.control.env import make_env, task_facts
from lockstep.workloads.control.gymnasium_tasks import GymnasiumSimulation
from lockstep.workloads.control.settings import ControlSettings

CPU = torch.device("cpu")


class Climb(gymnasium.Env):
    """Terminates when the sum of the actions, from 0 to 4 each, exceeds 10."""

    observation_space = Box(-np.inf, np.inf, (2, 1))
    action_space = Box(np.zeros(1, np.float32), np.full(1, 4, np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.height, self.start = 0.0, self.np_random.uniform()
        return self._see(), {}

    def step(self, action):
        self.height += float(action[0]) + 0.001 * self.np_random.uniform()
        return self._see(), float(action[0]), self.height > 10, False, {}

    def _see(self):
        return np.array([[self.height], [self.start]])


class Buttons(Climb):
    action_space = Discrete(2)


class Grudge(Climb):
    """Carries state over into the next episode, which environments should not do."""

    resets = 0

    def reset(self, **settings):
        self.resets += 1
        return super().reset(**settings)

    def step(self, action):
        self.height += 0.01 * self.resets
        return super().step(action)


class Boundless(Climb):
    action_space = Box(-np.inf, np.inf, (1,))


@pytest.fixture(autouse=True)
def registered():
    for env in (Climb, Buttons, Boundless, Grudge):
        name = f"test/{env.__name__}-v0"
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=env, max_episode_steps=30)
    if "test/Homeless-v0" not in gymnasium.registry:
        gymnasium.register("test/Homeless-v0", entry_point="no_such_package:Env")


def choice(task, length=0):
    return ControlSettings(task=task, episode_length=length, env_workers=1)


def refusal(task):
    with pytest.raises(UserError) as caught:
        task_facts(choice(task))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_facts_come_from_the_environment():
    facts = task_facts(choice("test/Climb-v0"))
    assert (facts.obs_dim, facts.action_dim, facts.episode_length, facts.episodic) == (2, 1, 30, True)
    assert task_facts(choice("Pendulum-v1")).episode_length == 200


def test_actions_are_scaled_and_an_episode_can_terminate():
    env = make_env(choice("test/Climb-v0"), torch.arange(2), 1, CPU)
    env.reset()
    # Action 0.5 adds 3 a step, so the first ends with its fourth step; -1 adds 0, so the second never ends.
    steps = [env.step(torch.tensor([[0.5], [-1.0]])) for _ in range(4)]
    assert [step.reward.tolist() for step in steps] == [[3.0, 0.0]] * 4
    assert [step.terminated.tolist() for step in steps] == [[False, False]] * 3 + [[True, False]]
    assert float(steps[-1].final_observation[0, 0]) == pytest.approx(12, abs=0.01)
    assert float(steps[-1].observation[0, 0]) == 0.0


def test_termination_on_the_last_step_is_not_a_truncation():
    env = make_env(choice("test/Climb-v0", length=3), torch.arange(1), 1, CPU)
    env.reset()
    steps = [env.step(torch.tensor([[1.0]])) for _ in range(3)]
    assert steps[-1].terminated.all() and not steps[-1].truncated.any()


@pytest.mark.parametrize("task", ["test/Climb-v0", "test/Grudge-v0", "Pendulum-v1", "mujoco-walker"])
def test_a_replayed_episode_continues_bitwise_identically(task):
    if task == "mujoco-walker":
        pytest.importorskip("mujoco")
    one, other = GymnasiumSimulation(task), GymnasiumSimulation(task)
    one.reset(1)
    acts = np.random.RandomState(0).uniform(-1, 1, (12, one.actions.size)).astype(np.float32) * 0.2
    for action in acts:
        one.step(action)
    one.reset(5)
    for action in acts[:6]:
        one.step(action)
    other.restore(5, one.save())
    for action in acts[6:]:
        expected, found = one.step(action), other.step(action)
        assert np.array_equal(found.observation, expected.observation)
        assert found.reward == expected.reward


def test_unusable_environments_are_refused_in_one_line():
    assert "not continuous" in refusal("test/Buttons-v0")
    assert "no bounds" in refusal("test/Boundless-v0")
    assert "Pendulum" in refusal("Pendulm-v1")
    assert "no such environment" in refusal("nowhere/Thing-v3")


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("Walker2d-v3", "cannot be created"),
        ("Ant-v2", "cannot be created"),
        ("test/Homeless-v0", "there is no module no_such_package"),
    ],
)
def test_a_version_that_gymnasium_cannot_create_is_refused_in_one_line(task, reason, recwarn):
    assert refusal(task).startswith(f"task {task}: {reason}")
    assert not list(recwarn)


def test_mujocos_warnings_about_a_model_leave_no_file(tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    EnvSpec("HalfCheetah-v5").make()
    GymnasiumSimulation("mujoco-halfcheetah")
    assert not list(tmp_path.iterdir())


def test_a_missing_dependency_is_named_with_what_to_install(monkeypatch):
    def missing(*_, **__):
        raise gymnasium.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')

    monkeypatch.setattr(gymnasium_tasks.gymnasium, "make", missing)
    assert "gymnasium[box2d]" in refusal("bipedal-walker")

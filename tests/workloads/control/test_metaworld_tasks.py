"""Meta-World's tasks, on a stand-in for that package: action repeat, goals, restoring."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")

import mujoco

from lockstep.errors import UserError
from lockstep.workloads.control import names
from lockstep.workloads.control.env import make_env, task_facts
from lockstep.workloads.control.metaworld_tasks import MetaWorldSimulation, _reset_mocap_welds
from lockstep.workloads.control.settings import ControlSettings


class Reach:
    """The part of Meta-World that is used: counts steps, and draws a goal at every reset."""

    def __init__(self, seed):
        self._freeze_rand_vec, self.seeded_rand_vec = True, False
        self.model = self.data = None

    def seed(self, seed):
        self.random = np.random.RandomState(seed)

    def reset(self):
        assert self.seeded_rand_vec and not self._freeze_rand_vec, "goals would not follow from the seed"
        self.goal, self.steps, self.place = self.random.uniform(), 0, 0.0
        return self._see(), {}

    def step(self, action):
        self.steps += 1
        self.place += float(action[0])
        return self._see(), 1.5, False, False, {"success": self.place > 3}

    def _see(self):
        return np.array([self.goal, self.steps, self.place] + [0.0] * 36)


class Broken:
    def __init__(self, seed):
        raise ValueError("could not broadcast")


@pytest.fixture(autouse=True)
def package(monkeypatch):
    module = ModuleType("metaworld.env_dict")
    tasks = {"reach-v3-goal-observable": Reach, "push-v3-goal-observable": Broken}
    module.ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE = tasks
    monkeypatch.setitem(sys.modules, "metaworld", ModuleType("metaworld"))
    monkeypatch.setitem(sys.modules, "metaworld.env_dict", module)
    base = ModuleType("metaworld.sawyer_xyz_env")
    base.SawyerMocapBase = type("SawyerMocapBase", (), {})
    monkeypatch.setitem(sys.modules, "metaworld.sawyer_xyz_env", base)
    monkeypatch.setattr(names, "find_spec", lambda name: object())


def choice(task="mw-reach"):
    return ControlSettings(task=task, episode_length=0, env_workers=1)


def test_all_meta_world_tasks_have_the_same_sizes():
    facts = task_facts(choice())
    assert (facts.obs_dim, facts.action_dim, facts.episode_length, facts.has_goals) == (39, 4, 100, True)


def test_an_action_lasts_two_steps_after_a_settling_step():
    simulation = MetaWorldSimulation("mw-reach")
    first = simulation.reset(3)
    assert first.shape == (39,) and first[1] == 0
    outcome = simulation.step(np.ones(4, np.float32))
    assert (outcome.reward, outcome.observation[1], outcome.observation[2]) == (3.0, 3.0, 2.0)
    assert outcome.success == 0.0
    assert simulation.step(np.ones(4, np.float32)).success == 1.0


def test_goals_follow_from_the_seed_and_an_episode_is_replayed():
    one, other = MetaWorldSimulation("mw-reach"), MetaWorldSimulation("mw-reach")
    assert one.reset(3)[0] != one.reset(4)[0]
    one.step(np.full(4, 0.25, np.float32))
    other.restore(4, one.save())
    action = np.full(4, 0.5, np.float32)
    assert np.array_equal(one.step(action).observation, other.step(action).observation)


def test_a_film_loads_the_scene_once_and_stands_upright(monkeypatch):
    loaded = []

    class Renderer:
        def __init__(self, model, height, width):
            loaded.append((height, width))

        def update_scene(self, data, camera):
            assert camera == "corner2"

        def render(self):
            frame = np.zeros((*loaded[-1], 3), np.uint8)
            frame[0, 0] = 7
            return frame

    monkeypatch.setattr(mujoco, "Renderer", Renderer)
    simulation = MetaWorldSimulation("mw-reach")
    frames = [simulation.render(*size) for size in ((8, 8), (4, 6), (4, 6))]
    assert loaded == [(8, 8), (4, 6)] and frames[-1].shape == (4, 6, 3)
    # That camera hangs upside down.
    assert frames[-1][-1, -1].tolist() == [7, 7, 7] and frames[-1].sum() == 21


def test_the_last_step_of_an_episode_reports_its_success():
    env = make_env(choice(), torch.arange(2), 1, torch.device("cpu"))
    env.reset()
    steps = [env.step(torch.tensor([[1.0] * 4, [0.0] * 4])) for _ in range(100)]
    assert steps[-1].truncated.all() and not steps[-2].truncated.any()
    assert steps[-1].info["success"].tolist() == [1.0, 0.0]


def test_mt80_scores_returns_and_successes():
    facts = task_facts(choice("mt80"))
    assert (facts.obs_dim, facts.action_dim, facts.episode_length) == (39, 6, 500)
    assert set(facts.episode_lengths) == {500, 100}
    # Number 65 of mt80 is mw-reach.
    assert facts.tasks[65] == "mw-reach"
    env = make_env(choice("mt80"), torch.tensor([65]), 1, torch.device("cpu"))
    env.reset()
    for _ in range(100):
        info = env.step(torch.ones(1, 6)).info
    assert info["score"].tolist() == [100.0] and info["task"].tolist() == [65]


WELD = """
<mujoco>
  <worldbody>
    <body name="target" mocap="true"><geom size="1"/></body>
    <body name="hand" pos="1 2 3"><freejoint/><geom size="1"/></body>
  </worldbody>
  <equality><weld body1="target" body2="hand"/><connect body1="hand" body2="target" anchor="7 8 9"/></equality>
</mujoco>
"""


def test_welds_are_reset_in_the_columns_that_every_mujoco_has():
    model = mujoco.MjModel.from_xml_string(WELD)
    _reset_mocap_welds(SimpleNamespace(model=model))
    assert model.eq_data[0, :11].tolist() == [0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 5]
    # Only welds: the other joint keeps its anchor.
    assert model.eq_data[1, :3].tolist() == [7, 8, 9]


def test_an_incompatible_mujoco_is_named_in_one_line():
    with pytest.raises(UserError, match="does not run with mujoco") as caught:
        MetaWorldSimulation("mw-push")
    assert len(str(caught.value).splitlines()) == 1

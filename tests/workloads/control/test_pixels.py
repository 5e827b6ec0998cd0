"""Tasks observed as images: what is drawn, which frames an observation has, and that a run is one on any ranks."""

from itertools import islice

import numpy as np
import pytest
import torch

pytest.importorskip("dm_control")

import mujoco

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.envs import rendering
from lockstep.errors import UserError
from lockstep.storage import checkpoint
from lockstep.workloads.control import env as control_env
from lockstep.workloads.control.env import make_env
from lockstep.workloads.control.pixels import PixelSimulation
from lockstep.workloads.control.rays import RayCamera
from lockstep.workloads.control.recording import record_episodes
from lockstep.workloads.control.settings import ControlSettings
from lockstep.workloads.control.watch import scenes
from lockstep.workloads.control.workload import Control

BALL = """
<mujoco>
  <asset>
    <texture name="squares" type="2d" builtin="checker" rgb1="1 1 1" rgb2="0 0 0" width="64" height="64"/>
    <material name="floor" texture="squares" texrepeat="1 1" texuniform="true" rgba="1 1 0 1"/>
  </asset>
  <worldbody>
    <camera name="above" pos="0 0 10" fovy="53.13010235415598"/>
    <geom type="plane" size="0 0 1" material="floor"/>
    <geom type="sphere" size="1" pos="0 0 1" rgba="1 0 0 1"/>
    <geom type="sphere" size="4" pos="0 0 1" rgba="0 0 1 1" group="3"/>
  </worldbody>
</mujoco>
"""


def drawn(side):
    model = mujoco.MjModel.from_xml_string(BALL)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return RayCamera(model, 0, side, side).draw(data)


def test_rays_show_a_ball_on_a_checkered_floor_and_no_hidden_geoms():
    # From 10 m above with a slope of 1/2 to each edge, 10 m of the floor are seen: 40 pixels of a quarter metre.
    image = drawn(40)
    assert image.shape == (40, 40, 3) and image.dtype == np.uint8
    # Seen head on, a ball is fully lit; the sphere of group 3 around it is for collisions only.
    assert (image[19:21, 19:21, 0] > 245).all() and not image[19:21, 19:21, 1:].any() and not image[..., 2].any()
    # Squares of half a metre, two pixels, alternate; yellow times white, yellow times black.
    row = image[0, :, 0] > 128
    assert row.reshape(-1, 2).all(1).tolist() in ([True, False] * 10, [False, True] * 10)
    assert (image[0][row][:, 1] > 128).all() and (image[0][row][:, 2] == 0).all()


def test_an_observation_is_the_last_three_frames_and_begins_with_copies_of_the_first():
    simulation, push = PixelSimulation("pendulum-swingup", "rays"), np.ones(1, np.float32)
    first, *later = (o.reshape(3, 3, 64, 64) for o in (simulation.reset(1), *acted(simulation, push, 3)))
    assert (first == first[0]).all()
    assert (later[0][:2] == first[0]).all() and (later[0][2] != first[0]).any()
    assert (later[2][:2] == later[1][1:]).all() and (later[1][:2] == later[0][1:]).all()


def acted(simulation, action, steps):
    return [simulation.step(action).observation for _ in range(steps)]


def test_a_restored_simulation_has_the_frames_before_it():
    one, other, push = PixelSimulation("walker-walk", "rays"), PixelSimulation("walker-walk", "rays"), np.ones(6)
    one.reset(7)
    acted(one, push, 4)
    other.restore(7, one.save())
    for mine, its in zip(acted(one, push, 3), acted(other, push, 3), strict=True):
        assert np.array_equal(mine, its)


def test_environments_return_images_of_bytes_whichever_process_draws_them():
    settings = ControlSettings(task="cartpole-balance", obs="rgb", renderer="rays", episode_length=2, env_workers=1)
    one = make_env(settings, torch.arange(2), 3, torch.device("cpu"))
    two = make_env(ControlSettings(**{**vars(settings), "env_workers": 2}), torch.arange(2), 3, torch.device("cpu"))
    assert torch.equal(one.reset(), two.reset())
    for _ in range(3):
        mine, its = one.step(torch.ones(2, 1)), two.step(torch.ones(2, 1))
        assert torch.equal(mine.observation, its.observation)
        assert torch.equal(mine.final_observation, its.final_observation)
    assert mine.observation.shape == (2, 9, 64, 64) and mine.observation.dtype == torch.uint8


def config_text(**changes):
    changes = {"lanes": 2, "num_envs": 2, "n_steps": 6, "seed_steps": 12, "steps": 72, "batch_size": 4} | changes
    config = Control().preset("debug").replace(obs="rgb", episode_length=5, threads=1, device="cpu", **changes)
    return to_yaml(config)


def trained(world, text, folder, before, after, resumed=False):
    """Train, save or load in between, train on; returns the final hash. Called by every rank."""
    learner = open_learner(world, "control", text)
    own = world.with_lanes(2, "fast")
    if resumed:
        learner.load(checkpoint.load(folder, own.lanes.mine))
    for _ in range(before):
        learner.step()
    if not resumed:
        checkpoint.save(folder, learner.state(), world=own, step=learner.steps, workload="control", extra={})
    for _ in range(after):
        learner.step()
    return checkpoint.weights_hash(dict(learner.model.state_dict()))


@pytest.mark.slow
def test_images_give_the_same_bits_on_one_and_two_ranks_and_after_a_resume(ranks, tmp_path):
    # The buffer of 24 steps has been overwritten twice by the end, and episodes end within it.
    text = config_text(sync="exact", buffer_size=24)
    (one,) = ranks.run(trained, text, str(tmp_path), 3, 2, ranks=1)
    (path,) = (tmp_path / "checkpoints").glob("step-*")
    resumed = ranks.run(trained, text, str(path), 2, 0, True, ranks=2)
    assert resumed == [one, one]


def test_the_replay_buffer_keeps_every_frame_once_for_each_side_of_a_step():
    learner = open_learner(World(), "control", config_text())
    for _ in range(2):
        learner.step()
    kept = learner.state().lanes[0]
    # 12 rows of one environment: the newest frame before and after each step, 3 x 64 x 64 bytes.
    assert kept["memory.observation"].shape == (12, 1, 3, 64, 64)
    assert kept["memory.following"].dtype == torch.uint8
    _, lines = Control().fit(Control().preset("base").replace(obs="rgb"), ())
    assert "frames       24,576 bytes a step: 1.14 GiB over all ranks, and in every checkpoint" in lines


def test_a_player_and_a_program_take_images():
    learner = open_learner(World(), "control", config_text())
    images = torch.randint(256, (3, 9, 64, 64), dtype=torch.uint8)
    actions, _ = learner.player(1).act(images)
    assert actions.shape == (3, 1) and learner.observation_shape == (9, 64, 64)
    program = learner.program()
    assert program.inputs["observation"].shape == (2, 9, 64, 64) and program.inputs["observation"].dtype == torch.uint8
    assert program.module(images)[0].shape == (3, 1)


def test_without_opengl_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(rendering, "backends", lambda: ["nonsense"])
    control_env._shared_stage.cache_clear()
    settings = ControlSettings(task="cartpole-balance", obs="rgb")
    with pytest.raises(UserError, match=r"^obs rgb: .*libegl1 or libosmesa6.*renderer rays") as caught:
        make_env(settings, torch.arange(1), 1, torch.device("cpu"))
    assert len(str(caught.value).splitlines()) == 1


def test_a_task_drawn_by_rays_is_filmed_without_opengl(monkeypatch):
    monkeypatch.setattr(rendering, "backends", lambda: ["nonsense"])
    settings = ControlSettings(task="cartpole-balance", obs="rgb", renderer="rays", episode_length=2, env_workers=1)
    first, second = islice(scenes(settings, "random", 1), 2)
    assert first.image.shape == (360, 480, 3) and (first.image != second.image).any()


def test_images_are_not_recorded(tmp_path):
    with pytest.raises(UserError, match=r"record: .*this run observes images"):
        record_episodes(ControlSettings(task="cartpole-balance", obs="rgb"), "random", 1, 1, tmp_path)

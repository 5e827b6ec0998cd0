"""Playing tasks: always as text, and as MuJoCo frames if this machine can render."""

from itertools import islice

import pytest
import torch

pytest.importorskip("dm_control")

from lockstep.envs import rendering
from lockstep.errors import UserError
from lockstep.rl.evaluation import play_out
from lockstep.workloads.control.baselines import random_action
from lockstep.workloads.control.env import make_env
from lockstep.workloads.control.settings import ControlSettings
from lockstep.workloads.control.watch import scenes


def choice(task="pendulum-spin", length=3):
    return ControlSettings(task=task, episode_length=length, env_workers=1)


def test_the_episodes_equal_those_of_an_evaluation():
    seen = list(islice(scenes(choice(), "random", 5, pictures=False), 8))
    assert [scene.ended for scene in seen] == [False, False, False, True] * 2
    env = make_env(choice(), torch.arange(2), 5, torch.device("cpu"))
    played = play_out(env, random_action)
    assert [seen[3].score, seen[7].score] == pytest.approx([episode[0] for episode in played])


def test_a_scene_shows_task_step_reward_return_and_actions():
    first, second, _, last = islice(scenes(choice("reacher-three-easy"), "zero", 1, pictures=False), 4)
    assert first.caption.startswith("reacher-three-easy   step 0   reward 0.00   return 0.0")
    assert "episode 1" in first.text and "step    1" in second.text
    assert second.text.count("●") == 3 and "  0.00" in second.text
    assert last.caption.endswith("time is up")
    assert first.image.shape == (1, 1, 3)


def test_several_tasks_are_shown_in_turn_with_their_own_actions():
    shown = list(islice(scenes(choice("mt30", length=1), "zero", 1, pictures=False), 16))
    assert shown[14].text.startswith("pendulum-swingup, episode 8")
    assert shown[14].text.count("●") == 1
    assert shown[0].text.count("●") == 6


def test_one_of_several_tasks_can_be_shown_alone():
    shown = list(islice(scenes(choice("mt30", length=1), "zero", 1, pictures=False, only="pendulum-swingup"), 4))
    assert [scene.text.split(", step")[0].splitlines()[0] for scene in shown[::2]] == [
        "pendulum-swingup, episode 8", "pendulum-swingup, episode 38",
    ]  # fmt: skip
    with pytest.raises(UserError, match="nearest are pendulum-swingup"):
        next(scenes(choice("mt30"), "zero", 1, pictures=False, only="pendulum-swing"))


def test_frames_are_rendered_by_mujoco():
    try:
        first, second = islice(scenes(choice("cartpole-swingup"), "random", 1), 2)
    except UserError as missing:
        pytest.skip(str(missing))
    assert first.image.shape == second.image.shape == (360, 480, 3)
    # A scene, not a blank: the background, the rail and the pole have different colours, and the pole moved.
    assert len({tuple(pixel) for pixel in first.image[::8, ::8].reshape(-1, 3).tolist()}) > 20
    assert (first.image != second.image).any()


def test_without_opengl_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(rendering, "backends", lambda: ["nonsense"])
    with pytest.raises(UserError, match=r"libegl1 or libosmesa6") as caught:
        next(scenes(choice(), "random", 1))
    assert len(str(caught.value).splitlines()) == 1
    assert "nonsense" in str(caught.value)


@pytest.mark.parametrize(
    ("wish", "display", "expected"),
    [
        ("", "", ["egl", "osmesa"]),
        ("disabled", ":0", ["egl", "osmesa", "glfw"]),
        ("OSMesa", ":0", ["osmesa"]),
    ],
)
def test_the_users_backend_is_the_only_one_tried(monkeypatch, wish, display, expected):
    monkeypatch.setenv("MUJOCO_GL", wish)
    monkeypatch.setenv("DISPLAY", display)
    assert rendering.backends() == expected

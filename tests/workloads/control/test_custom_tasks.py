"""The rewards of the eleven custom tasks, worked out by hand."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("dm_control")

from lockstep.workloads.control.custom_tasks import (
    MAKERS,
    BackwardsCheetah,
    BackwardsHopper,
    BackwardsWalker,
    JumpingCheetah,
    SpinningCup,
    SpinningPendulum,
    TwoLeggedCheetah,
)

TENTH = 0.1
"""The value of a Gaussian tolerance at its margin."""


def body(**values):
    """Physics whose measurements are given numbers."""
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


@pytest.mark.parametrize(
    ("height", "upright", "velocity", "reward"),
    [
        (1.3, 1.0, -1.0, 1.0),
        # A quarter of a metre a second too slow is half of the margin: 1 - 0.5 / 2 = 0.75, and (5 x 0.75 + 1) / 6.
        (1.3, 1.0, -0.75, 4.75 / 6),
        (1.3, 1.0, 1.0, 1 / 6),
        # At the margin below the height: (3 x 0.1 + (1 + 0) / 2) / 4 = 0.2.
        (0.6, 0.0, -2.0, 0.2),
    ],
)
def test_walking_backwards(height, upright, velocity, reward):
    physics = body(torso_height=height, torso_upright=upright, horizontal_velocity=velocity)
    assert BackwardsWalker(1).get_reward(physics) == pytest.approx(reward)


def test_the_target_speed_backwards_is_8_metres_per_second():
    task = BackwardsWalker(8)
    standing = {"torso_height": 1.2, "torso_upright": 1.0}
    assert task.get_reward(body(horizontal_velocity=-8.0, **standing)) == pytest.approx(1.0)
    assert task.get_reward(body(horizontal_velocity=-4.0, **standing)) == pytest.approx((5 * 0.5 + 1) / 6)


@pytest.mark.parametrize(("speed", "reward"), [(-8.0, 1.0), (-12.0, 1.0), (-4.0, 0.5), (0.0, 0.0), (3.0, 0.0)])
def test_the_cheetah_runs_backwards(speed, reward):
    assert BackwardsCheetah().get_reward(body(speed=speed)) == pytest.approx(reward)


def cheetah(speed, **heights):
    physics = body(speed=speed)
    places = defaultdict(float, {(name, "z"): height for name, height in heights.items()})
    physics.named = SimpleNamespace(data=SimpleNamespace(xpos=places))
    return physics


def test_running_on_the_front_legs_rewards_a_raised_back_foot():
    front, back = TwoLeggedCheetah("bfoot"), TwoLeggedCheetah("ffoot")
    assert front.get_reward(cheetah(6.0, torso=1.2, bfoot=1.2)) == pytest.approx(1.0)
    # The torso at the margin: (3 x 1 + 2 x 0.1) / 5 = 0.64; half the speed: (5 x 0.5 + 1) / 6.
    assert front.get_reward(cheetah(3.0, torso=0.6, bfoot=1.5)) == pytest.approx(0.64 * 3.5 / 6)
    assert back.get_reward(cheetah(6.0, torso=1.2, ffoot=1.2)) == pytest.approx(1.0)
    # 1.2 below the goal is two margins: 0.1 to the power of 4.
    assert back.get_reward(cheetah(6.0, torso=1.2, bfoot=1.2)) == pytest.approx((3 * TENTH**4 + 2) / 5)


def test_jumping_rewards_raised_feet_and_staying_in_place():
    assert JumpingCheetah().get_reward(cheetah(0.2, torso=1.2, bfoot=1.2, ffoot=1.2)) == pytest.approx(1.0)
    assert JumpingCheetah().get_reward(cheetah(2.0, torso=1.2, bfoot=1.2, ffoot=1.2)) == pytest.approx(5 / 6)
    # One foot so low that its mean with the torso is at the margin: ((5 + 1) / 6 + (5 x 0.1 + 1) / 6) / 2.
    assert JumpingCheetah().get_reward(cheetah(0.5, torso=1.2, bfoot=1.2, ffoot=0.0)) == pytest.approx(0.625)


@pytest.mark.parametrize(
    ("height", "speed", "reward"), [(0.8, -1.0, 1.0), (0.8, -0.75, 0.75), (0.8, 0.0, 0.0), (0.5, -1.0, 0.0)]
)
def test_hopping_backwards(height, speed, reward):
    assert BackwardsHopper(hopping=True).get_reward(body(height=height, speed=speed)) == pytest.approx(reward)


@pytest.mark.parametrize(("omega", "reward"), [(9.0, 1.0), (-9.5, 1.0), (-6.75, 0.75), (4.5, 0.5), (0.0, 0.0)])
def test_the_pendulum_may_spin_in_either_direction(omega, reward):
    physics = body(angular_velocity=np.array([omega]))
    assert SpinningPendulum().get_reward(physics) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("offset", "velocity", "inside", "reward"),
    [
        ((0.3, 0.4), (6.0, 0.0), 0.0, 1.0),
        ((0.3, 0.4), (6.0, 0.0), 1.0, 0.0),
        # Half the distance is worth 0.5 and half the speed 0.5: (0.5 + 2 x 0.5) / 3.
        ((0.25, 0.0), (0.0, 3.0), 0.0, 0.5),
    ],
)
def test_the_ball_spins_round_the_cup(offset, velocity, inside, reward):
    physics = body(ball_to_target=np.array(offset), in_target=inside)

    class Speeds:
        def __getitem__(self, names):
            assert names == ["ball_x", "ball_z"]
            return np.array(velocity)

    physics.named = SimpleNamespace(data=SimpleNamespace(qvel=Speeds()))
    assert SpinningCup().get_reward(physics) == pytest.approx(reward)


def test_the_ball_mostly_starts_in_the_cup():
    env = MAKERS["cup-spin"]()
    env.task._random = np.random.RandomState(0)
    inside = []
    for _ in range(40):
        env.reset()
        inside.append(env.physics.in_target())
    assert 0.75 <= np.mean(inside) < 1


@pytest.mark.parametrize(("task", "size"), [("reacher-three-easy", 0.05), ("reacher-three-hard", 0.015)])
def test_the_third_link_reaches_for_targets_of_two_sizes(task, size):
    env = MAKERS[task]()
    step = env.reset()
    assert {name: len(value) for name, value in step.observation.items()} == {
        "position": 3,
        "to_target": 2,
        "velocity": 3,
    }
    physics = env.physics
    assert physics.named.model.geom_size["target", 0] == size
    physics.named.data.qpos[:] = 0.0
    physics.forward()
    # Three links of nine centimetres in a row.
    assert physics.named.data.geom_xpos["finger"] == pytest.approx([0.27, 0.0, 0.01])
    physics.named.model.geom_pos["target", :2] = 0.27 + 0.99 * (size + 0.01), 0.0
    physics.forward()
    assert env.task.get_reward(physics) == 1.0
    physics.named.model.geom_pos["target", :2] = 0.27 + 1.01 * (size + 0.01), 0.0
    physics.forward()
    assert env.task.get_reward(physics) == 0.0

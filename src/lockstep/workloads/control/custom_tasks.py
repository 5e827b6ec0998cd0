"""Eleven tasks beyond DeepMind Control's own, on its bodies and on a three-link arm.

Rewards are those of the official TD-MPC2, so that returns and the public mt30 data can be compared.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from dm_control.rl import control
from dm_control.suite import ball_in_cup, base, cheetah, hopper, pendulum, reacher, walker
from dm_control.utils.rewards import tolerance

from lockstep.workloads.control.three_links import three_link_arm

_UNBOUNDED = float("inf")
_RUN_SPEED = 10.0  # target speed of the suite's cheetah-run, in m/s


def at_least(value: float, bound: float, margin: float) -> float:
    """1 at or above the bound, falling linearly to 0.5 at `margin` below it."""
    return tolerance(value, (bound, _UNBOUNDED), margin, sigmoid="linear", value_at_margin=0.5)


def at_most(value: float, bound: float, margin: float) -> float:
    """The mirror image of `at_least`."""
    return at_least(-value, -bound, margin)


class BackwardsWalker(walker.PlanarWalker):
    """Walks backwards."""

    def get_reward(self, physics: Any) -> float:
        """Standing, times how fast it moves backwards."""
        # As in the suite's walker, with the direction of the velocity reversed.
        standing = tolerance(physics.torso_height(), (1.2, _UNBOUNDED), margin=0.6)
        upright = (1 + physics.torso_upright()) / 2
        moving = at_most(physics.horizontal_velocity(), -self._move_speed, self._move_speed / 2)
        return (3 * standing + upright) / 4 * (5 * moving + 1) / 6


def _speed_reward(speed: float, bounds: tuple[float, float], margin: float) -> float:
    return tolerance(speed, bounds, margin, sigmoid="linear", value_at_margin=0.0)


def _high(height: float) -> float:
    """1 from 1.2 m on, with a margin of 0.6 m below."""
    return tolerance(height, (1.2, _UNBOUNDED), margin=0.6)


def _height(physics: Any, body: str) -> float:
    return physics.named.data.xpos[body, "z"]


class BackwardsCheetah(cheetah.Cheetah):
    """Runs backwards, at up to 8 m/s."""

    def get_reward(self, physics: Any) -> float:
        """How fast it runs backwards."""
        goal = 0.8 * _RUN_SPEED
        return _speed_reward(physics.speed(), (-_UNBOUNDED, -goal), goal)


class TwoLeggedCheetah(cheetah.Cheetah):
    """Runs forwards on one pair of legs, the other foot in the air."""

    def __init__(self, raised_foot: str, random: Any = None) -> None:
        super().__init__(random)
        # On the front legs the back foot (bfoot) is raised, and the other way round: see MAKERS.
        self._raised_foot = raised_foot

    def get_reward(self, physics: Any) -> float:
        """How high the foot and the torso are, times the speed."""
        goal = 0.6 * _RUN_SPEED
        raised = (3 * _high(_height(physics, self._raised_foot)) + 2 * _high(_height(physics, "torso"))) / 5
        return raised * (5 * _speed_reward(physics.speed(), (goal, _UNBOUNDED), goal) + 1) / 6


class JumpingCheetah(cheetah.Cheetah):
    """Jumps on the spot."""

    def get_reward(self, physics: Any) -> float:
        """How high the torso and each foot are, plus a bonus for staying in place."""
        torso, resting = _height(physics, "torso"), _speed_reward(physics.speed(), (-0.5, 0.5), 0.5)
        feet = [(5 * _high((torso + _height(physics, foot)) / 2) + resting) / 6 for foot in ("bfoot", "ffoot")]
        return sum(feet) / 2


class BackwardsHopper(hopper.Hopper):
    """Hops backwards."""

    def get_reward(self, physics: Any) -> float:
        """Standing, times how fast it hops backwards."""
        return tolerance(physics.height(), (0.6, 2)) * at_most(physics.speed(), -1.0, 0.5)


class SpinningPendulum(pendulum.SwingUp):
    """Spins at full speed instead of balancing."""

    def get_reward(self, physics: Any) -> float:
        """How fast it turns, in either direction."""
        return at_least(float(np.linalg.norm(physics.angular_velocity())), 9.0, 4.5)


class SpinningCup(ball_in_cup.BallInCup):
    """Swings the ball round the cup."""

    def initialize_episode(self, physics: Any) -> None:
        """Place the ball: in the cup with probability 0.9, otherwise anywhere without contact."""
        anywhere = self.random.uniform() < 0.1
        placed = False
        # Rejection sampling, as in the suite's own task: redraw until the ball touches nothing.
        while not placed:
            physics.named.data.qpos["ball_x"] = self.random.uniform(-0.2, 0.2)
            physics.named.data.qpos["ball_z"] = self.random.uniform(0.2, 0.5)
            physics.after_reset()
            placed = physics.data.ncon == 0 and (anywhere or bool(physics.in_target()))
        # Skips BallInCup's own initialisation, which would place the ball again.
        base.Task.initialize_episode(self, physics)

    def get_reward(self, physics: Any) -> float:
        """How far out and how fast the ball is, outside the cup."""
        distance = at_least(float(np.linalg.norm(physics.ball_to_target())), 0.5, 0.25)
        velocity = physics.named.data.qvel[["ball_x", "ball_z"]]
        speed = at_least(float(np.linalg.norm(velocity)), 6.0, 3.0)
        return (1 - physics.in_target()) * (distance + 2 * speed) / 3


def _suite_body(domain: Any) -> Any:
    """The physics of one of the suite's bodies, which a custom task shares."""
    return domain.Physics.from_xml_string(*domain.get_model_and_assets())


def _walker(speed: float) -> control.Environment:
    return control.Environment(
        _suite_body(walker), BackwardsWalker(speed), time_limit=25, control_timestep=walker._CONTROL_TIMESTEP
    )


def _cheetah(task: cheetah.Cheetah) -> control.Environment:
    return control.Environment(_suite_body(cheetah), task, time_limit=10)


def _reacher(target_size: float) -> control.Environment:
    body = reacher.Physics.from_xml_string(*three_link_arm())
    return control.Environment(body, reacher.Reacher(target_size), time_limit=20)


def _cup() -> control.Environment:
    step = ball_in_cup._CONTROL_TIMESTEP
    return control.Environment(_suite_body(ball_in_cup), SpinningCup(), time_limit=20, control_timestep=step)


def _hopper() -> control.Environment:
    step = hopper._CONTROL_TIMESTEP
    task = BackwardsHopper(hopping=True)
    return control.Environment(_suite_body(hopper), task, time_limit=20, control_timestep=step)


MAKERS: dict[str, Callable[[], control.Environment]] = {
    "walker-walk-backwards": lambda: _walker(1),
    "walker-run-backwards": lambda: _walker(8),
    "cheetah-run-backwards": lambda: _cheetah(BackwardsCheetah()),
    "cheetah-run-front": lambda: _cheetah(TwoLeggedCheetah("bfoot")),
    "cheetah-run-back": lambda: _cheetah(TwoLeggedCheetah("ffoot")),
    "cheetah-jump": lambda: _cheetah(JumpingCheetah()),
    "hopper-hop-backwards": _hopper,
    "reacher-three-easy": lambda: _reacher(0.05),
    "reacher-three-hard": lambda: _reacher(0.015),
    "cup-spin": _cup,
    "pendulum-spin": lambda: control.Environment(_suite_body(pendulum), SpinningPendulum(), time_limit=20),
}

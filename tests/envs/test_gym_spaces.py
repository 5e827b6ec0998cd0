"""Spaces of Gymnasium as rows, by hand-worked examples, and back."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from lockstep.envs.gym_spaces import actions_of, observations_of
from lockstep.envs.spaces import Continuous, Discrete, MultiDiscrete
from lockstep.errors import UserError


def test_a_box_of_numbers_is_a_vector_of_floats():
    found = observations_of(spaces.Box(-1, 1, (2, 2), np.float64), "env")
    assert (found.shape, found.dtype, found.parts) == ((4,), np.float32, ())
    assert found.encode(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((84, 84, 3), (3, 84, 84)),
        ((3, 84, 84), (3, 84, 84)),
        ((84, 84), (1, 84, 84)),
        ((4, 84, 84), (4, 84, 84)),
        ((4, 84, 84, 3), (12, 84, 84)),
    ],
)
def test_images_have_their_channels_first_and_stay_bytes(shape, expected):
    found = observations_of(spaces.Box(0, 255, shape, np.uint8), "env")
    assert (found.shape, found.dtype) == (expected, np.uint8)
    assert found.encode(np.zeros(shape, np.uint8)).dtype == np.uint8


def test_the_red_channel_of_an_image_comes_first():
    image = np.zeros((8, 8, 3), np.uint8)
    image[..., 0], image[0, 1, 2] = 7, 9
    row = observations_of(spaces.Box(0, 255, (8, 8, 3), np.uint8), "env").encode(image)
    planes = row.reshape(3, 8, 8)
    assert (planes[0] == 7).all() and planes[2, 0, 1] == 9


def test_a_dictionary_is_put_together_in_the_order_of_its_space():
    space = spaces.Dict(
        {"b": spaces.Discrete(3, start=1), "a": spaces.Box(0, 1, (2,)), "action_mask": spaces.MultiBinary(2)}
    )
    found = observations_of(space, "env")
    assert [(part.name, part.kind, part.shape) for part in found.parts] == [
        ("a", "vector", (2,)),
        ("action_mask", "mask", (2,)),
        ("b", "vector", (3,)),
    ]
    row = found.encode({"a": np.array([0.5, 0.25]), "b": 2, "action_mask": np.array([1, 0])})
    assert row.tolist() == [0.5, 0.25, 1, 0, 0, 1, 0] and row.dtype == np.float32


def test_tuples_and_several_choices_are_one_hot():
    space = spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Discrete(2)))
    assert observations_of(space, "env").encode((np.array([1, 2]), 0)).tolist() == [0, 1, 0, 0, 1, 1, 0]


def test_a_mask_from_the_info_is_the_last_part():
    found = observations_of(spaces.Box(0, 1, (2,)), "env", mask=3)
    assert [part.name for part in found.parts] == ["", "action_mask"] and found.shape == (5,)


def test_an_observation_outside_its_space_is_refused():
    with pytest.raises(ValueError, match=r"shape \(3,\).*says \(2,\)"):
        observations_of(spaces.Box(0, 1, (2,)), "env").encode(np.zeros(3))
    with pytest.raises(ValueError, match="outside of its space"):
        observations_of(spaces.Discrete(3), "env").encode(3)


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2))])
def test_a_space_without_a_fixed_size_is_refused_in_one_line(space):
    with pytest.raises(UserError, match=r"^env: .*no fixed size"):
        observations_of(space, "env")


def test_discrete_actions_start_where_the_space_starts():
    rows = actions_of(spaces.Discrete(3, start=5), "env")
    assert rows.actions == Discrete(3) and rows.decode(np.array([2.0])) == 7


def test_several_choices_become_an_array_of_the_spaces_type():
    rows = actions_of(spaces.MultiDiscrete([2, 3], start=[0, 10]), "env")
    assert rows.actions == MultiDiscrete((2, 3)) and rows.decode(np.array([1.0, 2.0])).tolist() == [1, 12]
    binary = actions_of(spaces.MultiBinary(2), "env")
    assert binary.actions == MultiDiscrete((2, 2)) and binary.decode(np.array([1.0, 0.0])).dtype == np.int8


def test_continuous_actions_are_scaled_to_their_bounds():
    rows = actions_of(spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)), "env")
    assert rows.actions == Continuous(2) and rows.decode(np.array([0.5, -1.0], np.float32)).tolist() == [1.0, 0.0]


def test_continuous_actions_without_bounds_are_passed_on():
    rows = actions_of(spaces.Box(-np.inf, np.inf, (1,)), "env")
    assert rows.decode(np.array([0.5], np.float32)).tolist() == [0.5]


def test_actions_without_a_policy_are_refused_in_one_line():
    with pytest.raises(UserError, match=r"^env: its actions are Text"):
        actions_of(spaces.Text(3), "env")


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Taxi-v4", "FrozenLake-v1", "Blackjack-v1"])
def test_what_gymnasium_brings_is_understood(name):
    try:
        env = gymnasium.make(name)
    except gymnasium.error.DependencyNotInstalled as error:
        pytest.skip(str(error))
    except gymnasium.error.Error as error:
        pytest.skip(f"this Gymnasium has another version: {error}")
    found, rows = observations_of(env.observation_space, name), actions_of(env.action_space, name)
    assert found.encode(env.reset(seed=1)[0]).shape == (found.size,)
    env.step(rows.decode(np.zeros(rows.size, np.float32)))

"""Every recorded transition of the original environment, with its observations, shaped rewards and expert moves."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.expert import scripted_action
from lockstep.workloads.snake.rules import SnakeRules

RECORDING = Path(__file__).parents[4] / "shared/data/snake/transitions.jsonl.gz"

pytestmark = pytest.mark.skipif(not RECORDING.exists(), reason=f"no recording at {RECORDING}")


@pytest.fixture(scope="module")
def recording():
    with gzip.open(RECORDING, "rt") as file:
        lines = [json.loads(line) for line in file]
    groups = defaultdict(list)
    for line in lines:
        groups[line["grid"], line["max_steps"]].append(line)
    assert sum(len(group) for group in groups.values()) == 7801
    return groups


def advance(set_up, recording, scale=0.0):
    """Each group of lines with its environment after one step from `before`, and what the step returned."""
    for (grid, max_steps), lines in recording.items():
        rules = SnakeRules(grid_size=grid, max_steps=max_steps, distance_reward_scale=scale)
        env = set_up(rules, [line["before"] for line in lines])
        action = torch.tensor([line["action"] for line in lines])
        yield grid, lines, env, action


def flat(grid, cells):
    return [row * grid + column for row, column in cells]


def put_food(env, grid, lines):
    """Put every food where the recording has it."""
    env.food.copy_(torch.tensor([flat(grid, [line["after"]["food"]])[0] for line in lines]))


def test_state_reward_and_end_of_every_line_are_the_recorded_ones(set_up, recording):
    for grid, lines, env, action in advance(set_up, recording):
        done = env.advance(action)
        after = [line["after"] for line in lines]
        assert done.reward.tolist() == np.float32([line["reward"] for line in lines]).tolist()
        assert done.terminated.tolist() == [line["terminated"] for line in lines]
        assert done.truncated.tolist() == [line["truncated"] for line in lines]
        assert env.direction.tolist() == [state["direction"] for state in after]
        assert env.steps.tolist() == [state["steps"] for state in after]
        assert env.length.tolist() == done.info["length"].tolist() == [state["length"] for state in after]
        assert [env.cells(i) for i in range(len(lines))] == [flat(grid, state["snake"]) for state in after]


def test_food_moves_only_when_eaten_and_then_to_a_free_cell(set_up, recording):
    eaten = 0
    for grid, lines, env, action in advance(set_up, recording):
        env.advance(action)
        for i, line in enumerate(lines):
            if line["reward"] == 1.0:
                eaten += 1
                assert int(env.food[i]) not in env.cells(i)
            else:
                assert [int(env.food[i])] == flat(grid, [line["after"]["food"]])
    assert eaten == 941


def test_observations_are_the_recorded_ones(set_up, recording):
    compared = 0
    for grid, lines, env, action in advance(set_up, recording):
        env.advance(action)
        put_food(env, grid, lines)
        observation = env.load(env.state()).numpy()
        for i, line in enumerate(lines):
            if "obs" in line:
                compared += 1
                assert np.array_equal(observation[i], line["obs"])
    assert compared == 1002


def test_reset_observations_are_the_recorded_ones(recording):
    compared = 0
    for (grid, _), lines in recording.items():
        lines = [line for line in lines if "reset_obs" in line]
        if lines:
            env = SnakeEnv(SnakeRules(grid_size=grid), torch.arange(len(lines)), 0, torch.device("cpu"))
            env.reset()
            env.food.copy_(torch.tensor([flat(grid, [line["before"]["food"]])[0] for line in lines]))
            assert np.array_equal(env.load(env.state()).numpy(), [line["reset_obs"] for line in lines])
            compared += len(lines)
    assert compared == 59


def test_shaped_rewards_are_the_recorded_ones(set_up, recording):
    for grid, lines, env, action in advance(set_up, recording, scale=0.01):
        place = env._place_food

        def place_as_recorded(needs, place=place, env=env, grid=grid, lines=lines):
            place(needs)
            put_food(env, grid, lines)

        env._place_food = place_as_recorded
        reward = env.advance(action).reward
        assert reward.tolist() == np.float32([line["shaped_reward"] for line in lines]).tolist()


def test_the_experts_moves_are_the_recorded_ones(set_up, recording):
    drawn = 0
    for _, lines, env, _ in advance(set_up, recording):
        for move, line in zip(scripted_action(env).tolist(), lines, strict=True):
            drawn += line["expert"] is None
            assert move in range(4) if line["expert"] is None else move == line["expert"]
    assert drawn == 63

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from lockstep.workloads.snake import peers
from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.peers import PlainSnakeEnv
from lockstep.workloads.snake.rules import SnakeRules
from lockstep.workloads.snake.workload import Snake

RULES = [
    SnakeRules(grid_size=4, max_steps=30),
    SnakeRules(grid_size=5, time_limit="truncation", max_steps=9, frame_stack=3),
    SnakeRules(grid_size=6, distance_reward_scale=0.25, death_penalty=-2.0, food_reward=3.0, step_penalty=0.5),
]


@pytest.mark.parametrize("rules", RULES)
def test_the_plain_python_board_equals_the_tensor_board(rules):
    ours = SnakeEnv(rules, torch.arange(1), 3, torch.device("cpu"))
    plain = PlainSnakeEnv(rules)
    # The plain board draws its own food: use ours instead.
    plain._free_cell = lambda: divmod(int(ours.food), rules.grid_size)
    observation = ours.reset()
    assert np.array_equal(plain.reset()[0], observation[0].numpy())
    ends = set()
    for action in np.random.default_rng(0).integers(4, size=600).tolist():
        expected = ours.advance(torch.tensor([action]))
        seen, reward, terminated, truncated, _ = plain.step(action)
        assert reward == pytest.approx(float(expected.reward))
        assert (terminated, truncated) == (bool(expected.terminated), bool(expected.truncated))
        assert np.array_equal(seen, expected.observation[0].numpy())
        if terminated or truncated:
            ends.add("terminated" if terminated else "truncated")
            observation = ours.restart(torch.tensor([True]))
            assert np.array_equal(plain.reset()[0], observation[0].numpy())
    assert "terminated" in ends
    assert ("truncated" in ends) == rules.truncates


def test_the_last_food_wins():
    plain = PlainSnakeEnv(SnakeRules(grid_size=4))
    plain.reset()
    snake = [(r, c if r % 2 == 0 else 3 - c) for r in range(4) for c in range(4)]
    plain.snake, plain.food, plain.direction = snake[:-1], snake[-1], 0
    assert plain.step(0)[1:4] == (1.0, True, False)


def test_gymnasium_accepts_the_plain_board():
    check_env(PlainSnakeEnv(SnakeRules(grid_size=6)), skip_render_check=True)


def test_stable_baselines_trains_the_same_network_with_the_same_sizes():
    pytest.importorskip("stable_baselines3")
    config = Snake().preset("debug")
    learner = peers.sb3_learner(config, "cpu")
    assert (learner.n_envs, learner.n_steps, learner.batch_size, learner.n_epochs) == (16, 16, 64, 2)
    # Convolution 3 x 16 x 9 + 16, features 16 x 9 x 256 + 256, actor 256 x 4 + 4, critic 256 + 1.
    weights = sum(parameter.numel() for parameter in learner.policy.parameters())
    assert weights == 448 + 37_120 + 1_028 + 257
    before = learner.policy.action_net.weight.clone()
    assert peers.train_with_sb3(config, 2, "cpu") == 512
    assert learner.num_timesteps == 512
    assert not torch.equal(before, learner.policy.action_net.weight)
    assert peers.sb3_learner(Snake().preset("debug"), "cpu") is learner

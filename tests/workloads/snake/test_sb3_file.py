"""Archives of Stable-Baselines3 as weights of Snake's network."""

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.run.warm_start import Fitting
from lockstep.workloads.snake.gym import SnakeGymEnv
from lockstep.workloads.snake.problem import snake_problem
from lockstep.workloads.snake.sb3 import PlainFeatures, SnakeFeatures
from lockstep.workloads.snake.sb3_file import read_sb3
from lockstep.workloads.snake.workload import Snake

SNAKE = Snake()


def config_of(**changes):
    return SNAKE.preset("debug").replace(**{"policy_depth": 2, **changes})


def network_of(config):
    return config.network.build(snake_problem(config.workload, World()), config)


def save(path, net_arch, features=SnakeFeatures, architecture="scalable"):
    """A real archive of PPO's, with an own extractor and layers of SB3's on top."""
    ppo = pytest.importorskip("stable_baselines3").PPO
    extractor = {"architecture": architecture, "width": 16, "depth": 2}
    own = {"features_extractor_class": features, "features_extractor_kwargs": extractor, "normalize_images": False}
    boards = SnakeGymEnv(grid_size=6)
    model = ppo("MlpPolicy", boards, n_steps=8, batch_size=8, policy_kwargs={**own, "net_arch": net_arch}, seed=1)
    model.save(path)
    return model.policy


@pytest.mark.parametrize("features", [SnakeFeatures, PlainFeatures])
@pytest.mark.parametrize("architecture", ["tiny", "scalable", "deep"])
def test_a_policy_with_our_layers_is_the_same_function(tmp_path, features, architecture):
    # The layers of PlainFeatures are numbered differently: they are matched by their order.
    policy = save(tmp_path / "model.zip", [], features, architecture)
    config = config_of(policy_arch=architecture, policy_width=16)
    network = network_of(config)
    network.load_state_dict(read_sb3(config, tmp_path / "model.zip"))
    boards = torch.randint(0, 2, (5, 3, 6, 6), generator=torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        logits, value = network(boards)
        theirs = policy.get_distribution(boards).distribution.logits
        torch.testing.assert_close(logits.log_softmax(-1), theirs, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(value, policy.predict_values(boards).squeeze(-1), atol=1e-5, rtol=1e-5)


def test_of_a_policy_with_more_layers_the_extractor_is_taken_and_the_rest_is_named(tmp_path):
    save(tmp_path / "model.zip", [64, 64])
    config = config_of()
    fitting = Fitting.of(read_sb3(config, tmp_path / "model.zip"), network_of(config).state_dict())
    assert {name.split(".")[0] for name in fitting.taken} == {"features", "actor", "critic"}
    assert fitting.misfits == (
        "actor.weight ((4, 64) there, (4, 256) here)",
        "critic.weight ((1, 64) there, (1, 256) here)",
    )
    assert len(fitting.unused) == 8 and all(name.startswith("mlp_extractor.") for name in fitting.unused)


def test_of_another_depth_the_layers_that_both_have_are_taken(tmp_path):
    save(tmp_path / "model.zip", [])
    config = config_of(policy_depth=3)
    fitting = Fitting.of(read_sb3(config, tmp_path / "model.zip"), network_of(config).state_dict())
    assert fitting.misfits == () and len(fitting.new) == 2
    assert "features.9.weight" in fitting.taken, "the linear layer, though it has another number"


def test_an_archive_of_something_else_is_refused_in_one_line(tmp_path):
    ppo = pytest.importorskip("stable_baselines3").DQN
    ppo("MlpPolicy", SnakeGymEnv(grid_size=6), buffer_size=10, policy_kwargs={"net_arch": [8]}).save(tmp_path / "q.zip")
    with pytest.raises(UserError, match="not a policy of Stable-Baselines3's PPO") as caught:
        read_sb3(config_of(), tmp_path / "q.zip")
    assert "\n" not in str(caught.value)

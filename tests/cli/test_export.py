"""`lockstep export`: what other programs read back is what we had, decision by decision."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open

from lockstep.cli.main import main
from lockstep.distributed.world import World
from lockstep.storage.weights import load_weights
from lockstep.workloads.snake import expert
from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.problem import snake_problem
from lockstep.workloads.snake.workload import Snake

DEBUG = Snake().preset("debug")
VARIANTS = {
    "scalable": DEBUG.replace(grid_size=7, policy_depth=2),
    "tiny": DEBUG.replace(policy_arch="tiny", frame_stack=2),
    "deep": DEBUG.replace(policy_arch="deep"),
}


def boards(config, count=1000):
    """Observations from games of the scripted player, snakes of many lengths among them."""
    env = SnakeEnv(config.workload, torch.arange(50), 1, torch.device("cpu"))
    observation, found = env.reset(), []
    for _ in range(count // 50):
        found.append(observation.clone())
        for _ in range(4):
            observation = env.step(expert.scripted_action(env)).observation
    return torch.cat(found)[:count]


def answers(run, config, observation):
    network = config.network.build(snake_problem(config.workload, World()), config)
    network.load_state_dict(load_weights(run)[0])
    with torch.no_grad():
        return network(observation)


def complaint(capsys, *words):
    assert main(["export", *map(str, words)]) == 2
    out = capsys.readouterr()
    assert out.err.count("\n") == 1
    return out.err


@pytest.mark.parametrize("variant", VARIANTS)
def test_stable_baselines_takes_the_same_actions(store_run, tmp_path, variant, capsys):
    sb3 = pytest.importorskip("stable_baselines3")
    config = VARIANTS[variant]
    run = store_run(tmp_path, variant, config)
    assert main(["export", str(run), "--format", "sb3", "--output", str(tmp_path / "model.zip")]) == 0
    player = sb3.PPO.load(tmp_path / "model.zip", device="cpu")
    observation = boards(config)
    logits, value = answers(run, config, observation)
    assert len({*logits.argmax(-1).tolist()}) > 1, "a network of one mind would prove nothing"
    actions, _ = player.predict(observation.numpy().astype(np.float32), deterministic=True)
    assert actions.tolist() == logits.argmax(-1).tolist()
    with torch.no_grad():
        assert torch.allclose(player.policy.predict_values(observation.float()).squeeze(-1), value, atol=1e-5)
    assert not [name for name in player.policy.state_dict() if "module." in name]
    assert player.observation_space.shape == snake_problem(config.workload, World()).observation_shape


def test_stable_baselines_can_train_on(store_run, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    from lockstep.workloads.snake.gym import SnakeGymEnv

    run = store_run(tmp_path, "demo", DEBUG)
    assert main(["export", str(run), "--format", "sb3", "--output", str(tmp_path / "model.zip")]) == 0
    player = sb3.PPO.load(tmp_path / "model.zip", env=SnakeGymEnv(grid_size=DEBUG.workload.grid_size), device="cpu")
    player.learn(DEBUG.algorithm.n_steps)
    assert player.num_timesteps == DEBUG.algorithm.n_steps


@pytest.mark.parametrize("variant", VARIANTS)
def test_onnx_gives_the_same_numbers_for_any_batch(store_run, tmp_path, variant, capfd):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    config = VARIANTS[variant]
    run = store_run(tmp_path, variant, config)
    assert main(["export", str(run), "--format", "onnx"]) == 0
    path = run / "export" / "step-000000001234.onnx"
    out = capfd.readouterr()
    assert (out.err, out.out.count("\n")) == ("", 1), "the exporter spoke"
    assert list(path.parent.iterdir()) == [path]
    session = onnxruntime.InferenceSession(path)
    assert [node.name for node in session.get_inputs()] == ["observation"]
    for count in (1, 7, 1000):
        observation = boards(config)[:count]
        logits, value = answers(run, config, observation)
        found = session.run(["logits", "value"], {"observation": observation.numpy().astype(np.float32)})
        assert found[0].shape == (count, 4)
        np.testing.assert_allclose(found[0], logits.numpy(), atol=1e-5)
        np.testing.assert_allclose(found[1], value.numpy(), atol=1e-5)


def test_safetensors_describe_themselves_and_can_be_evaluated(at_runs, tmp_path, capsys):
    assert main(["export", "demo", "--output", "model.safetensors"]) == 0
    with safe_open("model.safetensors", "pt") as file:
        about = file.metadata()
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    assert (about["workload"], about["step"]) == ("snake", "1234")
    assert json.loads(about["config"])["max_steps"] == 60
    ours = load_weights(at_runs)[0]
    assert stored.keys() == ours.keys()
    assert all(torch.equal(stored[name], ours[name]) for name in ours)
    capsys.readouterr()
    found = []
    for name in ("demo", "model.safetensors"):
        assert main(["eval", name, "--episodes", "5", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["episode_returns"] == found[1]["episode_returns"]
    assert found[1]["step"] == 1234


def test_without_an_output_the_file_lies_in_the_run(at_runs, capsys):
    assert main(["export", "demo/final"]) == 0
    assert (at_runs / "export" / "step-000000001234.safetensors").exists()
    # Convolution 3*9*16 + 16, features 16*3*3*256 + 256, actor 256*4 + 4, critic 256 + 1.
    assert "step-000000001234.safetensors: safetensors, 38,853 parameters" in capsys.readouterr().out


def test_wrong_words_are_told_in_one_line(at_runs, capsys):
    assert "allowed: safetensors, sb3, onnx" in complaint(capsys, "demo", "--format", "keras")
    assert "the nearest is onnx" in complaint(capsys, "demo", "--format", "onxx")
    assert "has no weights" in complaint(capsys, "snake")
    assert "is a directory" in complaint(capsys, "demo", "--output", "runs")


@pytest.mark.parametrize(("form", "module"), [("sb3", "stable_baselines3"), ("onnx", "onnxscript")])
def test_a_missing_package_is_named_with_its_extra(at_runs, capsys, monkeypatch, form, module):
    monkeypatch.setitem(sys.modules, module, None)
    told = complaint(capsys, "demo", "--format", form)
    assert f"needs the package {module}; pip install 'lockstep-train[{form}]'" in told
    assert list((at_runs / "export").iterdir()) == []


def test_a_folder_does_not_take_the_place_of_a_file(tmp_path):
    from lockstep.cli import export
    from lockstep.errors import UserError

    taken = tmp_path / "taken.yaml"
    taken.write_text("mine")
    with pytest.raises(UserError, match="not written"):
        export._write(taken, lambda path: path.mkdir())
    assert [path.name for path in tmp_path.iterdir()] == ["taken.yaml"] and taken.read_text() == "mine"

"""Trained models of every workload outside of their runs: loaded in Python, as ONNX graphs, as programs of torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import lockstep
from lockstep.cli.main import main
from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.weights import save_weights
from lockstep.workloads import registry

HERE = Path(__file__).parent / "gym"
TINY = {
    "num_envs": 4, "n_steps": 8, "seed_steps": 32, "batch_size": 16, "buffer_size": 2000, "steps": 4000,
    "enc_dim": 16, "mlp_dim": 16, "latent_dim": 16, "num_q": 2, "mpc": False,
}  # fmt: skip
GYM = {"env_workers": 1}
POLICIES = {
    "snake": ("snake", {}),
    "trading": ("trading", {}),
    "trading with two LSTMs": ("trading", {"lstms": "two"}),
    "trading with clstm": ("trading", {"network": "clstm", "hidden_size": 16}),
    "snakes3v3": ("snakes3v3", {}),
    "snakes3v3 with bicnet": ("snakes3v3", {"algo": "bicnet"}),
    "control": ("control", {"mpc": False}),
    "gym": ("gym", GYM | {"env_id": "CartPole-v1"}),
    "gym, squashed": ("gym", GYM | {"env_id": "Pendulum-v1", "squash": True, "normalize_observation": True}),
    "gym, recurrent": ("gym", GYM | {"env_id": "CartPole-v1", "lstm_size": 8, "batch_size": 128}),
    "gym, images": ("gym", GYM | {"env_id": f"{HERE}/gym_envs.py:Pictures"}),
    "gym, masked": ("gym", GYM | {"env_id": f"{HERE}/gym_envs.py:Masked"}),
    "gym, a team": ("gym", GYM | {"env_id": f"{HERE}/relay.py:Steady", "algorithm": "maddpg"}),
    "gym, a team with images": ("gym", GYM | {"env_id": f"{HERE}/relay.py:Pictures", "algorithm": "maddpg"}),
    "gym, a world model": ("gym", GYM | TINY | {"env_id": "Pendulum-v1", "algorithm": "tdmpc2"}),
}
"""Workloads whose models act: the debug preset, and what differs from it."""
QUICK = ("trading", "gym, a team")
"""Exported by every test run, since tracing takes seconds; the others by the slow tests."""
NEEDS = {"control": "dm_control", "a team": "pettingzoo"}


def stored(folder, case):
    """A run with first weights, whose decisions are made clear: rounding must not change them."""
    for word, package in NEEDS.items():
        if word in case:
            pytest.importorskip(package)
    workload, changes = POLICIES[case]
    chosen = registry.load(workload)
    choices = {name: changes.get(name, "") for name in ("algorithm", "network")}
    text = to_yaml(chosen.preset("debug", **choices).replace(device="cpu", threads=1, **changes))
    learner = open_learner(World(), workload, text)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in learner.model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    run = RunDirectory.named(folder, case.replace(" ", "-").replace(",", ""))
    run.prepare()
    run.write_config(text, workload)
    weights = dict(learner.model.state_dict())
    save_weights(run.path / "final", weights, config_text=text, workload=workload, step=7, extra={})
    return run.path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Makes the run of a case, once."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    return lambda case: made[case] if case in made else made.setdefault(case, stored(folder, case))


def seen(policy, count):
    """Observations as the network gets them, with all actions allowed where there is a mask."""
    shape = policy._trained.learner.observation_shape
    values = torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))
    if policy.config.get("env_id", "").endswith("Pictures"):
        return (255 * values).to(torch.uint8)
    if policy.config.get("env_id", "").endswith("Masked"):
        values[:, -2:] = 1.0
    return values


@pytest.mark.parametrize("case", POLICIES)
def test_a_loaded_policy_acts_on_one_observation_and_on_a_batch_alike(runs, case):
    policy = lockstep.load(runs(case))
    observation = seen(policy, 3).numpy()
    if "image" in case and "team" not in case:
        observation = observation.transpose(0, 2, 3, 1)  # as the environment gives them
    if "masked" in case:
        observation = observation[:, :-2]
    several = np.asarray(policy.act(observation))
    assert len(several) == 3
    # A recurrent policy remembers what it has seen.
    policy.forget()
    alone = []
    for row in observation:
        alone.append(policy.act(row))
        policy.forget()
    np.testing.assert_allclose(np.stack(alone), several, atol=1e-5)


def inputs_of(policy, observation):
    """Everything that a program is called with, and the policy's own answer."""
    learner = policy._trained.learner
    program = policy._subject.workload.program(policy._subject.config, learner)
    memory = {name: torch.zeros(len(observation), *part.shape[1:]) for name, part in program.inputs.items()}
    memory.pop("observation")
    action, _ = learner.player(0).act(observation)
    return {"observation": observation, **memory}, action, program.outputs


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in POLICIES]
)
def test_an_onnx_graph_takes_the_actions_of_the_policy(runs, case, tmp_path, capfd):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run = runs(case)
    assert main(["export", str(run), "--format", "onnx", "--output", str(tmp_path / "model.onnx")]) == 0
    out = capfd.readouterr()
    assert (out.err, out.out.count("\n")) == ("", 1), "the exporter spoke"
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    policy = lockstep.load(run)
    for count in (1, 5):
        inputs, action, names = inputs_of(policy, seen(policy, count))
        assert [node.name for node in session.get_inputs()] == list(inputs)
        found = dict(zip(names, session.run(names, {k: v.numpy() for k, v in inputs.items()}), strict=True))
        np.testing.assert_allclose(found["action"], action.numpy(), atol=1e-5)


READER = """
import sys, torch
sys.modules["lockstep"] = None  # importing it fails
for folder in sys.argv[1:]:
    inputs = torch.load(f"{folder}/inputs.pt", weights_only=True)
    outputs = torch.export.load(f"{folder}/model.pt2").module()(*inputs)
    torch.save(tuple(outputs), f"{folder}/outputs.pt")
"""


@pytest.mark.parametrize("cases", [QUICK, pytest.param([*POLICIES], marks=pytest.mark.slow)], ids=["quick", "all"])
def test_programs_of_torch_take_the_actions_of_the_policies_where_there_is_no_lockstep(runs, tmp_path, cases):
    expected = {}
    for number, case in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert main(["export", str(runs(case)), "--format", "torch", "--output", str(folder / "model.pt2")]) == 0
        policy = lockstep.load(runs(case))
        inputs, action, names = inputs_of(policy, seen(policy, 5))
        torch.save(tuple(inputs.values()), folder / "inputs.pt")
        expected[folder] = case, action, names
    subprocess.run([sys.executable, "-c", READER, *map(str, expected)], check=True)
    for folder, (case, action, names) in expected.items():
        found = dict(zip(names, torch.load(folder / "outputs.pt", weights_only=True), strict=True))
        torch.testing.assert_close(found["action"], action, rtol=0, atol=1e-5, msg=case)


def test_an_exported_world_model_says_that_it_does_not_plan():
    pytest.importorskip("dm_control")
    config = registry.load("control").preset("debug")
    learner = open_learner(World(), "control", to_yaml(config.replace(device="cpu", threads=1)))
    assert learner.program().note == "the policy prior alone, as planning cannot be exported"


def test_a_model_of_several_tasks_is_told_which_one_it_is():
    pytest.importorskip("dm_control")
    config = (
        registry.load("control")
        .preset("debug")
        .replace(task="mt30", num_envs=30, lanes=3, batch_size=18, seed_steps=120, steps=3000, device="cpu", threads=1)
    )
    program = open_learner(World(), "control", to_yaml(config)).program()
    assert list(program.inputs) == ["observation", "task"] and program.inputs["task"].dtype == torch.int64
    # Two tasks with the same numbers to see: their actions differ, and the second task has one component.
    tasks = torch.tensor([config.workload.tasks.index(name) for name in ("walker-stand", "pendulum-swingup")])
    (action,) = program.module(torch.ones(2, 24), tasks)
    assert action.shape == (2, 6) and bool((action[1, 1:] == 0).all()) and action[0].abs().min() > 0

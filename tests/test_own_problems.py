"""The short examples of own problems, run as a user would, from a folder outside the repository."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import lockstep
from lockstep.cli.main import main
from lockstep.storage.checkpoint import weights_hash

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {"preset": "debug", "max_updates": 2, "threads": 1, "eval_every": 0, "quiet": True}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Another folder, from which the examples are found as modules, by workers, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH")))))
    return tmp_path


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


def test_a_registered_environment_from_python(elsewhere):
    run, score = example("cartpole").main(**SHORT)
    assert run.status.step == 2 * 256 and score >= 8


def test_a_team_of_agents_from_python(elsewhere):
    pytest.importorskip("pettingzoo")
    small = SHORT | {"n_envs": 8, "n_steps": 8, "total_timesteps": 10_000}
    assert example("rendezvous").main(**small).status.step == 2 * 64


@pytest.mark.parametrize("name", ["maze.py", "tensor_env.py"])
def test_a_file_of_mine(elsewhere, name):
    arguments = ["--preset", "debug", "--max-updates", "2", "--threads", "1", "--run-name", "mine"]
    assert main(["train", str(EXAMPLES / name), *arguments]) == 0
    assert main(["eval", "runs/mine", "--episodes", "2"]) == 0


def test_a_maze_is_without_fault(elsewhere, capsys):
    assert main(["check", str(EXAMPLES / "maze.py"), "--steps", "60", "--ranks", "1"]) == 0
    assert main(["check", "tensor_env:Table", "--steps", "60", "--ranks", "1"]) == 0


@pytest.mark.parametrize(("name", "package"), [("vmas_env:Balance", "vmas"), ("jax_env:Pendulums", "jax")])
def test_environments_of_other_frameworks(elsewhere, name, package):
    pytest.importorskip(package)
    assert lockstep.train(name, runs_dir=elsewhere, **SHORT).status.step == 2 * 256
    assert main(["check", name, "--steps", "60", "--ranks", "1"]) == 0


def test_an_installed_package_announces_a_workload(elsewhere, monkeypatch, capsys):
    from importlib.metadata import EntryPoint

    from lockstep.workloads import registry

    point = EntryPoint("labyrinth", "maze:Maze", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "installed", lambda: {"labyrinth": point})
    registry.load.cache_clear()
    assert registry.load("labyrinth").defaults["env_id"] == "maze:Maze"
    assert main(["list"]) == 0
    assert "labyrinth: maze:Maze, of an installed package" in capsys.readouterr().out.splitlines()
    registry.load.cache_clear()


PICTURES = """
import gymnasium, numpy


class Pictures(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (12, 12, 3), numpy.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.drawn(), {}

    def drawn(self):
        return self.np_random.integers(0, 256, (12, 12, 3), dtype=numpy.uint8)

    def step(self, action):
        self.steps += 1
        return self.drawn(), float(action), self.steps == 40, False, {}
"""
PROMISED = {
    "CartPole-v1": ("gym", {"env_id": "CartPole-v1"}),
    "Hopper-v5": ("gym", {"env_id": "Hopper-v5", "normalize_observation": True, "normalize_reward": True}),
    "images": ("pictures:Pictures", {"cnn_features": 32}),
    "vmas": ("vmas_env:Balance", {}),
    "fit": ("digits:Digits", {"preset": "base", "batch_size": 128, "epochs": 1}),
}
PACKAGES = {"Hopper-v5": "mujoco", "vmas": "vmas", "fit": "sklearn"}


@pytest.fixture(params=PROMISED)
def promised(request, elsewhere, monkeypatch):
    """A problem from outside and its settings, which ranks find as well."""
    name = request.param
    pytest.importorskip(PACKAGES.get(name, "gymnasium"), reason=f"{name} needs a package that is not installed")
    (elsewhere / "pictures.py").write_text(PICTURES)
    monkeypatch.syspath_prepend(str(elsewhere))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(elsewhere), os.environ["PYTHONPATH"])))
    return PROMISED[name]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # seven trainings, most of them on several ranks
def test_problems_from_outside_end_in_one_hash_on_any_ranks_and_after_a_kill(promised, monkeypatch, capfd):
    problem, own = promised
    exact = {"max_updates": 4, "sync": "exact", "device": "cpu", "checkpoint_every": 256, "runs_dir": "runs"}

    def trained(**settings):
        return weights_hash(lockstep.train(problem, **(SHORT | exact | own | settings)).weights())

    one = trained()
    assert trained(ranks=2) == one and trained(ranks=3) == one
    trained(ranks=2, run_name="stopped", max_updates=2)
    assert trained(ranks=3, run_name="stopped") == one
    with monkeypatch.context() as killed:
        capfd.readouterr()
        killed.setenv("LOCKSTEP_FAULTS", "kill@rank=1,at=3,attempt=0")
        assert trained(ranks=2, run_name="killed", quiet=False) == one
    assert "was killed by SIGKILL" in "".join(capfd.readouterr())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_problems_from_outside_are_verified(promised):
    problem, own = promised
    arguments = [word for key, value in own.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    assert main(["verify", problem, *arguments, "--ranks", "1,2,3", "--updates", "4", "--device", "cpu"]) == 0


SCORES = {
    "CartPole-v1": (475, {"total_timesteps": 150_000}),
    "Pendulum-v1": (
        -250,
        {
            "total_timesteps": 150_000,
            "n_envs": 8,
            "n_steps": 256,
            "learning_rate": 1e-3,
            "gamma": 0.9,
            "normalize_reward": True,
        },
    ),
    "LunarLander-v3": (
        200,
        {
            "total_timesteps": 1_000_000,
            "n_envs": 16,
            "n_steps": 1024,
            "batch_size": 64,
            "n_epochs": 4,
            "gamma": 0.999,
            "gae_lambda": 0.98,
            "ent_coef": 0.01,
            "threads": 1,
        },
    ),
}


@pytest.mark.slow
def test_a_team_is_learned(elsewhere):
    run = example("rendezvous").main(total_timesteps=20_000, quiet=True, threads=1)
    # Agents that move at random stay apart and get about -10.
    assert lockstep.evaluate(run, episodes=100)["return_mean"] > -4


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_environments_are_learned(elsewhere, name):
    if name == "LunarLander-v3":
        pytest.importorskip("Box2D")
    score, settings = SCORES[name]
    run = lockstep.train("gym", env_id=name, runs_dir=elsewhere, eval_every=50_000, quiet=True, **settings)
    assert lockstep.evaluate(run, episodes=50)["return_mean"] >= score

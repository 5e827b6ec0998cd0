"""Control as a whole: presets, settings, checks before a run starts, and learning from data."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from lockstep.algorithms.tdmpc2.experience.streaming import StreamedSequences
from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.pool import RankError
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.workloads.control import names
from lockstep.workloads.control.settings import ControlSettings
from lockstep.workloads.control.workload import Control

CONTROL = Control()


def debug(**changes):
    """The debug preset, with changes."""
    return CONTROL.preset("debug").replace(**changes)


def base(**changes):
    """The base preset, with changes."""
    return CONTROL.preset("base").replace(**changes)


def refusal(*arguments):
    """The one-line error for these arguments."""
    with pytest.raises(UserError) as caught:
        CONTROL.resolve("base", overrides=arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def needs_dm_control():
    pytest.importorskip("dm_control")


def test_the_keys_of_the_guide_are_accepted():
    arguments = [
        "task=dog-run",
        "model_size=5",
        "batch_size=256",
        "sync_freq=2",
        "horizon=3",
        "buffer_size=500000",
        "steps=20000000",
    ]
    arguments += [
        "eval_freq=100000",
        "enable_wandb=true",
        "wandb_project=mine",
        "wandb_entity=us",
        "seed=1",
        "mpc=true",
        "num_samples=512",
        "compile=false",
    ]
    config = CONTROL.resolve("base", overrides=arguments).config
    run, algorithm = config.run, config.algorithm
    assert (config.workload.task, algorithm.steps, algorithm.sync_freq) == ("dog-run", 20_000_000, 2)
    assert run.wandb and (run.wandb_project, run.wandb_entity) == ("mine", "us")
    assert run.compile == "none" and run.eval_every == 100_000


def model_of(config):
    from lockstep.workloads.control.problem import control_problem

    return config.network.build(control_problem(config.workload), config)


def test_walker_walk_at_size_5_has_the_official_number_of_parameters():
    config = base()
    assert config.workload.task == "walker-walk" and config.network.model_size == 5
    assert model_of(config).trained_parameters() == 4_960_618


@pytest.mark.parametrize(
    ("task", "size", "latent", "embedding"),
    [("mt30", 5, 512, 64), ("mt30", 19, 512, 64), ("mt30", 1, 128, 96), ("mt80", 19, 768, 96), ("mt80", 317, 1376, 96)],
)
def test_task_sets_have_the_sizes_of_the_public_checkpoints(task, size, latent, embedding):
    config = CONTROL.config(task=task, model_size=size)
    other = config.workload.other_sizes
    assert [config.network.size(part, other) for part in ("latent_dim", "task_dim")] == [latent, embedding]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["task=walker-wlak"], "task 'walker-wlak': unknown; the nearest are walker-walk"),
        (["model_size=7"], "model_size 7: no such size; the nearest is 5"),
        (["horizon=0"], "horizon 0 .*from 1 to 64"),
        (["task_dim=8"], "task_dim 8: walker-walk is one task"),
        (["task=mt30", "episodic=true"], "episodic true: the tasks of mt30 never terminate"),
        (["task=mt30", "algorithm=ppo"], "task mt30: ppo learns one task at a time; choose one, or --algorithm tdmpc2"),
        (["world_size=8"], "world_size 8 .*not a setting of a run; .*--gpus N or --ranks N"),
        (["exp_name=mine"], "exp_name mine .*allowed: default; .*--run-name NAME"),
        (["--save-video", "true"], "allowed: false; .*`lockstep play RUN --video FILE`"),
        (["ranks=2"], "ranks 2 .*not a setting of a run; .*--gpus N or --ranks N"),
        (["master_addr=10.0.0.7"], "master_addr 10.0.0.7 .*for several, use --nnodes N --rdzv-endpoint HOST:PORT"),
        (["obs=depth"], "obs depth .*allowed: one of state, rgb"),
        (["obs=rgb", "task=mt30"], "obs rgb: task mt30 is observed by its numbers only"),
        (["obs=rgb", "algorithm=ppo"], "obs rgb: ppo has no encoder for images"),
        (["obs=rgb", "data_dir=data"], "obs rgb: recorded episodes hold numbers"),
        (["obs=rgb", "latent_dim=24"], "latent_dim 24 must be a multiple of 16"),
        (["obs=rgb", "buffer_size=9"], "buffer_size 9 and steps .*must be at least 10"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(arguments, message):
    assert re.search(message, refusal(*arguments))


def test_a_file_with_the_official_programs_keys_is_accepted(tmp_path):
    keys = {
        **{"task": "dog-run", "obs": "state", "episodic": "false", "eval_episodes": 10, "eval_freq": 50_000},
        **{"steps": 10_000_000, "batch_size": 256, "reward_coef": 0.1, "value_coef": 0.1, "termination_coef": 1},
        **{"consistency_coef": 20, "rho": 0.5, "lr": 3e-4, "enc_lr_scale": 0.3, "grad_clip_norm": 20, "tau": 0.01},
        **{"discount_denom": 5, "discount_min": 0.95, "discount_max": 0.995, "buffer_size": 1_000_000},
        **{"exp_name": "default", "mpc": "true", "iterations": 6, "num_samples": 512, "num_elites": 64},
        **{"num_pi_trajs": 24, "horizon": 3, "min_std": 0.05, "max_std": 2, "temperature": 0.5, "log_std_min": -10},
        **{"log_std_max": 2, "entropy_coef": 1e-4, "num_bins": 101, "vmin": -10, "vmax": 10, "num_enc_layers": 2},
        **{"enc_dim": 256, "num_channels": 32, "mlp_dim": 512, "latent_dim": 512, "num_q": 5, "dropout": 0.01},
        **{"simnorm_dim": 8, "wandb_project": "mine", "wandb_entity": "me", "wandb_silent": "false"},
        **{"enable_wandb": "false", "save_csv": "true", "compile": "true", "save_video": "false"},
        **{"save_agent": "true", "seed": 1, "master_addr": "localhost"},
    }
    (tmp_path / "official.yaml").write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    config = CONTROL.resolve("base", config_file=str(tmp_path / "official.yaml")).config
    assert (config.workload.task, config.algorithm.steps) == ("dog-run", 10_000_000)
    assert config.network.size("mlp_dim") == 512 and config.run.compile == "auto"


def test_a_missing_package_is_named_before_anything_starts(monkeypatch):
    monkeypatch.setattr(names, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"needs dm_control; pip install 'lockstep-train\[control\]'"):
        CONTROL.fit(base(), ())


def test_gymnasium_tasks_get_the_official_programs_settings():
    config, lines = CONTROL.fit(debug(task="Pendulum-v1"), {"rho"})
    assert config.algorithm.discount_max == 0.99 and config.algorithm.rho == 0.5 and len(lines) == 1


@pytest.mark.parametrize(
    ("task", "message"), [("Foo-v1", "no such environment"), ("Pendulm-v1", "Pendulum"), ("CartPole-v1", "continuous")]
)
def test_a_task_that_gymnasium_does_not_have_is_refused_before_anything_starts(task, message):
    with pytest.raises(UserError, match=f"task {task}: .*{message}") as caught:
        CONTROL.fit(base(task=task), ())
    assert "\n" not in str(caught.value)


def test_deepmind_control_tasks_are_checked_without_gymnasium_torch_or_a_simulator():
    code = (
        "import sys; sys.argv = ['lockstep'];"
        "from lockstep.workloads.control.workload import Control; Control().fit(Control().preset('base'), ());"
        "print([heavy for heavy in ('torch', 'gymnasium', 'dm_control', 'mujoco', 'numpy') if heavy in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.stdout == b"[]\n", done.stderr


def test_a_task_set_keeps_its_own_discount():
    config, lines = CONTROL.fit(base(task="mt30"), ())
    own = base().algorithm
    assert (config.algorithm.discount_max, config.algorithm.rho) == (own.discount_max, own.rho)
    assert not [line for line in lines if "by the rules" in line]


def test_a_task_set_gets_an_environment_for_each_task():
    config, lines = CONTROL.fit(base(task="mt30"), ())
    assert config.algorithm.num_envs == 30 and lines == ["num_envs 30: one environment per task of mt30"]
    assert CONTROL.fit(base(task="mt30", num_envs=60), {"num_envs"}) == (
        base(task="mt30", num_envs=60),
        [],
    )


@pytest.mark.parametrize(("count", "near"), [(1, "30"), (32, "30 or 60")])
def test_a_task_set_without_environments_for_every_task_is_refused(count, near):
    with pytest.raises(
        UserError, match=f"num_envs {count} must be a multiple of the 30 tasks of mt30; nearest: {near}$"
    ):
        CONTROL.fit(base(task="mt30", num_envs=count), {"num_envs"})


def test_a_task_set_learned_from_data_may_have_any_number_of_environments():
    config = CONTROL.config(task="mt30", data_dir="data")
    assert not config.workload.acts_in_several(config.algorithm) and config.effective_lanes == 8


@pytest.mark.parametrize(
    ("task", "envs", "batch", "lanes"),
    [("mt30", 30, 256, 2), ("mt30", 30, 240, 6), ("mt30", 60, 256, 4), ("mt30", 120, 256, 8), ("mt80", 80, 256, 8)],
)
def test_the_lanes_of_a_task_set_divide_its_environments_and_its_batch(task, envs, batch, lanes):
    config = CONTROL.config(task=task, num_envs=envs, batch_size=batch)
    assert config.effective_lanes == lanes
    assert config.for_world(lanes).effective_lanes == lanes


@pytest.mark.parametrize("ranks", range(1, 9))
def test_weak_scaling_multiplies_the_environments_of_a_task_set(ranks):
    config = CONTROL.config(task="mt30", num_envs=30, scaling="weak").for_world(ranks)
    assert config.algorithm.num_envs == 30 * ranks and config.effective_lanes >= ranks


def test_lanes_that_do_not_fit_a_task_set_are_refused_with_the_smallest_fit():
    with pytest.raises(UserError, match="num_envs 1: mt30 on 8 lanes needs a multiple of 120"):
        CONTROL.config(task="mt30", lanes=8)


@pytest.mark.parametrize("name", CONTROL.presets)
def test_presets_state_their_ratio_of_updates(name):
    rows = dict(CONTROL.preset(name).work(str))
    assert "update(s) a step" in rows["batch"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Episodes of random actions."""
    pytest.importorskip("dm_control")
    folder = tmp_path_factory.mktemp("data")
    from lockstep.workloads.control.recording import record_episodes

    settings = ControlSettings(task="cartpole-balance", episode_length=12, env_workers=1)
    record_episodes(settings, "random", 11, 3, folder)
    return folder


def offline(folder, **changes):
    about = {"task": "cartpole-balance", "episode_length": 12, "data_dir": str(folder), "n_steps": 6, "lanes": 4}
    return debug(**{**about, **changes})


def test_a_run_can_learn_from_episodes_alone(data):
    config, lines = CONTROL.fit(offline(data), ())
    # A step has 2 x 5 + 1 + 1 numbers and a flag; a batch 16 x (4 x 5 + 3 x 3) numbers and a task, three times.
    held = "0.00 GiB on the devices, or streamed with 0.0 MiB on the hosts where it does not fit"
    assert lines == [f"data         11 episodes, 132 steps in {data}; {held}"]
    learner = open_learner(World(), "control", to_yaml(config))
    report = learner.step()[0]
    assert learner.steps == learner.gradient_updates == 6 and report["train/updates_per_step"].mean == 1.0
    (data,) = learner._collectors
    # The last lane has every fourth episode from 3 on: 3 and 7.
    assert data.memory._filled.flatten().tolist() == [36, 36, 36, 24]
    assert len(learner.evaluate(2, seed=1).returns) == 2


def train_offline(world, text):
    """The hash of the weights after some updates. Called by every rank."""
    from lockstep.storage.checkpoint import weights_hash

    learner = open_learner(world, "control", text)
    learner.step()
    return weights_hash(dict(learner.model.state_dict()))


def test_learning_from_data_gives_the_same_weights_on_any_number_of_ranks(ranks, data):
    text = to_yaml(offline(data, sync="exact", threads=1, device="cpu"))
    assert len({ranks.run(train_offline, text, ranks=size)[0] for size in (1, 3)}) == 1


@pytest.mark.parametrize("size", [1, 2])
def test_streamed_data_gives_the_same_weights_as_data_on_the_device(ranks, data, size):
    text, streamed = (
        to_yaml(offline(data, sync="exact", threads=1, device="cpu", sync_freq=2, data_on=place))
        for place in ("device", "host")
    )
    (expected,) = ranks.run(train_offline, text, ranks=1)
    assert ranks.run(train_offline, streamed, ranks=size) == [expected] * size


def test_streamed_data_goes_on_after_a_resume(data):
    whole, half, rest = (open_learner(World(), "control", to_yaml(offline(data, data_on="host"))) for _ in range(3))
    whole.step(), whole.step()
    half.step()
    rest.load(half.state())
    rest.step()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, rest.model.state_dict()[name]), name


def test_data_is_streamed_where_it_does_not_fit(data, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    (part,) = open_learner(World(), "control", to_yaml(offline(data)))._collectors
    assert isinstance(part.memory, StreamedSequences)


def kept_with(world, text, available):
    """Where a rank's data is with so many bytes of free memory: the class that holds it. Called by every rank."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
        return type(open_learner(world, "control", text)._collectors[0].memory).__name__


def test_ranks_on_one_device_share_its_memory(ranks, data):
    # Four lanes of at most 36 steps, each of 2 x 5 + 1 + 1 numbers and a flag; data may take half of what is free.
    needed = 4 * 36 * (12 * 4 + 1)
    text = to_yaml(offline(data, threads=1, device="cpu"))
    assert ranks.run(kept_with, text, 2 * needed, ranks=2) == ["SequenceReplay"] * 2
    # Each rank's half alone would fit.
    assert ranks.run(kept_with, text, 2 * needed - 2, ranks=2) == ["StreamedSequences"] * 2
    with pytest.raises(RankError, match=r"what 2 ranks hold of it needs 0\.0 GiB"):
        ranks.run(kept_with, to_yaml(offline(data, threads=1, device="cpu", data_on="device")), needed - 1, ranks=2)


def test_data_that_is_too_little_or_of_other_tasks_is_refused(data, tmp_path):
    with pytest.raises(UserError, match=r"11 episode\(s\) are too few"):
        CONTROL.fit(offline(data, lanes=16, batch_size=16), ())
    with pytest.raises(UserError, match="holds episodes of task cartpole-balance"):
        CONTROL.fit(offline(data, task="walker-walk"), ())
    with pytest.raises(UserError, match="no episode files"):
        CONTROL.fit(offline(Path(tmp_path)), ())


def test_a_run_resumes_only_with_the_data_it_was_started_with(data, tmp_path):
    copy = shutil.copytree(data, tmp_path / "data")
    learner = open_learner(World(), "control", to_yaml(offline(copy)))
    learner.step()
    saved = learner.state()
    open_learner(World(), "control", to_yaml(offline(copy))).load(saved)
    (file,) = copy.iterdir()
    shutil.copy(file, copy / "more.safetensors")
    with pytest.raises(UserError, match=r"data: its digest is \w{16}, but was \w{16} when this run was started"):
        open_learner(World(), "control", to_yaml(offline(copy))).load(saved)


def test_data_that_does_not_fit_into_memory_is_refused_before_it_is_read(data, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(UserError, match=r"a rank's part of it needs 0.0 GiB of memory, but 0.0 GiB are free on cpu"):
        open_learner(World(), "control", to_yaml(offline(data, data_on="device"))).step()


def test_fewer_steps_than_one_round_are_refused(data):
    with pytest.raises(UserError, match="steps 5 is less than one round's n_steps = 6"):
        offline(data, steps=5)


def test_a_baseline_plays_as_many_episodes_of_each_task_as_a_model(monkeypatch):
    from lockstep.workloads.control import baselines

    monkeypatch.setattr(baselines, "evaluate", lambda world, make, act, episodes, seed, tag, at_once: episodes)
    asked = [baselines.evaluate_baseline("zero", ControlSettings(task=t), World(), 10, 1) for t in ("dog-run", "mt30")]
    assert asked == [10, 300]


def test_a_model_that_learned_from_data_is_evaluated_without_the_data(tmp_path):
    learner = open_learner(World(), "control", to_yaml(offline(tmp_path)))
    assert len(learner.evaluate(1, seed=1).returns) == 1
    with pytest.raises(UserError, match="no episode files"):
        learner.step()


@pytest.mark.slow
def test_episodes_are_the_same_however_many_are_played_at_once(monkeypatch):
    from lockstep.algorithms.tdmpc2.planning import evaluator

    learner = open_learner(World(), "control", to_yaml(debug(episode_length=12)))
    together = learner.evaluate(5, seed=1)
    monkeypatch.setattr(evaluator, "HOSTED_AT_ONCE", 2)
    monkeypatch.setattr(evaluator, "_ACTORS", 2)
    torch.testing.assert_close(learner.evaluate(5, seed=1).returns, together.returns)
    assert len(learner._evaluator._actors) == 2


def test_weights_of_the_official_program_can_be_evaluated_directly(tmp_path, monkeypatch, capsys):
    from lockstep.cli.main import main

    learner = open_learner(World(), "control", to_yaml(debug()))
    monkeypatch.chdir(tmp_path)
    torch.save({"model": official_names(learner.model.state_dict())}, tmp_path / "agent.pt")
    words = ["eval", "agent.pt", "--preset", "debug", "--episodes", "1"]
    assert main([*words, "--workload", "control"]) == 0
    assert main([*words, "--workload", "snake"]) == 2
    assert "does not fit the network" in capsys.readouterr().err


def official_names(weights):
    """Weights of one task as the official program names them."""
    rooms = {"world.encoder": "_encoder.state", "world.values": "_Qs.params", "target": "_target_Qs_params"}
    rooms |= {"world.dynamics": "_dynamics", "world.reward": "_reward", "policy.layers": "_pi"}
    theirs = {}
    for name, value in weights.items():
        if name != "value_scale":
            room = next(room for room in rooms if name.startswith(f"{room}."))
            theirs[name.replace(room, rooms[room], 1).replace(".norm.", ".ln.")] = value
    return theirs


def test_a_run_starts_with_the_weights_of_the_official_program(tmp_path):
    old = open_learner(World(), "control", to_yaml(debug(seed=7)))
    torch.save({"model": official_names(old.model.state_dict())}, tmp_path / "agent.pt")
    # Its users know the setting as `checkpoint`.
    words = [f"--checkpoint={tmp_path / 'agent.pt'}"]
    new = open_learner(World(), "control", to_yaml(CONTROL.resolve("debug", overrides=words).config))
    theirs = old.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in new.model.state_dict().items())

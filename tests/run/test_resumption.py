"""Going on from a checkpoint: only from one that this learner would have written, else from the one before it."""

import json
import shutil

import pytest
import torch

from lockstep.algorithms.ppo.learner import PPOLearner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import NoValidCheckpoint, UserError
from lockstep.run.resumption import MADE_WITH, Resumption
from lockstep.storage import checkpoint, manifest
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.tensor_file import decode, encode, specs_of
from lockstep.workloads import registry

SNAKE = registry.load("snake")
CONFIG = SNAKE.preset("debug").replace(n_envs=8, n_steps=8, batch_size=64, total_timesteps=6400, device="cpu")


def world_for(config):
    return World().with_lanes(config.effective_lanes, "fast")


def save(root, config, learner, with_config=True):
    snapshot = learner.state()
    snapshot.state["loop"] = {"best": float("-inf"), "seconds": 1.5}
    extra = {MADE_WITH: to_yaml(config)} if with_config else {}
    world = world_for(config)
    return checkpoint.save(root, snapshot, world=world, step=learner.steps, workload="snake", extra=extra)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with two checkpoints, at steps 64 and 128."""
    root = tmp_path_factory.mktemp("made") / "run"
    run = RunDirectory(root)
    run.prepare()
    run.write_config(to_yaml(CONFIG), "snake")
    learner = SNAKE.build(CONFIG, world_for(CONFIG))
    for _ in range(2):
        learner.step()
        save(root, CONFIG, learner)
    return root


@pytest.fixture
def newest(made, tmp_path):
    """The newer checkpoint of a copy of that run."""
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run" / "checkpoints" / "step-000000000128"


def go_on(newest, config=CONFIG):
    """The step that a fresh learner goes on from, and what was said."""
    said = []
    learner = SNAKE.build(config, world_for(config))
    run = RunDirectory(newest.parents[1])
    Resumption(run, "snake", config, world_for(config), learner, said.append).take_up()
    return learner.steps, said


def reseal(path, name=None, data=b"", **changes):
    """What a forger would do: put another file in place, and hash the manifest anew."""
    content = json.loads((path / "manifest.json").read_text())
    content.pop("sha256")
    if name is not None:
        (path / name).write_bytes(data)
        content["files"][name] = manifest.FileRecord.of(data).__dict__
    (path / "manifest.json").write_bytes(manifest._seal({**content, **changes}))


def change_tensors(path, name, change):
    tensors = decode((path / name).read_bytes())
    change(tensors)
    reseal(path, name, encode(tensors))


def change_state(path, change):
    state = json.loads((path / "state.json").read_text())
    change(state)
    reseal(path, "state.json", json.dumps(state).encode())


def first(tensors, kind):
    return next(name for name in sorted(tensors) if kind in name)


def put(name, value):
    return lambda tensors: tensors.update({first(tensors, name): value(tensors[first(tensors, name)])})


OPTIMIZER, LANE, MODEL = "optimizer.safetensors", "lanes/lane-00.safetensors", "model.safetensors"
LEFT = {"before": 64, "evaluates": False, "reviewed": True}
FOREIGN = {
    "a model in place of the optimiser": lambda p: reseal(p, OPTIMIZER, (p / MODEL).read_bytes()),
    "an empty optimiser": lambda p: reseal(p, OPTIMIZER, encode({})),
    "moments of another shape": lambda p: change_tensors(p, OPTIMIZER, put("exp_avg.", lambda t: t[:1])),
    "moments of another type": lambda p: change_tensors(p, OPTIMIZER, put("exp_avg.", lambda t: t.double())),
    "moments that are missing": lambda p: change_tensors(p, OPTIMIZER, lambda t: t.pop(first(t, "exp_avg_sq."))),
    "moments of nobody": lambda p: change_tensors(p, OPTIMIZER, lambda t: t.update(more=torch.zeros(3))),
    "a model in place of a lane": lambda p: reseal(p, LANE, (p / MODEL).read_bytes()),
    "a lane without its environments": lambda p: change_tensors(p, LANE, lambda t: t.pop(first(t, "env.head"))),
    "a lane of other types": lambda p: change_tensors(p, LANE, put("env.head", lambda t: t.float())),
    "a lane of other shapes": lambda p: change_tensors(p, LANE, put("env.head", lambda t: torch.cat((t, t)))),
    "weights of another shape": lambda p: change_tensors(p, MODEL, put("weight", lambda t: t[:1])),
    "weights of another type": lambda p: change_tensors(p, MODEL, put("weight", lambda t: t.half())),
    "no tensors at all": lambda p: reseal(p, LANE, b"no safetensors"),
    "a header that promises 10 GB": lambda p: reseal(
        p, LANE, b'\x46\0\0\0\0\0\0\0{"w":{"dtype":"F32","shape":[2684354560],"data_offsets":[0,10737418240]}}'
    ),
    "a state without updates": lambda p: change_state(p, lambda s: s.pop("updates")),
    "a state without the loop's notes": lambda p: change_state(p, lambda s: s.pop("loop")),
    "a loop without its best": lambda p: change_state(p, lambda s: s["loop"].pop("best")),
    "a best that is no number": lambda p: change_state(p, lambda s: s["loop"].update(best=float("nan"))),
    "an update without its reports": lambda p: change_state(p, lambda s: s["loop"].update(after_update=LEFT)),
    "reports that are no numbers": lambda p: change_state(
        p, lambda s: s["loop"].update(after_update=LEFT | {"reports": {"a": [1, 2, 3, "x"]}})
    ),
    "an update before the first": lambda p: change_state(
        p, lambda s: s["loop"].update(after_update=LEFT | {"reports": {}, "before": -1})
    ),
    "steps of 400 digits": lambda p: change_state(p, lambda s: s.update(steps=10**400)),
    "steps below zero": lambda p: change_state(p, lambda s: s.update(steps=-64)),
    "steps in words": lambda p: change_state(p, lambda s: s.update(steps="128")),
    "steps of another checkpoint": lambda p: change_state(p, lambda s: s.update(steps=192)),
    "a scale that is no number": lambda p: change_state(p, lambda s: s["precision"].update(scale=float("nan"))),
    "a scale beyond all": lambda p: change_state(p, lambda s: s["precision"].update(scale=10**400)),
    "a state that is a list": lambda p: reseal(p, "state.json", b"[]"),
    "a deep state": lambda p: reseal(p, "state.json", b'{"a":' * 100_000),
    "a state of something else": lambda p: change_state(p, lambda s: s.update(more=1)),
    "400 digits in the manifest": lambda p: reseal(p, step=10**400),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_was_sealed_anew_is_damaged_and_the_one_before_is_used(newest, case):
    FOREIGN[case](newest)
    step, said = go_on(newest)
    assert step == 64
    (line,) = said
    assert "step-000000000128: damaged, not used: " in line
    assert len(line) < 600 and "\n" not in line


def test_an_untouched_checkpoint_is_gone_on_from(newest):
    assert go_on(newest) == (128, [])


def test_where_none_is_left_the_run_ends_and_names_them(newest):
    for path in newest.parent.iterdir():
        FOREIGN["a model in place of the optimiser"](path)
    with pytest.raises(NoValidCheckpoint, match=r"none of 2 checkpoints verifies: step-0+128 \(optimizer.safetensors"):
        go_on(newest)


def test_a_changed_setting_is_an_error_that_names_it_and_no_damage(newest):
    with pytest.raises(UserError, match=r"snake state: \w+ has shape"):
        go_on(newest, CONFIG.replace(n_envs=16))
    with pytest.raises(UserError, match="a run keeps its network"):
        go_on(newest, CONFIG.replace(grid_size=CONFIG.workload.grid_size + 4))
    assert go_on(newest, CONFIG.replace(n_steps=16, learning_rate=1e-5))[0] == 128


def test_a_state_that_cannot_be_loaded_under_changed_settings_says_why_and_what_to_do(newest, monkeypatch):
    config = CONFIG.replace(learning_rate=1e-5)
    monkeypatch.setattr(PPOLearner, "load", lambda *_: [][1])
    problem = r"so it cannot be resumed \(IndexError: list index out of range\); give the settings it had$"
    with pytest.raises(UserError, match=problem):
        go_on(newest, config)


def test_a_foreign_optimiser_is_found_under_changed_settings_too(newest):
    FOREIGN["moments of another shape"](newest)
    assert go_on(newest, CONFIG.replace(learning_rate=1e-5))[0] == 64


def test_a_checkpoint_is_judged_by_what_it_was_made_with_and_not_by_a_later_try(newest):
    # A resume with other settings that was killed before its first checkpoint leaves its configuration behind.
    other = CONFIG.replace(n_envs=16)
    RunDirectory(newest.parents[1]).write_config(to_yaml(other), "snake")
    with pytest.raises(UserError, match="snake state"):
        go_on(newest, other)
    assert go_on(newest)[0] == 128


def test_an_early_checkpoint_that_does_not_tell_its_settings_is_gone_on_from(newest):
    content = json.loads((newest / "manifest.json").read_text())
    reseal(newest, extra={name: value for name, value in content["extra"].items() if name != MADE_WITH})
    assert go_on(newest)[0] == 128
    FOREIGN["a lane of other shapes"](newest)
    assert go_on(newest)[0] == 64


@pytest.mark.parametrize("name", registry.names())
def test_every_learner_knows_what_its_checkpoints_look_like(name):
    if name == "control":
        pytest.importorskip("dm_control")
    workload = registry.load(name)
    config = workload.preset("debug").replace(device="cpu")
    learner = workload.build(config, world_for(config))
    for _ in range(2):
        learner.step()
    state = learner.state()
    fresh = workload.build(config, world_for(config))
    fresh.state()
    outline = fresh.outline(state.state)
    assert specs_of(outline.model) == specs_of(state.model)
    assert specs_of(outline.optimizer) == specs_of(state.optimizer)
    assert all(specs_of(outline.lanes[lane]) == specs_of(tensors) for lane, tensors in state.lanes.items())
    assert outline.state.keys() == state.state.keys()

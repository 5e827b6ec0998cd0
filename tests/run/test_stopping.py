"""A stop request in a long update: it is abandoned on all ranks at once, and the run continues with the same bits."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn

from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import StoppedOnRequest
from lockstep.launch.stop_request import PREEMPTED
from lockstep.run import loop, safe_points, session
from lockstep.run.safe_points import SafePoints, UpdateAbandoned
from lockstep.storage import async_checkpointer, checkpoint
from lockstep.storage.run_directory import WEIGHTS_HASH, RunDirectory
from lockstep.workloads import registry
from lockstep.workloads.gym.tensor import TensorEnv


class RequestInUpdate:
    """Stands in for StopRequest: a request that comes in the middle of an update, to one rank alone."""

    def __init__(self, reaches: bool, updates):
        self._reaches, self._updates, self._reads = reaches, updates, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @property
    def flag(self):
        # The first read in an update is the loop's own, before it begins.
        self._reads += self._updates() == 2
        return PREEMPTED if self._reaches and (self._reads >= 3 or self._updates() > 2) else 0


def train(world, workload, text, folder, stops, is_long=True, room=True):
    """Train a run to its end, or stop it in its third update; returns what was said and the hash. By every rank."""
    chosen, learners = registry.load(workload), []
    config = chosen.read_config(text)

    def build(config, world):
        learners.append(chosen.build(config, world))
        return learners[0]

    def request(answer):
        return RequestInUpdate(stops and world.rank == world.size - 1, lambda: learners[0].updates)

    with (
        mock.patch.object(loop, "LONG_UPDATE", -1.0 if is_long else 1e9),
        mock.patch.object(loop, "StopRequest", request),
        mock.patch.object(async_checkpointer, "_SHARE_OF_FREE_MEMORY", 0.5 if room else 0.0),
    ):
        try:
            session.train(RunDirectory.named(Path(folder), "run"), workload, config, world, build, [])
        except StoppedOnRequest as stopped:
            return str(stopped), learners[0].updates
    return "", checkpoint.weights_hash(dict(learners[0].model.state_dict()))


def settings(workload, **changes):
    common = {"threads": 1, "device": "cpu", "max_updates": 4, "checkpoint_every": 0, "eval_every": 0}
    return to_yaml(registry.load(workload).preset("debug").replace(**(common | changes)))


CASES = [("snake", "fast", 2), ("snake", "exact", 3), ("snakes3v3", "fast", 2), ("control", "fast", 2)]


@pytest.mark.parametrize(("workload", "sync", "size"), CASES)
def test_an_abandoned_update_is_done_again_with_the_same_bits(ranks, tmp_path, workload, sync, size):
    text = settings(workload, sync=sync)
    _, undisturbed = ranks.run(train, workload, text, str(tmp_path / "whole"), False, ranks=size)[0]
    folder = tmp_path / "stopped"
    answers = ranks.run(train, workload, text, str(folder), True, ranks=size)
    # One rank heard of it, and all left the third update.
    assert [updates for _, updates in answers] == [2] * size
    assert all(said.endswith("saved: the same command continues from there") for said, _ in answers)
    assert len(list((folder / "run" / "checkpoints").glob("step-*"))) == 1
    assert RunDirectory(folder / "run").status().state == "stopped"
    _, resumed = ranks.run(train, workload, text, str(folder), False, ranks=size)[0]
    assert resumed == undisturbed


def test_a_short_update_is_finished_first(tmp_path):
    said, updates = train(World(), "snake", settings("snake"), tmp_path, True, is_long=False)
    assert updates == 3 and said.endswith("saved: the same command continues from there")


def test_without_room_for_a_copy_the_last_checkpoint_stands(tmp_path):
    said, _ = train(World(), "snake", settings("snake", checkpoint_every=256), tmp_path / "every", True, room=False)
    assert said == "stopped on request at step 512; saved: the same command continues from there"
    said, _ = train(World(), "snake", settings("snake"), tmp_path / "never", True, room=False)
    assert said.endswith("2 update(s) are lost: the same command continues from the newest checkpoint")


def test_the_world_is_asked_about_once_a_second_however_long_a_part_takes(monkeypatch):
    clock, asked = [0.0], []
    monkeypatch.setattr(safe_points.time, "monotonic", lambda: clock[0])
    points = SafePoints(World(), lambda: asked.append(clock[0]) or 0)
    points.open(True)
    for part, seconds, count in [("acting", 0.01, 1000), ("learning", 3.0, 5)]:
        for _ in range(count):
            points(part)
            clock[0] += seconds
    assert len(asked) < 40 and max(later - earlier for earlier, later in pairwise(asked[:-4])) < 1.3
    # Gradient steps of three seconds: at each of them.
    assert asked[-5:] == pytest.approx([10, 13, 16, 19, 22])


def test_closed_points_ask_nobody():
    points = SafePoints(World(), lambda: pytest.fail("asked"))
    points.open(False)
    points("acting")


def by_backward(model):
    model(torch.ones(1, 2)).sum().backward()


def by_grad(model):
    torch.autograd.grad(model(torch.ones(1, 2)).sum(), list(model.parameters()))


@pytest.mark.parametrize("comes_in", ["forward", "backward"])
@pytest.mark.parametrize("learn", [by_backward, by_grad])
def test_alone_an_update_is_left_between_two_layers(comes_in, learn):
    told = []
    points = SafePoints(World(), lambda: PREEMPTED if told else 0)
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    with points.watching_layers(model):
        if comes_in == "forward":
            model[1].register_forward_hook(lambda *_: told.append(True))
        else:
            model[2].weight.register_hook(lambda _: told.append(True))
        # An evaluation has points of its own, and a short update is finished.
        for way in ({"is_open": True}, {"is_open": False, "in_update": True}):
            points.open(**way)
            learn(model)
            told.clear()
        model.zero_grad()
        points.open(True, in_update=True)
        with pytest.raises(UpdateAbandoned):
            learn(model)
        assert model[0].weight.grad is None
    # Afterwards the model is as it was.
    learn(model)


def test_layers_are_watched_without_hooks_of_their_own():
    # Some compute differently, in other bits, if they have any.
    model = nn.Linear(2, 2)
    with SafePoints(World(), lambda: 0).watching_layers(model):
        assert not model._forward_pre_hooks


class EnvOfLayers:
    """Three environments that compute their observations with a layer."""

    observation_shape = (2,)

    def __init__(self):
        self._layer = nn.Linear(2, 2)

    def step(self, action):
        ended = torch.zeros(3, dtype=torch.bool)
        return self._layer(action).detach(), torch.zeros(3), ended, ended


def test_a_request_does_not_fail_inside_an_environment_that_has_layers():
    points = SafePoints(World(), lambda: PREEMPTED)
    model, env = nn.Linear(2, 2), TensorEnv("layers", EnvOfLayers(), torch.arange(3))
    with points.watching_layers(model):
        points.open(True, in_update=True)
        env.step(torch.zeros(3, 2))
        with pytest.raises(UpdateAbandoned):
            model(torch.zeros(3, 2))


def test_a_request_of_any_rank_ends_the_update_on_all(ranks):
    assert ranks.run(pass_points, 1, ranks=3) == [PREEMPTED] * 3


def pass_points(world, told):
    """Pass safe points until one raises; only rank `told` is asked to stop. Called by every rank."""
    points = SafePoints(world, lambda: PREEMPTED if world.rank == told else 0)
    points.open(True)
    try:
        points("acting")
    except UpdateAbandoned as abandoned:
        return abandoned.request
    return 0


def test_ranks_with_unequal_work_pass_equally_many_points(ranks):
    # In the second case the request comes while rank 0, without any work, and rank 1 wait for rank 2.
    assert ranks.run(pass_unequally, 0, ranks=3) == [0, 0, 0]
    assert ranks.run(pass_unequally, 60, ranks=3) == [PREEMPTED] * 3


def pass_unequally(world, told_at):
    """Pass 50 points for each lower rank, and then those of the others; rank 2 is told at its point `told_at`."""
    passed = [0]
    points = SafePoints(world, lambda: PREEMPTED if told_at and passed[0] >= told_at else 0)
    points.open(True)
    try:
        for _ in range(50 * world.rank):
            passed[0] += 1
            points("evaluating")
        while points("evaluating", False):
            pass
    except UpdateAbandoned as abandoned:
        return abandoned.request
    # Whatever follows is a collective of all ranks.
    return world.agree(0)


class RequestInEvaluation:
    """Stands in for StopRequest: a request that comes to one rank alone once an evaluation has begun."""

    def __init__(self, begun):
        self._begun = begun

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @property
    def flag(self):
        return PREEMPTED if self._begun() else 0


def train_evaluating(world, workload, text, folder, stops_in):
    """Train a run, and stop it in its evaluation number `stops_in`; what was said, and the hash. By every rank."""
    chosen, learners, evaluations = registry.load(workload), [], []
    config = chosen.read_config(text)

    def build(config, world):
        learner = chosen.build(config, world)
        evaluate = learner.evaluate
        learner.evaluate = lambda *given: (evaluations.append(given), evaluate(*given))[1]
        learners.append(learner)
        return learner

    told = world.rank == world.size - 1
    request = RequestInEvaluation(lambda: told and stops_in and len(evaluations) >= stops_in)
    with mock.patch.object(loop, "LONG_UPDATE", 1e9), mock.patch.object(loop, "StopRequest", lambda answer: request):
        try:
            session.train(RunDirectory.named(Path(folder), "run"), workload, config, world, build, [])
        except StoppedOnRequest as stopped:
            return str(stopped), learners[0].updates
    return "", checkpoint.weights_hash(dict(learners[0].model.state_dict()))


def log_of(folder):
    """The log points of a run, without what depends on the clock and the machine.

    Which points have a hash of the weights depends on how long hashing takes.
    """
    apart = ("time", "system/", WEIGHTS_HASH)
    points = RunDirectory(Path(folder) / "run").log_points()
    return [{tag: value for tag, value in point.items() if not tag.startswith(apart)} for point in points]


RL = {"eval_every": 512, "eval_episodes": 5, "log_every": 100, "max_updates": 6}
EPOCHS = {"eval_every": 10**9, "log_every": 100, "epochs": 3, "patience": 1, "min_epochs": 3, "max_updates": 0}
# The smallest league and network, in few batches.
EPOCHS |= {"matches": 10, "drop_relations": "ball", "batch_size": 512}
EVALUATED = [
    pytest.param("snake", "fast", 2, RL, marks=pytest.mark.slow),
    ("snake", "exact", 3, RL),
    pytest.param("control", "fast", 2, RL | {"eval_every": 2, "eval_episodes": 1}, marks=pytest.mark.slow),
    ("cricket", "fast", 2, EPOCHS),
]


@pytest.mark.parametrize(("workload", "sync", "size", "changes"), EVALUATED)
def test_an_evaluation_that_a_stop_abandoned_follows_after_the_resume(ranks, tmp_path, workload, sync, size, changes):
    if workload == "cricket":
        changes = changes | {"cache_dir": str(tmp_path / "cache")}
    text = settings(workload, sync=sync, **changes)
    whole, folder = tmp_path / "whole", tmp_path / "stopped"
    _, undisturbed = ranks.run(train_evaluating, workload, text, str(whole), 0, ranks=size)[0]
    # For an epoch's end the loop asks again for what the learner has just validated: the third is the second epoch's.
    answers = ranks.run(train_evaluating, workload, text, str(folder), 3 if "epochs" in changes else 2, ranks=size)
    assert answers == [answers[0]] * size and answers[0][0].endswith("saved: the same command continues from there")
    assert len(log_of(folder)) < len(log_of(whole))
    _, resumed = ranks.run(train_evaluating, workload, text, str(folder), 0, ranks=size)[0]
    assert resumed == undisturbed
    assert log_of(folder) == log_of(whole)
    assert RunDirectory(folder / "run").status().best_score == RunDirectory(whole / "run").status().best_score


SLOW = """
import sys, time
from lockstep.algorithms.ppo import learner
from lockstep.cli.main import main

learn = learner.PPOLearner._descend_once
learner.PPOLearner._descend_once = lambda self: (time.sleep(0.3), learn(self))[1]
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_in_an_update_of_minutes_takes_seconds(tmp_path):
    # 200 gradient steps of 0.3 s each: the first update would take a minute.
    sizes = "--n-envs 8 --n-steps 100 --batch-size 8 --n-epochs 2 --total-timesteps 8000 --eval-every 0"
    words = f"train snake --preset debug {sizes} --ranks 1 --device cpu --runs-dir {tmp_path} --run-name a".split()
    process = subprocess.Popen([sys.executable, "-c", SLOW, *words], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "a" / "config.yaml").exists() and process.poll() is None:
        time.sleep(0.1)
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=40)
    assert process.returncode == 130, told
    assert told.splitlines() == [
        "lockstep: stopping, saving first; ask again to stop at once without saving",
        "lockstep: interrupted at step 0; nothing to save yet: the same command starts anew",
    ]

"""`lockstep verify`: the rule that tells rounding from a mistake, and what the user is shown."""

import contextlib
import math
from dataclasses import replace

import pytest
import torch

from lockstep.cli import proof, short_runs, verify
from lockstep.cli.main import main
from lockstep.cli.proof import FastProof, Gap, Proof, Row, distance
from lockstep.distributed import replicas
from lockstep.distributed.pool import RankError
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.launch import resources
from lockstep.workloads import registry

SNAKE = registry.load("snake")


@contextlib.contextmanager
def changed(owner, name, value):
    """One attribute, changed for a while: ranks are shared with other tests."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def redo_past_the_wrapper(world, *arguments):
    """Gradients are never averaged, and nobody looks whether ranks still hold the same weights."""
    with (
        changed(World, "data_parallel", lambda self, loss: loss),
        changed(World, "check_replicas", lambda *_: None),
    ):
        return short_runs.redo(world, *arguments)


def redo_with_a_mean_of_rank_means(world, *arguments):
    """Each rank's mean weighs the same, although ranks have 3, 3 and 2 of the lanes."""
    begin = replicas.DDPReplica.__init__

    def uneven(self, loss, own, precision):
        begin(self, loss, own, precision)
        self._world = replace(own, size=own.lanes.total / len(own.lanes.mine))

    with changed(replicas.DDPReplica, "__init__", uneven):
        return short_runs.redo(world, *arguments)


def redo_with_a_sum(world, *arguments):
    """Gradients are added and not averaged, which Adam hides in the weights."""
    begin = replicas.DDPReplica.__init__

    def summed(self, loss, own, precision):
        begin(self, loss, own, precision)
        self._world = replace(own, size=own.size**2)

    with changed(replicas.DDPReplica, "__init__", summed):
        return short_runs.redo(world, *arguments)


PLANTED = {
    "past the wrapper": (redo_past_the_wrapper, 2),
    "a mean of rank means": (redo_with_a_mean_of_rank_means, 3),
    "a sum": (redo_with_a_sum, 2),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_far_outside_of_what_is_accepted(ranks, tmp_path, mistake, monkeypatch):
    monkeypatch.setattr(proof, "NUDGES", 1)
    redo, size = PLANTED[mistake]
    found = Proof(ranks, SNAKE, SNAKE.preset("debug").replace(device="cpu"), 2, tmp_path).fast([1, size], redo=redo)
    (row,) = found.rows
    assert not row.holds and row.on_edge == 0
    parts = zip(
        (row.gap.weights, row.gap.optimizer, row.gap.metrics),
        (found.accepted.weights, found.accepted.optimizer, found.accepted.metrics),
        strict=True,
    )
    assert max(gap / limit for gap, limit in parts) > 1000


def redo_unless_nudged(world, workload, text, starts, length, output, nudge=0):
    """A stand-in for a decision on the edge: another result from the saved state, the same from a nudged one."""
    redo = short_runs.redo if nudge else redo_with_a_sum
    return redo(world, workload, text, starts, length, output, nudge)


def test_a_decision_that_hung_by_a_rounding_is_told_from_a_mistake(ranks, tmp_path):
    config = SNAKE.preset("debug").replace(device="cpu")
    (row,) = Proof(ranks, SNAKE, config, 2, tmp_path).fast([1, 2], redo=redo_unless_nudged).rows
    assert row.holds and row.on_edge == 1


def test_a_difference_is_a_part_of_what_was_changed():
    before, one = {"w": torch.tensor([0.0, 0.0])}, {"w": torch.tensor([3.0, 4.0])}
    assert distance(before, one, {"w": torch.tensor([3.0, 4.5])}) == pytest.approx(0.1)
    assert distance({}, one, {"w": torch.tensor([3.0, 4.5])}) == pytest.approx(0.1)
    assert distance(one, one, one) == 0 and distance(one, one, before) == math.inf
    assert distance(before, one, {"v": one["w"]}) == math.inf


@pytest.mark.parametrize(("weights", "inside"), [(1e-6, True), (2e-6, False), (math.nan, False), (math.inf, False)])
def test_nothing_passes_that_is_not_a_number_within_the_limit(weights, inside):
    assert Gap(weights, 0, 0).within(Gap(1e-6, 1e-6, 1e-6)) == inside


@pytest.mark.parametrize(
    ("gpus", "lanes", "sizes"),
    [(0, 8, [1, 2]), (1, 8, [1, 2]), (4, 8, [1, 2, 4]), (6, 8, [1, 2, 4, 6]), (8, 4, [1, 2, 4])],
)
def test_as_many_ranks_as_there_are_gpus(monkeypatch, gpus, lanes, sizes):
    monkeypatch.setattr(resources, "visible_gpus", lambda: gpus)
    assert verify._sizes("auto", lanes) == sizes


def test_stretches_in_which_nothing_is_learnt_are_not_counted_as_proof(ranks, tmp_path):
    control = registry.load("control")
    config = control.preset("debug").replace(device="cpu", seed_steps=10_000)
    with pytest.raises(UserError, match="too few, no weights were changed"):
        Proof(ranks, control, config, 1, tmp_path).fast([1, 2])


class Standing:
    """The session's ranks, in place of those that the command would start."""

    def __init__(self, pool):
        self.run = pool.run

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def standing(ranks, monkeypatch):
    monkeypatch.setattr("lockstep.distributed.pool.RankPool", lambda size, device: Standing(ranks))
    monkeypatch.setenv("COLUMNS", "80")


def test_the_tables_fit_a_terminal_and_say_the_rule(standing, capsys):
    assert main(["verify", "snake", "--ranks", "1,2", "--updates", "2", "--device", "cpu", "--precision", "bf16"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown
    assert "32 x yardstick" in shown and "in true fp32" in shown
    assert "for information: fast, 2 updates in a row, in bf16" in shown
    assert "BROKEN" not in shown and shown.rstrip().endswith("exact to the last bit")


def test_a_broken_promise_is_shown_and_ends_with_3(standing, capsys, monkeypatch):
    small, large = Gap(1e-7, 1e-7, 1e-7), Gap(0.3, 0.1, 0.2)
    broken = FastProof(5, small, small, [Row(2, large, 0, holds=False)])
    monkeypatch.setattr(Proof, "fast", lambda *_: broken)
    monkeypatch.setattr(Proof, "on_end", lambda *_: iter(()))
    assert main(["verify", "snake", "--ranks", "1,2", "--device", "cpu"]) == 3
    shown = capsys.readouterr()
    assert "BROKEN" in shown.out and shown.err == "lockstep: not the same model: fast on 2 ranks\n"


def test_a_rank_that_dies_is_shown_with_its_last_words(standing, capsys, monkeypatch):
    def die(*_):
        raise RankError(
            3, "", "rank 3 ended with exit code 1 at 12:00:00: ValueError: why", "Traceback\nValueError: why"
        )

    monkeypatch.setattr(Proof, "fast", die)
    assert main(["verify", "snake", "--ranks", "1,2", "--device", "cpu"]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "lockstep: rank 3 ended with exit code 1 at 12:00:00: ValueError: why"
    assert lines[1:] == ["  Traceback", "  ValueError: why"]

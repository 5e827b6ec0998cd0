"""Failpoints: nothing happens unless faults are set, and then exactly at the selected place and time."""

import subprocess
import sys

import pytest
import torch

from lockstep import failpoints
from lockstep.errors import UserError
from lockstep.failpoints import KINDS, Planted, parse


@pytest.fixture
def plant(monkeypatch):
    """Inject faults into this process, by default rank 0 of the first attempt."""

    def with_faults(text, rank=0, attempt=0):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(attempt))
        monkeypatch.setattr(failpoints, "_faults", parse(text))
        failpoints._visits.clear()

    return with_faults


def hits(place="update", numbers=range(10)):
    """The visits at which the injected exception was raised."""
    found = []
    for number in numbers:
        try:
            failpoints.reach(place, number)
        except Planted:
            found.append(number)
    return found


def test_nothing_happens_unless_faults_are_set():
    assert failpoints._faults == []
    assert hits() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise@at=7", [7]),
        ("raise@rank=0,at=2..4", [2, 3, 4]),
        ("raise@at=8..", [8, 9]),
        ("raise@rank=1", []),
        ("raise@at=1; raise@at=5", [1, 5]),
        ("raise@at=3,attempt=1", []),
        ("raise@at=3,attempt=0..", [3]),
        ("raise@place=open,at=3", []),
    ],
)
def test_a_fault_happens_at_the_selected_place_and_visit(plant, text, expected):
    plant(text)
    assert hits() == expected


def test_a_fault_belongs_to_the_first_attempt_unless_it_says_otherwise(plant):
    plant("raise@at=3", attempt=1)
    assert hits() == []
    plant("raise@at=3,attempt=1", attempt=1)
    assert hits() == [3]


def test_other_places_count_their_visits_from_one(plant):
    plant("raise@place=publish,at=2")
    failpoints.reach("publish")
    with pytest.raises(Planted):
        failpoints.reach("publish")
    failpoints.reach("publish")


def test_a_draw_is_one_of_the_range_and_the_same_for_everyone_with_that_seed():
    drawn = [parse(f"kill@rank=~0..3,at=~1..18,seed={seed}")[0] for seed in range(200)]
    assert {fault.ranks[0] for fault in drawn} == set(range(4))
    assert {fault.at[0] for fault in drawn} == set(range(1, 19))
    assert all(len(fault.ranks) == len(fault.at) == 1 for fault in drawn)
    assert parse("kill@rank=~0..3,seed=7") == parse("kill@rank=~0..3,seed=7")


def test_an_invalid_fault_is_refused_in_one_line():
    for text in ("explode", "kill@when=3", "kill@at=x", "kill@place=kitchen", "kill@rank=~9..1"):
        with pytest.raises(UserError) as refusal:
            parse(text)
        assert "\n" not in str(refusal.value) and text in str(refusal.value)


def test_one_gradient_is_poisoned_and_the_next_is_not(plant):
    model = torch.nn.Linear(2, 1)
    plant("nan@at=4")
    failpoints.reach_update(4, model)
    model(torch.ones(1, 2)).sum().backward()
    assert not torch.isfinite(model.weight.grad).any()
    model.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    assert torch.isfinite(model.weight.grad).all()


def test_the_weights_of_one_rank_are_changed(plant):
    model = torch.nn.Linear(2, 1)
    before = model.weight.detach().clone()
    plant("diverge@at=1,rank=2", rank=2)
    failpoints.reach_update(1, model)
    assert torch.equal(model.weight.detach(), before + 1)


@pytest.mark.parametrize(
    ("kind", "code"), [("kill", -9), ("terminate", -15), ("leave", 0), ("raise", 1), ("memory", 1), ("full", 1)]
)
def test_faults_end_a_process_as_the_real_ones_do(kind, code):
    assert kind in KINDS
    script = "from lockstep import failpoints; failpoints.reach('update', 0); raise SystemExit(7)"
    done = subprocess.run([sys.executable, "-c", script], env=planted_environment(kind), capture_output=True, text=True)
    assert done.returncode == code, done.stderr


def planted_environment(kind):
    import os

    return {**os.environ, failpoints.VARIABLE: kind}

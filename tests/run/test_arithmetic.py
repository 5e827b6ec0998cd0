"""A checkpoint says what its bits come from, and exact does not go on with anything else."""

import pytest

import lockstep
from lockstep.config.run_settings import RunSettings
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.run import arithmetic

EXACT = World().with_lanes(8, "exact")


def test_equal_arithmetic_is_accepted_and_any_difference_is_named():
    run = RunSettings()
    now = arithmetic.identity(run, EXACT)
    assert now["arithmetic"] == 1 and {"torch", "processor", "threads"} < now.keys()
    arithmetic.refuse_other("step-1", now, run, EXACT)
    other = {**now, "torch": "2.9.0", "threads": 7}
    with pytest.raises(UserError, match=r"step-1: was made with torch 2\.9\.0, threads 7, and this run has torch "):
        arithmetic.refuse_other("step-1", other, run, EXACT)


def test_a_checkpoint_from_before_it_was_recorded_counts_as_the_first_version(monkeypatch):
    arithmetic.refuse_other("step-1", None, RunSettings(), EXACT)
    monkeypatch.setitem(arithmetic._VERSIONS, "cpu", 2)
    with pytest.raises(UserError, match="was made with arithmetic 1, and this run has arithmetic 2"):
        arithmetic.refuse_other("step-1", None, RunSettings(), EXACT)


def test_fast_promises_no_bits_and_so_refuses_nothing():
    arithmetic.refuse_other("step-1", {"torch": "0.1"}, RunSettings(), World())


def test_a_resume_that_would_change_the_bits_is_refused_and_loses_nothing(tmp_path, monkeypatch):
    options = {"preset": "debug", "runs_dir": str(tmp_path), "run_name": "a", "quiet": True, "device": "cpu"}
    lockstep.train("snake", sync="exact", max_updates=1, **options)
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(UserError, match=r"step-\d+: was made with processor .*pdp11"):
        lockstep.train("snake", sync="exact", max_updates=2, **options)
    monkeypatch.undo()
    assert lockstep.train("snake", sync="exact", max_updates=2, **options).status.step == 512

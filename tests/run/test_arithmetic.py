"""A checkpoint says what its bits come from, and exact does not go on with anything else."""

import pytest
import torch

import lockstep
from lockstep.cli.main import main
from lockstep.config.run_settings import RunSettings
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.run import arithmetic
from lockstep.workloads import registry
from lockstep.workloads.snake.settings import SnakeSettings

EXACT = World().with_lanes(8, "exact")


def test_equal_arithmetic_is_accepted_and_any_difference_is_named():
    run = RunSettings()
    now = arithmetic.identity(run, EXACT)
    # MKL's products differ from those of other libraries, and so does what is done to make them agree.
    assert now["arithmetic"] == (3 if torch.backends.mkl.is_available() else 2)
    assert {"torch", "processor", "threads"} < now.keys()
    assert arithmetic.difference(now, run, EXACT) == ""
    other = {**now, "torch": "2.9.0", "threads": 7}
    assert arithmetic.difference(other, run, EXACT).startswith(
        "was made with torch 2.9.0, threads 7, and this run has torch "
    )


def test_a_checkpoint_from_before_it_was_recorded_counts_as_the_first_version(monkeypatch):
    monkeypatch.setitem(arithmetic._VERSIONS, "cpu", 2)
    told = "was made with arithmetic 1, and this run has arithmetic 2"
    assert arithmetic.difference(None, RunSettings(), EXACT) == told
    monkeypatch.setitem(arithmetic._VERSIONS, "cpu", 1)
    assert arithmetic.difference(None, RunSettings(), EXACT) == ""


def test_a_resume_that_would_change_the_bits_is_refused_and_loses_nothing(tmp_path, monkeypatch):
    options = {"preset": "debug", "runs_dir": str(tmp_path), "run_name": "a", "quiet": True, "device": "cpu"}
    lockstep.train("snake", sync="exact", max_updates=1, **options)
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(UserError, match=r"step-\d+: was made with processor .*pdp11"):
        lockstep.train("snake", sync="exact", max_updates=2, **options)
    monkeypatch.undo()
    assert lockstep.train("snake", sync="exact", max_updates=2, **options).status.step == 512


def test_where_exact_is_only_the_default_a_resume_elsewhere_goes_on_and_says_so(tmp_path, monkeypatch, capsys):
    options = {"preset": "debug", "runs_dir": str(tmp_path), "run_name": "a", "device": "cpu"}
    monkeypatch.setattr(SnakeSettings, "exact_on", ("cpu",))
    assert lockstep.train("snake", max_updates=1, **options).status.facts.sync == "exact"
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    capsys.readouterr()
    assert lockstep.train("snake", max_updates=2, **options).status.step == 512
    told = " ".join(capsys.readouterr().out.split())
    assert "it goes on, to other bits than there; with --sync exact it would not" in told
    # Its newest checkpoint comes from there.
    monkeypatch.undo()
    assert main(["resume", str(tmp_path / "a"), "--max-updates", "3", "--sync", "exact"]) == 2
    assert "so exact could not continue to the same bits" in capsys.readouterr().err


def test_exact_is_the_default_where_it_costs_little_and_fast_a_flag(monkeypatch):
    snake, trading = (registry.load(name).preset("debug") for name in ("snake", "trading"))
    assert (snake.sync_on("cuda"), snake.sync_on("cpu"), trading.sync_on("cuda")) == ("exact", "fast", "fast")
    assert snake.replace(sync="fast").sync_on("cuda") == "fast"
    # Kernels that are chosen by timing have no bits to keep.
    assert snake.replace(deterministic=False).sync_on("cuda") == "fast"
    assert trading.replace(sync="exact").sync_on("cuda") == "exact"

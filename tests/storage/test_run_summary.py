"""What a list of runs shows of each: state, progress, settings that differ, and the best score as a user knows it."""

import json
import time

import pytest

from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_status import RunFacts
from lockstep.storage.run_summary import list_runs, summary

FACTS = RunFacts(
    preset="small",
    changed={"seed": 3, "learning_rate": 1e-3, "wandb": True, "run": None},
    ranks=2,
    total_steps=200,
    score_name="log_loss",
    lower_is_better=True,
)


def begun(path, facts=FACTS):
    run = RunDirectory(path)
    run.prepare()
    run.write_config("seed: 3\n", "cricket", facts)
    return run


def test_a_summary_has_what_the_run_was_told_and_how_far_it_is(tmp_path):
    run = begun(tmp_path / "a")
    run.write_status("stopped", 50, -1.25)
    found = summary(RunDirectory(tmp_path / "a"))
    assert (found.name, found.workload, found.preset, found.state, found.ranks) == (
        "a",
        "cricket",
        "small",
        "stopped",
        2,
    )
    assert (found.step, found.total_steps, found.progress) == (50, 200, 0.25)
    assert found.changed == FACTS.changed
    run.write_status("finished", 190, -1.25)
    assert summary(run).progress == 1.0


def test_a_loss_is_shown_as_the_loss_and_not_as_its_negative(tmp_path):
    begun(tmp_path / "loss").write_status("finished", 50, -1.25)
    begun(tmp_path / "return", RunFacts(score_name="return_mean")).write_status("finished", 50, -1.25)
    begun(tmp_path / "new").write_status("stopped", 0)
    found = {run.name: (run.best, run.best_score) for run in list_runs(tmp_path)}
    assert found == {"loss": (1.25, -1.25), "return": (-1.25, -1.25), "new": (None, None)}


def test_a_running_run_is_as_far_as_its_log_and_a_killed_one_as_its_checkpoint(tmp_path):
    run = begun(tmp_path / "a")
    run.write_status("running", 50, None)
    (run.path / "metrics.jsonl").write_text('{"step": 60}\n{"step": 70}\n{"step": 8')
    with run.locked():
        assert (summary(run).state, summary(run).step) == ("running", 70)
    assert (summary(run).state, summary(run).step) == ("stopped", 50)


@pytest.mark.parametrize("line", [b"[1]\n", b'{"step": -1}\n', b'{"step": 1e3}\n', b"[" * 9999 + b"\n", b""])
def test_a_log_that_is_none_leaves_the_step_of_the_status(tmp_path, line):
    run = begun(tmp_path / "a")
    run.write_status("running", 50, None)
    (run.path / "metrics.jsonl").write_bytes(line)
    with run.locked():
        assert summary(run).step == 50


def test_the_time_is_that_of_all_attempts_together(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    first = begun(tmp_path / "a")
    clock[0] += 30
    first.write_status("stopped", 10)
    second = begun(tmp_path / "a")
    clock[0] += 12
    second.write_status("stopped", 20)
    assert summary(second).seconds == 42


def test_a_new_best_is_known_before_the_next_checkpoint(tmp_path):
    run = begun(tmp_path / "a")
    run.write_status("running", 50, -2.0)
    run.note_best(-1.5)
    assert (summary(run).best, summary(run).step) == (1.5, 50)


def test_a_run_of_an_earlier_version_has_a_summary(tmp_path):
    run = begun(tmp_path / "a")
    old = {"workload": "snake", "state": "finished", "step": 7, "best_score": 2.0, "updated": 1.0}
    (run.path / "status.json").write_text(json.dumps(old))
    found = summary(run)
    assert (found.state, found.step, found.best, found.preset, found.ranks) == ("finished", 7, 2.0, "", 0)
    assert (found.total_steps, found.seconds, found.changed) == (0, 0.0, {})


def test_facts_that_nobody_could_have_written_are_left_out(tmp_path):
    run = begun(tmp_path / "a")
    run.write_status("finished", 1)
    content = json.loads((run.path / "status.json").read_text())
    content["seconds"] = -1
    content["facts"] = {
        "preset": "\x1b[2J",
        "ranks": 10**400,
        "total_steps": "many",
        "score_name": ["x"],
        "lower_is_better": 1,
        "changed": {"seed": 1, "a b": 1, "deep": [1], "long": "x" * 5000, "orders": "\x1b[2J", "digits": 10**400},
    }
    (run.path / "status.json").write_text(json.dumps(content))
    found = summary(run)
    assert (found.preset, found.ranks, found.total_steps, found.score_name, found.lower_is_better) == (
        "",
        0,
        0,
        "",
        False,
    )
    assert (found.seconds, found.changed) == (0.0, {"seed": 1})


def test_a_summary_goes_through_json(tmp_path):
    begun(tmp_path / "a").write_status("stopped", 50, -1.25)
    content = json.loads(json.dumps(summary(RunDirectory(tmp_path / "a")).content()))
    assert (content["best"], content["progress"], content["changed"]["seed"]) == (1.25, 0.25, 3)

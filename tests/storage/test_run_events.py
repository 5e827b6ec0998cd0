"""What happened to a run: written by anybody who knows, read without trust."""

import json

import pytest

from lockstep.cli.main import main
from lockstep.storage import run_events
from lockstep.storage.run_directory import RunDirectory


def test_events_come_back_in_the_order_they_were_noted(tmp_path):
    run_events.note(tmp_path, "started", "on 2 ranks", 0)
    run_events.note(tmp_path, "restart", "rank 1 was killed by SIGKILL")
    first, second = run_events.read(tmp_path)
    assert (first.kind, first.text, first.step) == ("started", "on 2 ranks", 0)
    assert (second.kind, second.step) == ("restart", None) and first.time <= second.time


@pytest.mark.parametrize(
    "line",
    [
        "not JSON",
        "[]",
        '{"time": 1, "kind": "party", "text": "x", "step": 1}',
        '{"time": 1e300, "kind": "started", "text": "x", "step": 1}',
        '{"time": 1, "kind": "started", "text": "x", "step": -1}',
        '{"time": 1, "kind": "started", "text": ["x"], "step": 1}',
        '{"time": 1, "kind": "started", "text": "' + "x" * 5000 + '", "step": 1}',
    ],
)
def test_a_line_that_is_no_event_is_left_out(tmp_path, line):
    run_events.note(tmp_path, "started", "before")
    with (tmp_path / run_events.EVENTS).open("a") as file:
        file.write(line + "\n")
    run_events.note(tmp_path, "finished", "after")
    assert [event.text for event in run_events.read(tmp_path)] == ["before", "after"]


def test_a_link_in_place_of_the_events_is_neither_read_nor_written(tmp_path):
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / run_events.EVENTS).symlink_to(tmp_path / "elsewhere")
    run_events.note(tmp_path, "started", "on 1 rank")
    assert (tmp_path / "elsewhere").read_text() == "" and run_events.read(tmp_path) == []


def test_a_run_notes_its_start_its_checkpoints_its_end_and_the_hash_of_its_weights(tmp_path):
    words = ["train", "snake", "--preset", "debug", "--runs-dir", str(tmp_path), "--run-name", "a"]
    assert main([*words, "--max-updates", "2", "--eval-every", "0"]) == 0
    assert main([*words, "--max-updates", "3", "--eval-every", "0"]) == 0
    kinds = [event.kind for event in run_events.read(tmp_path / "a")]
    assert kinds == ["started", "checkpoint", "stopped", "resumed", "checkpoint", "stopped"]
    points = RunDirectory(tmp_path / "a").log_points()
    assert points[-1]["system/memory_gb_rank0"] > 0 and 0 < points[-1]["time/split_learning_rank0"] <= 1
    hashes = [point["weights_sha256"] for point in points]
    assert len(set(hashes)) == 3
    # The last hash is that of the final weights, as the checkpoint's own tools compute it.
    from lockstep.storage.checkpoint import weights_hash
    from lockstep.storage.weights import load_weights

    assert hashes[-1] == weights_hash(load_weights(tmp_path / "a" / "final")[0])


def test_a_crash_without_a_launcher_is_noted(tmp_path, monkeypatch):
    from lockstep.run import session

    def crash(*_, **__):
        raise ZeroDivisionError("by my environment")

    monkeypatch.setattr(session, "train", crash)
    words = ["train", "snake", "--preset", "debug", "--runs-dir", str(tmp_path), "--run-name", "a"]
    (tmp_path / "a").mkdir(parents=True)
    (tmp_path / "a" / "keep").write_text("")
    with pytest.raises(ZeroDivisionError):
        main(words)
    (event,) = run_events.read(tmp_path / "a")
    assert (event.kind, event.text) == ("failed", "ZeroDivisionError: by my environment")
    assert json.loads((tmp_path / "a" / run_events.EVENTS).read_text())["step"] is None

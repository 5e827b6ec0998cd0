"""The player's process: frames as lines of JSON, newer weights as they come, an end when nobody reads."""

import json
import subprocess
import sys

import pytest

from lockstep.storage.weights import load_weights, save_weights
from lockstep.workloads.snake.workload import Snake


@pytest.fixture
def started():
    """Start a player; it is ended after the test."""
    players = []

    def start(*words):
        command = [sys.executable, "-m", "lockstep.player", *map(str, words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        players.append(subprocess.Popen(command, text=True, **pipes))
        return players[-1]

    yield start
    for player in players:
        with player:  # closes its pipes and waits for it
            player.kill()


def lines(player):
    return map(json.loads, player.stdout)


def test_newer_weights_are_played_as_they_come_and_damaged_ones_never(started, store_run, tmp_path):
    run = store_run(tmp_path, "demo", Snake().preset("debug").replace(grid_size=6, max_steps=60))
    config = (run / "final" / "config.yaml").read_text()
    weights = load_weights(run / "final")[0]
    save_weights(run / "best", weights, config_text=config, workload="snake", step=3456, extra={})
    with (run / "best" / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    player = started(run, "--speed", "4")
    seen = lines(player)
    notes = [next(seen)["note"] for _ in range(3)]
    assert notes == ["importing PyTorch", "loading best, step 3,456", "loading final, step 1,234"]
    first = next(seen)
    assert (first["step"], first["model"], first["drawing"]["kind"]) == (1234, "final", "board")
    assert first["caption"].startswith("step 0   length 3")
    save_weights(run / "best", weights, config_text=config, workload="snake", step=5678, extra={})
    assert next(frame for frame in seen if frame["step"] != 1234)["model"] == "best"
    player.stdin.close()
    assert player.wait(10) != 0, "ended by a signal, with the process that started it"


def test_a_run_without_weights_is_waited_for(started, tmp_path):
    player = started(tmp_path)
    assert next(lines(player))["note"].startswith("no weights yet")
    player.stdin.close()
    player.wait(10)


def test_weights_that_are_gone_end_it_with_one_line(started, tmp_path):
    player = started(tmp_path, "--model", "step-000000000001")
    assert [*lines(player)] == [
        {"error": "step-000000000001: no such weights in this run; it may have been replaced by a newer checkpoint"}
    ]

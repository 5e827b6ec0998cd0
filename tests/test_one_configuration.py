"""Ranks started by hand, as under any other launcher: they train with one configuration, or not at all."""

import os
import subprocess
import sys

import pytest

from lockstep.launch.sockets import loopback_listener

DEBUG = ["train", "snake", "--preset", "debug", "--max-updates", "2", "--eval-every", "0"]


def free_port():
    with loopback_listener() as listener:
        return listener.getsockname()[1]


def by_hand(*each_ranks_words):
    """Start a rank for each list of words; returns their exit codes and all that they wrote to stderr."""
    size, port = len(each_ranks_words), free_port()
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "lockstep", *words],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, words in enumerate(each_ranks_words)
    ]
    try:
        told = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], "".join(told)


@pytest.mark.parametrize(("mode", "setting", "theirs"), [("fast", "ent_coef", "0.9"), ("exact", "gamma", "0.5")])
def test_ranks_that_were_given_different_settings_are_refused_in_one_line(tmp_path, mode, setting, theirs):
    words = [*DEBUG, "--sync", mode, "--runs-dir", str(tmp_path), "--run-name", "one"]
    codes, told = by_hand([*words, f"{setting}=0.25"], [*words, f"{setting}={theirs}"])
    assert codes == [2, 2]
    assert told == (
        f"lockstep: rank 1 was given {setting} {theirs}, rank 0 0.25: all ranks of a run need the same settings; start "
        "them with the same command\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_were_given_the_same_train(tmp_path):
    words = [*DEBUG, "--runs-dir", str(tmp_path), "--run-name", "one"]
    codes, told = by_hand(words, [*words, "--timeout", "100"])
    assert codes == [0, 0], told
    assert (tmp_path / "one/final/model.safetensors").exists()

"""Whole runs through the command, on real ranks: the files they leave, and the way back after a kill."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.weights import load_weights

LOCKSTEP = [sys.executable, "-m", "lockstep"]
DEBUG = ["train", "snake", "--preset", "debug"]


def environment():
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return {**clean, "OMP_NUM_THREADS": "1"}


def command(*words, expect=0):
    done = subprocess.run([*LOCKSTEP, *words], capture_output=True, text=True, timeout=240, env=environment())
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def final_hash(run):
    return weights_hash(load_weights(run / "final")[0])


def logged_steps(run):
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def files_of(run):
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}


def check_layout(run, lanes=8):
    found = files_of(run)
    newest = sorted(path for path in found if path.endswith("state.json"))[-1].removesuffix("state.json")
    expected = {"config.yaml", "system.json", "metrics.jsonl", "evaluation.json"}
    expected |= {f"{place}/{name}" for place in ("best", "final") for name in ("model.safetensors", "manifest.json")}
    expected |= {newest + name for name in ("manifest.json", "model.safetensors", "optimizer.safetensors")}
    expected |= {f"{newest}lanes/lane-{lane:02}.safetensors" for lane in range(lanes)}
    assert expected <= found, expected - found
    assert len([path for path in found if path.startswith("tensorboard/events")]) == 1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """One run on two ranks, never touched, in each mode."""
    folder = tmp_path_factory.mktemp("undisturbed")
    command(*DEBUG, "--runs-dir", str(folder), "--run-name", "fast", "--ranks", "2")
    command(*DEBUG, "--runs-dir", str(folder), "--run-name", "exact", "--sync", "exact")
    return folder


def test_two_ranks_leave_one_run_directory_with_every_file(undisturbed):
    check_layout(undisturbed / "fast")
    assert sorted(path.name for path in undisturbed.iterdir()) == ["exact", "fast"]
    system = json.loads((undisturbed / "fast/system.json").read_text())
    assert system["world"]["size"] == 2
    steps = logged_steps(undisturbed / "fast")
    assert steps == [256 * update for update in range(1, 21)]


@pytest.mark.slow
def test_torchrun_is_the_same_path(undisturbed, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "lockstep"]
    words = [*torchrun, *DEBUG, "--runs-dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = tmp_path.iterdir()
    assert run.name.startswith("snake-")
    check_layout(run)
    assert final_hash(run) == final_hash(undisturbed / "fast")


def kill_somewhere(words, run, seed):
    """Start a run and kill all of it with SIGKILL at a random moment after its first log point."""
    process = subprocess.Popen(
        [*LOCKSTEP, *words], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    log = run / "metrics.jsonl"
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(random.Random(seed).uniform(0.0, 0.6))
    family = [process, *(psutil.Process(process.pid).children(recursive=True) if process.poll() is None else [])]
    for member in family:
        member.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize(
    ("mode", "first", "then", "seed"),
    [
        pytest.param("fast", "2", "2", 0, marks=pytest.mark.slow),
        pytest.param("exact", "1", "2", 1, marks=pytest.mark.slow),
        ("exact", "2", "3", 2),
    ],
)
def test_a_killed_run_ends_in_the_undisturbed_weights(undisturbed, tmp_path, mode, first, then, seed):
    words = [*DEBUG, "--sync", mode, "--runs-dir", str(tmp_path), "--run-name", mode, "--checkpoint-every", "512"]
    run = tmp_path / mode
    kill_somewhere([*words, "--ranks", first], run, seed)
    assert not (run / "final").exists(), "the run ended before it was killed"
    command(*words, "--ranks", then)
    assert final_hash(run) == final_hash(undisturbed / mode)
    assert logged_steps(run) == [256 * update for update in range(1, 21)]


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(undisturbed, tmp_path):
    words = [*DEBUG, "--sync", "exact", "--runs-dir", str(tmp_path), "--run-name", "exact"]
    command(*words, "--max-updates", "15", "--checkpoint-every", "1280")
    run = tmp_path / "exact"
    newest = sorted((run / "checkpoints").iterdir())[-1]
    victim = newest / "lanes" / "lane-03.safetensors"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    assert "DAMAGED" in command("verify", str(run), expect=4)
    output = command("resume", str(run), "--max-updates", "0")
    assert newest.name in output and "lane-03" in output
    assert final_hash(run) == final_hash(undisturbed / "exact")


def test_sigterm_saves_and_the_same_command_goes_on(undisturbed, tmp_path):
    words = [*DEBUG, "--runs-dir", str(tmp_path), "--run-name", "fast", "--ranks", "2", "--checkpoint-every", "0"]
    process = subprocess.Popen(
        [*LOCKSTEP, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    log = tmp_path / "fast" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert "stopped on request" in output
    assert output.count("stopping, saving first") == 1
    assert len(list((tmp_path / "fast" / "checkpoints").glob("step-*"))) == 1
    command(*words)
    assert final_hash(tmp_path / "fast") == final_hash(undisturbed / "fast")


@pytest.mark.slow
def test_resume_can_give_a_finished_run_more_steps_on_more_ranks(tmp_path):
    words = [*DEBUG, "--sync", "exact", "--runs-dir", str(tmp_path)]
    command(*words, "--run-name", "whole", "--total-timesteps", "2560")
    command(*words, "--run-name", "split", "--total-timesteps", "1280")
    command("resume", str(tmp_path / "split"), "--total-timesteps", "2560", "--ranks", "2")
    assert final_hash(tmp_path / "split") == final_hash(tmp_path / "whole")
    assert "finished" in command("train", *words[1:], "--run-name", "whole", "--total-timesteps", "2560", expect=2)


def test_behaviour_cloning_comes_first_and_learns(tmp_path):
    command(
        *DEBUG, "--runs-dir", str(tmp_path), "--run-name", "clone", "--pretrain-bc", "2560", "--learning-rate", "0.003"
    )
    lines = [json.loads(line) for line in (tmp_path / "clone/metrics.jsonl").read_text().splitlines()]
    accuracy = [line["train/cloning_accuracy"] for line in lines if "train/cloning_accuracy" in line]
    assert len(accuracy) == 10 and "train/policy_loss" in lines[10]
    assert accuracy[-1] > accuracy[0] + 0.15


@pytest.mark.slow
def test_what_follows_cloning_is_the_same_on_any_number_of_ranks(tmp_path):
    words = [*DEBUG, "--sync", "exact", "--runs-dir", str(tmp_path), "--pretrain-bc", "512", "--check-every", "1"]
    for ranks in ("1", "2"):
        command(*words, "--run-name", ranks, "--ranks", ranks, "--total-timesteps", "1280")
    assert final_hash(tmp_path / "1") == final_hash(tmp_path / "2")


def test_nothing_outlives_a_run(tmp_path_factory):
    ours = str(tmp_path_factory.getbasetemp())
    words = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert [line for line in words if "lockstep train" in line and ours in line] == []


def test_a_second_process_in_the_same_run_is_refused(tmp_path):
    words = [*DEBUG, "--runs-dir", str(tmp_path), "--run-name", "one", "--total-timesteps", "1000000"]
    first = subprocess.Popen(
        [*LOCKSTEP, *words], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        log = tmp_path / "one" / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert str(first.pid) in command(*words, expect=2)
    finally:
        first.kill()
        first.wait()

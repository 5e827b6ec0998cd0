"""Environments in other processes: the same numbers, and a clear end when one of them dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lockstep.envs import worker_pool
from lockstep.envs.worker_pool import shared_pool
from lockstep.errors import RunFailed


@pytest.fixture(autouse=True, scope="module")
def own_workers():
    """Workers of other tests do not know where this folder is, nor do other tests need these."""
    shared_pool().disband()
    yield
    shared_pool().disband()


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


def test_workers_give_the_same_numbers_and_the_same_state_as_one_process(points):
    here, there = points(3, 1), points(3, 2)
    assert len(shared_pool().workers) == 2
    assert torch.equal(here.reset(), there.reset())
    for _ in range(7):
        action = torch.rand(3, 1) * 2 - 1
        one, other = here.step(action), there.step(action)
        assert torch.equal(one.observation, other.observation) and torch.equal(one.reward, other.reward)
        assert torch.equal(one.truncated, other.truncated)
    state = here.state()
    assert all(torch.equal(value, there.state()[name]) for name, value in state.items())
    later = points(3, 2)
    later.load(state)
    action = torch.rand(3, 1)
    assert torch.equal(here.step(action).observation, later.step(action).observation)


def test_the_workers_are_kept_and_forget_environments_that_nobody_has_any_more(points):
    first = points(2, 2)
    first.reset()
    pids = [worker.pid for worker in shared_pool().workers]
    del first
    assert all(worker.retired for worker in shared_pool().workers)
    second = points(2, 2)
    second.reset()
    assert [worker.pid for worker in shared_pool().workers] == pids
    assert not any(worker.retired for worker in shared_pool().workers)


def test_a_worker_that_dies_is_told_in_one_line_and_takes_the_others_with_it(points):
    env = points(2, 2)
    env.reset()
    pids = [worker.pid for worker in shared_pool().workers]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RunFailed, match=rf"worker {pids[1]}.*signal 9") as caught:
        for _ in range(3):
            env.step(torch.zeros(2, 1))
    assert len(str(caught.value).splitlines()) == 1
    assert all(map(gone, pids)) and not shared_pool().workers


def test_workers_go_on_when_the_whole_run_is_told_to_stop(points):
    env = points(2, 2)
    env.reset()
    for worker in shared_pool().workers:
        for notice in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            os.kill(worker.pid, notice)
    env.step(torch.zeros(2, 1))
    assert not any(gone(worker.pid) for worker in shared_pool().workers)


def test_a_worker_that_falls_silent_is_not_waited_for_for_ever(points, monkeypatch):
    env = points(2, 2, timeout=0.1)
    env.reset()
    monkeypatch.setattr(worker_pool, "PATIENCE", 0.4)
    os.kill(shared_pool().workers[0].pid, signal.SIGSTOP)
    with pytest.raises(RunFailed, match=r"environment 0: worker \d+ did not answer for"):
        env.step(torch.zeros(2, 1))
    assert not shared_pool().workers


def test_an_environment_that_fails_in_a_worker_says_why(points):
    env = points(2, 2)
    env.reset()
    with pytest.raises(RunFailed, match=r"environment 0: failed in restore \(ValueError: .*toy_simulation.py:\d+\)"):
        env._host.restore(env._next_seeds, [torch.zeros(3).double().numpy()] * 2)


def test_no_worker_outlives_its_owner():
    code = (
        "import os, signal, numpy; from lockstep.envs.hosting import Simulators, Sizes;"
        "from lockstep.envs.worker_pool import shared_pool;"
        "points = Simulators('toy_simulation:open_point', ('point',) * 2, (1, 1), Sizes(2, 1));"
        "shared_pool().host(2, points).reset(numpy.zeros(2, numpy.uint32));"
        "print(*[w.pid for w in shared_pool().workers], flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    wait_until(lambda: all(map(gone, pids)))

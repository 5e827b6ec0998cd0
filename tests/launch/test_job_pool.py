"""Several commands at once: slots, reasons of failures, stop requests, and what a machine has room for."""

import os
import signal
import threading
import time

import pytest

from lockstep.launch import resources
from lockstep.launch.job_pool import Job, JobPool


@pytest.fixture
def job(tmp_path):
    return lambda name, *arguments: Job(name, arguments, tmp_path / f"{name}.log")


def test_a_failed_job_is_named_with_its_reason_and_the_others_go_on(job, tmp_path):
    jobs = [job("good", "--version"), job("bad", "trian"), job("last", "list", "--json")]
    with JobPool([{}]) as pool:
        ended = list(pool.run(jobs))
    assert [(end.job.name, end.code) for end in ended] == [("good", 0), ("bad", 2), ("last", 0)]
    assert ended[0].reason == ended[2].reason == ""
    assert ended[1].reason.startswith("trian: unknown verb; the nearest is train")
    assert (tmp_path / "good.log").read_text().startswith("lockstep ")


def test_the_next_job_is_taken_when_a_slot_is_free(job):
    seen = []

    def jobs():
        for number in range(3):
            seen.append(f"asked {number}")
            yield job(str(number), "--version")

    with JobPool([{}]) as pool:
        for end in pool.run(jobs()):
            seen.append(f"ended {end.job.name}")
    assert seen == ["asked 0", "ended 0", "asked 1", "ended 1", "asked 2", "ended 2"]


def test_a_job_sees_the_variables_of_its_slot(job, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os, sys; print(os.environ['SLOT']); sys.exit(5)")
    slots = [{"SLOT": name, "PYTHONPATH": str(tmp_path)} for name in "AB"]
    with JobPool(slots) as pool:
        list(pool.run([job("first"), job("second")]))
    assert "A" in (tmp_path / "first.log").read_text().split()
    assert "B" in (tmp_path / "second.log").read_text().split()


def test_an_error_that_nobody_expected_is_told_by_its_last_line(job, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os; print('ValueError: \\x1b[1msix is not seven\\n'); os._exit(1)"
    )
    with JobPool([{"PYTHONPATH": str(tmp_path)}]) as pool:
        (ended,) = pool.run([job("bad")])
    assert ended.reason == "ValueError: [1msix is not seven"


def test_a_stop_request_reaches_every_job_and_no_other_is_started(job, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import time; print('here', flush=True); time.sleep(60)")
    slots = [{"PYTHONPATH": str(tmp_path)}] * 2

    def stop():
        while not all((tmp_path / f"{name}.log").exists() and (tmp_path / f"{name}.log").read_text() for name in "ab"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    before = signal.getsignal(signal.SIGTERM)
    with JobPool(slots) as pool:
        ended = list(pool.run([job(name) for name in "abc"]))
    thread.join()
    assert pool.stopped_by == signal.SIGTERM
    assert sorted((end.job.name, end.code) for end in ended) == [("a", -signal.SIGTERM), ("b", -signal.SIGTERM)]
    assert {end.reason for end in ended} == {"was killed by SIGTERM"}
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(resources, "cores", lambda: 8)
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def test_cores_are_shared_among_the_runs_at_once(eight_cores):
    assert resources.shares(100, 1, None, 0) == [{"OMP_NUM_THREADS": "1"}] * 8
    assert resources.shares(100, 3, None, 0) == [{"OMP_NUM_THREADS": "1"}] * 2
    assert resources.shares(100, 1, 2, 0) == [{"OMP_NUM_THREADS": "4"}] * 2
    assert resources.shares(2, 1, None, 0) == [{"OMP_NUM_THREADS": "4"}] * 2
    assert resources.shares(100, 16, None, 0) == [{"OMP_NUM_THREADS": "1"}]


def test_threads_that_the_user_sets_stay(eight_cores, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert resources.shares(100, 1, 2, 0) == [{"OMP_NUM_THREADS": "3"}] * 2


def test_each_run_gets_a_set_of_gpus(eight_cores, monkeypatch):
    def sets(*arguments):
        return [slot["CUDA_VISIBLE_DEVICES"] for slot in resources.shares(100, *arguments)]

    assert sets(1, None, 4) == ["0", "1", "2", "3"]
    assert sets(2, None, 5) == ["0,1", "2,3"]
    assert sets(8, None, 4) == ["0,1,2,3"]
    assert sets(1, 3, 2) == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-3a,7")
    assert sets(1, None, 3) == ["5", "GPU-3a", "7"]

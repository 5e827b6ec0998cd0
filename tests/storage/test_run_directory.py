"""The run directory: safe names, one writer at a time, and a correct list of runs."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep.distributed.world import World
from lockstep.errors import RunFailed, UserError
from lockstep.storage import run_lock
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_summary import list_runs

HOSTILE = [
    "../x",
    "..",
    ".",
    "/etc",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "a\n",
    "x" * 101,
    "x" * 300,
    "",
    " a",
    "-rf",
    ".hidden",
]
DEVICES = ["CON", "con", "nul", "Com1", "LPT9", "aux.txt", "prn.a.b"]


def begun(path: Path, workload: str = "snake") -> RunDirectory:
    run = RunDirectory(path)
    run.prepare()
    run.write_config("seed: 1\n", workload)
    return run


def test_valid_names_are_accepted(tmp_path):
    for name in ("a", "snake-2026.01_b", "x" * 100, "CONtrol", "0"):
        assert RunDirectory.named(tmp_path, name).path == tmp_path / name


@pytest.mark.parametrize("name", HOSTILE + DEVICES)
def test_invalid_names_are_refused_in_one_line_and_nothing_is_written(tmp_path, name):
    before = sorted(tmp_path.parent.rglob("*"))
    with pytest.raises(UserError) as refusal:
        RunDirectory.named(tmp_path, name)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400
    with pytest.raises(UserError):
        RunDirectory.find(name, tmp_path)
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_a_linked_run_directory_is_refused(tmp_path):
    outside, runs = tmp_path / "outside", tmp_path / "runs"
    outside.mkdir()
    runs.mkdir()
    (runs / "linked").symlink_to(outside)
    with pytest.raises(UserError, match="is a link out of"):
        RunDirectory.named(runs, "linked")
    with pytest.raises(UserError, match="is a link out of"):
        RunDirectory(runs / "linked").prepare()
    assert list(outside.iterdir()) == []
    assert list_runs(runs) == []


def test_a_directory_that_cannot_be_written_is_found_before_anything_starts(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run: cannot be written to \(Not a directory") as refusal:
        RunDirectory.named(tmp_path / "file", "run").prepare()
    assert refusal.value.exit_code == 2


def test_a_full_disk_is_found_before_anything_starts(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        RunDirectory(tmp_path / "run").prepare()
    monkeypatch.undo()
    assert list((tmp_path / "run").iterdir()) == []


def test_preparing_leaves_nothing_but_folders(tmp_path):
    run = RunDirectory(tmp_path / "deep" / "run")
    run.prepare()
    run.prepare()
    assert [path.name for path in run.path.rglob("*")] == ["checkpoints"]


def test_a_new_directory_is_removed_if_no_run_started_in_it(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(UserError, match="no such data"), run.prepared(keeps=False):
        run.path.joinpath("system.json").write_text("{}")
        raise UserError("no such data")
    assert not run.path.exists()
    with run.prepared(keeps=True):
        pass
    assert run.path.exists()
    with run.prepared(keeps=False):  # it was there before
        pass
    assert run.path.exists()
    with RunDirectory(tmp_path / "begun").prepared(keeps=False):
        begun(tmp_path / "begun")
    assert (tmp_path / "begun" / "config.yaml").exists()


def test_the_configuration_comes_back_with_its_workload(tmp_path):
    run = begun(tmp_path / "a", workload="trading")
    assert (run.path / "config.yaml").read_text() == "# workload: trading\nseed: 1\n"
    assert run.read_config() == ("trading", "seed: 1\n")
    assert RunDirectory.find("a", tmp_path).path == run.path
    assert RunDirectory.find(str(run.path), tmp_path / "elsewhere").path == run.path
    with pytest.raises(UserError, match="the nearest is a"):
        RunDirectory.find("aa", tmp_path)
    (run.path / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(UserError, match="first line must name the workload"):
        run.read_config()


def test_system_json_says_versions_devices_and_world(tmp_path):
    run = begun(tmp_path / "a")
    run.write_system(World().with_lanes(4, "fast"))
    system = json.loads((run.path / "system.json").read_text())
    assert system["versions"]["python"] == platform.python_version()
    assert system["world"] == {"size": 1, "lanes": 4, "device": "cpu"}
    assert system["devices"]["cpus"] == os.cpu_count()
    assert system["started"]


def test_the_list_shows_state_step_and_score_the_latest_first(tmp_path):
    with begun(tmp_path / "going").locked():
        begun(tmp_path / "going").write_status("running", 10, float("-inf"))
        begun(tmp_path / "done").write_status("finished", 30, 1.5)
        begun(tmp_path / "killed").write_status("running", 20, 2.5)
        (tmp_path / "no-run").mkdir()
        (tmp_path / "file").write_text("")
        broken = begun(tmp_path / "broken")
        (broken.path / "status.json").write_text('{"state": "flying"}')
        rows = [(row.name, row.workload, row.state, row.step, row.best_score) for row in list_runs(tmp_path)]
    assert rows == [
        ("broken", "", "unreadable", 0, None),
        ("killed", "snake", "stopped", 20, 2.5),
        ("done", "snake", "finished", 30, 1.5),
        ("going", "snake", "running", 10, None),
    ]
    assert list_runs(tmp_path / "nowhere") == []


def test_a_run_without_a_status_counts_from_its_configuration(tmp_path):
    run = begun(tmp_path / "a")
    (run.path / "status.json").write_text('{"state": "flying"}')
    os.utime(run.path / "config.yaml", (1e9, 1e9))
    assert [(row.name, row.updated) for row in list_runs(tmp_path)] == [("a", 1e9)]


def test_a_restart_keeps_the_step_and_score_it_had(tmp_path):
    begun(tmp_path / "a").write_status("stopped", 10, 3.0)
    status = begun(tmp_path / "a").status()
    assert (status.state, status.step, status.best_score) == ("running", 10, 3.0)


def test_a_status_that_cannot_be_written_is_only_a_warning(tmp_path, caplog):
    (tmp_path / "run").write_text("no directory")
    RunDirectory(tmp_path / "run").write_status("running", 1)
    assert "status not written" in caplog.text


def test_a_deleted_directory_is_reported_by_the_lock_and_not_by_the_status(tmp_path, caplog):
    run = RunDirectory(tmp_path / "run")
    with run.locked() as lock:
        shutil.rmtree(run.path)
        run.write_status("running", 1)
        with pytest.raises(RunFailed, match=r"its lock\.json was moved or deleted"):
            lock.check()
    assert not caplog.text and not run.path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the current name of an open file")
def test_a_moved_directory_is_reported_with_its_new_path(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with run.locked() as lock:
        run.path.rename(tmp_path / "elsewhere")
        with pytest.raises(RunFailed, match=f"moved to {tmp_path}/elsewhere .* `lockstep resume {tmp_path}/elsewhere`"):
            lock.check()


def test_runs_started_in_the_same_second_have_different_names(tmp_path):
    names = [RunDirectory.fresh(tmp_path / "runs", "snake-20260101-000000").name for _ in range(3)]
    assert names == [f"snake-20260101-000000{end}" for end in ("", "-2", "-3")]


def test_a_refused_start_leaves_the_directory_to_the_run_that_has_begun_in_it(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(UserError, match="refused"), run.prepared(keeps=False):
        # The other one holds the lock, and has not come to write its config.yaml.
        other = RunDirectory(tmp_path / "run").locked()
        other.__enter__()
        raise UserError("refused")
    assert run.path.is_dir()
    other.__exit__(None, None, None)


def test_a_second_run_is_refused_with_the_first_ones_pid_and_host(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "_PATIENCE", 0.1)
    run = RunDirectory(tmp_path / "a")
    with run.locked():
        holder = f"in use by pid {os.getpid()} on {platform.node()} since 20"
        with pytest.raises(UserError, match=holder), RunDirectory(tmp_path / "a").locked():
            pytest.fail("two writers")
    with run.locked():
        pass


def test_a_lock_is_released_after_an_error(tmp_path):
    run = RunDirectory(tmp_path / "a")
    with pytest.raises(KeyError), run.locked():
        raise KeyError
    assert not run_lock.is_held(run.path / "lock.json")
    with run.locked():
        assert run_lock.is_held(run.path / "lock.json")


HOLD_FOR_EVER = """
import sys, time, pathlib
from lockstep.storage import run_lock
with run_lock.hold(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("with_kernel", [True, False])
def test_a_killed_holder_releases_the_lock_with_and_without_kernel_locks(tmp_path, monkeypatch, with_kernel):
    monkeypatch.setattr(run_lock, "_PATIENCE", 0.1)
    lock = tmp_path / "lock.json"
    child = subprocess.Popen([sys.executable, "-c", HOLD_FOR_EVER, str(lock)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "held\n"
        if not with_kernel:
            monkeypatch.setattr(run_lock, "fcntl", None)
        assert run_lock.is_held(lock)
        with pytest.raises(UserError, match=f"pid {child.pid} "), run_lock.hold(lock):
            pytest.fail("two writers")
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert not run_lock.is_held(lock)
        with run_lock.hold(lock):
            assert json.loads(lock.read_text())["pid"] == os.getpid()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_without_kernel_locks_a_holder_on_another_host_counts_as_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "_PATIENCE", 0.1)
    monkeypatch.setattr(run_lock, "fcntl", None)
    lock = tmp_path / "lock.json"
    lock.write_text(json.dumps({"pid": 1, "host": "another-host", "since": time.time()}))
    with pytest.raises(UserError, match="pid 1 on another-host"), run_lock.hold(lock):
        pytest.fail("two writers")
    # The same number, but another process: pid 1 here began at another time.
    lock.write_text(json.dumps({"pid": 1, "host": platform.node(), "since": 1.0}))
    with run_lock.hold(lock):
        pass


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux counts from the machine's own start")
def test_without_kernel_locks_a_holder_counts_as_alive_after_the_clock_was_set_back(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "_PATIENCE", 0.1)
    monkeypatch.setattr(run_lock, "fcntl", None)
    lock = tmp_path / "lock.json"
    with run_lock.hold(lock):
        # The system adds a process's age to the time at which the machine started, by the clock of now.
        began = psutil.Process().create_time()
        monkeypatch.setattr(psutil.Process, "create_time", lambda _: began - 3600.0)
        assert run_lock.is_held(lock)
        lock.write_text(json.dumps(json.loads(lock.read_text()) | {"ticks": 1}))
        assert not run_lock.is_held(lock), "another process of the same number"


def test_a_later_world_of_the_same_job_takes_the_lock_over_and_the_earlier_one_may_not_write(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "_PATIENCE", 0.1)
    run = RunDirectory(tmp_path / "run")
    with run.locked(("job", 1)) as earlier:
        earlier.check()
        with pytest.raises(UserError, match="in use by pid"), run.locked(("another job", 9)):
            pass
        with pytest.raises(UserError, match="in use by pid"), run.locked():
            pass
        with run.locked(("job", 2)) as later:
            later.check()
            with pytest.raises(RunFailed, match="taken over by pid"):
                earlier.check()
            # Not even the same job's own past comes back.
            with pytest.raises(UserError, match="in use by pid"), run.locked(("job", 1)):
                pass
        assert not list(run.path.glob(".tmp-*"))
    with run.locked():
        pass


def test_a_run_without_a_job_is_never_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "_PATIENCE", 0.1)
    run = RunDirectory(tmp_path / "run")
    with run.locked(), pytest.raises(UserError, match="in use by pid"), run.locked(("job", 2)):
        pass


ODD_STATUSES = {
    "deep": b"[" * 100_000,
    "deep but closed": b"[" * 5000 + b"]" * 5000,
    "a date beyond all": b'{"workload": "s", "state": "finished", "step": 1, "best_score": null, "updated": 1e300}',
    "no number": b'{"workload": "s", "state": "finished", "step": 1, "best_score": NaN, "updated": 1}',
    "a date that is no number": b'{"workload": "s", "state": "finished", "step": 1, "best_score": 1, "updated": NaN}',
    "400 digits": b'{"workload": "s", "state": "finished", "step": ' + b"9" * 400 + b', "best_score": 1, "updated": 1}',
    "a step below zero": b'{"workload": "s", "state": "finished", "step": -1, "best_score": 1, "updated": 1}',
    "a terminal's orders": b'{"workload": "\\u001b[2J", "state": "finished", "step": 1, "best_score": 1, "updated": 1}',
    "large": b"1" * (2 << 20),
    "empty": b"",
}


@pytest.mark.parametrize("odd", ODD_STATUSES)
def test_an_invalid_status_is_shown_as_unreadable_and_hides_no_other_run(tmp_path, odd):
    begun(tmp_path / "good").write_status("finished", 7, 1.0)
    begun(tmp_path / "odd")
    (tmp_path / "odd" / "status.json").write_bytes(ODD_STATUSES[odd])
    rows = {row.name: (row.state, row.step) for row in list_runs(tmp_path)}
    assert rows == {"good": ("finished", 7), "odd": ("unreadable", 0)}


def test_runs_are_listed_without_waiting_for_a_pipe(tmp_path):
    for name in ("config.yaml", "status.json", "lock.json"):
        begun(tmp_path / name.partition(".")[0]).write_status("running", 1)
        path = tmp_path / name.partition(".")[0] / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    rows = {row.name: row.state for row in list_runs(tmp_path)}
    assert rows == {"status": "unreadable", "lock": "stopped"}


@pytest.mark.parametrize("holder", [b"[" * 9999, b'{"pid": 1e300, "host": "h", "since": NaN}', b"9" * 400])
def test_an_invalid_lock_file_names_no_holder(tmp_path, holder):
    (tmp_path / "lock.json").write_bytes(holder)
    assert run_lock._holder(tmp_path / "lock.json") is None
    (tmp_path / "lock.json").write_text(json.dumps({"pid": 10**400, "host": "h", "since": 1e300}))
    assert run_lock._holder(tmp_path / "lock.json") is None


@pytest.mark.parametrize("name", ["checkpoints", "best", "tensorboard", "export", "metrics.jsonl", "status.json"])
def test_a_run_does_not_write_through_links_out_of_its_directory(tmp_path, name):
    run = begun(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "run" / name
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"{name}: is a link; a run writes to its own directory only"):
        run.prepare()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match=f"{name}: is not a (folder|regular file)"):
        run.prepare()


def test_a_new_run_has_its_name_on_the_disk(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())), real(fd)))
    RunDirectory(tmp_path / "runs" / "mine").prepare()
    assert {str(tmp_path), str(tmp_path / "runs"), str(tmp_path / "runs" / "mine")} <= set(synced)


def test_an_older_checkpoints_best_does_not_replace_a_newer_one(tmp_path):
    run = begun(tmp_path / "a")
    run.note_best(-0.5)
    # As written by the thread of checkpoints, from a snapshot that was taken before that evaluation.
    run.write_status("running", 100, -0.75)
    assert (run.status().step, run.status().best_score) == (100, -0.5)
    # In another process the notes of the checkpoint decide: what came later may have been set aside.
    RunDirectory(tmp_path / "a").write_status("running", 100, -0.75)
    assert run.status().best_score == -0.75

"""Real ranks under the launcher. Most are small scripts without torch, which takes seconds to import."""

import json
import multiprocessing
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

import psutil
import pytest

from lockstep.launch import agent
from lockstep.launch import launcher as launcher_module
from lockstep.launch.launcher import run_ranks

BEGINNING = """
import json, os, signal, sys, time
from pathlib import Path
from lockstep.launch.rank_process import enter_rank
from lockstep.launch.heartbeat import Heartbeat
enter_rank()
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
place, heartbeat = Path(sys.argv[1]), Heartbeat.of_this_rank()

def wait_for(name):
    while not (place / name).exists():
        time.sleep(0.01)
"""

TRAINING = """
import psutil, torch
from lockstep.distributed.world import open_world
with open_world("cpu", timeout=60) as world:
    for step in range(5):
        heartbeat.tell(step, "learning")
        total = world.sum(torch.ones(1)).item()
        if attempt == 0 and step == 3 and world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    mine = [c.laddr.ip for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    listening = sorted({ip for found in world.gather_json(mine) for ip in found})
    if world.leads:
        (place / "result").write_text(json.dumps([attempt, total, world.size, listening]))
    heartbeat.tell(5, "finished")
"""


@pytest.fixture
def start(tmp_path):
    """Run a script as ranks under a launcher in this process: (exit code, the launcher's lines)."""

    def run(script, ranks=2, **options):
        lines = []
        code = run_ranks(command(tmp_path, script), ranks, say=lines.append, **options)
        return code, lines

    return run


@pytest.fixture
def background(tmp_path, monkeypatch):
    """Run a script as ranks under a launcher in its own process, which can be sent signals."""
    launchers = []
    # Folders that a killed launcher leaves behind are removed with the test's.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(script, ranks=2, **options):
        # Forked, so that nothing has to be imported again.
        target = multiprocessing.get_context("fork").Process(
            target=lambda: os._exit(run_ranks(command(tmp_path, script), ranks, **options))
        )
        target.start()
        launchers.append(target)
        wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == ranks)
        return target

    yield run
    for launcher in launchers:
        launcher.kill()
        launcher.join()


def command(folder, script):
    path = folder / "rank.py"
    path.write_text(BEGINNING + textwrap.dedent(script))
    return [sys.executable, str(path), str(folder)]


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def children_of(pid):
    return psutil.Process(pid).children(recursive=True)


def test_ranks_run_to_the_end_and_only_rank_0_prints(start, capfd, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    code, lines = start(
        """print("rank", rank, "of", os.environ["WORLD_SIZE"], os.environ["OMP_NUM_THREADS"])""", 3, threads=2
    )
    assert (code, lines) == (0, [])
    assert capfd.readouterr().out == "rank 0 of 3 2\n"


def test_rank_0_sees_the_launchers_terminal(tmp_path):
    script = command(tmp_path, """(place / f"tty-{rank}").write_text(str(sys.stdout.isatty()))""")
    child, terminal = pty.fork()
    if child == 0:
        os._exit(run_ranks(script, 2))
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)
    assert [(tmp_path / f"tty-{rank}").read_text() for rank in range(2)] == ["True", "False"]


@pytest.mark.parametrize("code", [2, 3, 4, 75])
def test_a_deliberate_exit_is_passed_on_without_a_restart(start, tmp_path, code):
    script = f"""
        (place / f"attempt-{{attempt}}-{{rank}}").touch()
        print("the reason", file=sys.stderr)
        sys.exit({code})
    """
    # Rank 0 has printed the reason itself.
    assert start(script) == (code, [])
    assert len(list(tmp_path.glob("attempt-*"))) == 2


def test_a_deliberate_exit_of_another_rank_is_shown(start):
    code, lines = start("""
        if rank == 1:
            print("lanes 0: at least 1", file=sys.stderr)
            sys.exit(2)
        time.sleep(0.1)
        raise RuntimeError("[gloo] Connection closed by peer")
    """)
    assert code == 2
    assert lines[0].startswith("rank 1 ended with exit code 2 at ")
    assert lines[1:] == ["  lanes 0: at least 1", "rank(s) 0 ended because of it"]


def test_a_traceback_is_shown_once_and_the_same_one_twice_ends_the_run(start, tmp_path, capfd):
    code, lines = start("""
        (place / f"attempt-{attempt}-{rank}").touch()
        wait_for(f"attempt-{attempt}-{1 - rank}")
        heartbeat.tell(7, "acting")
        if rank == 1:
            raise ValueError("bad lane")
        time.sleep(0.1)
        raise RuntimeError("[gloo] Connection closed by peer")
    """)
    assert code == 3
    where = "rank 1 ended with exit code 1 at step 7 (acting)"
    assert [line for line in lines if not line.startswith("  ")] == [
        f"{where}; restarting all ranks from the newest checkpoint (1 of 3)",
        where,
        "rank(s) 0 ended because of it",
        "not restarted: it failed in the same way twice",
    ]
    assert lines.count("  ValueError: bad lane") == 2
    assert len(list(tmp_path.glob("attempt-*"))) == 4
    assert "Traceback" not in capfd.readouterr().err


def test_restarts_are_limited(start):
    code, lines = start("""os.kill(os.getpid(), signal.SIGKILL)""", 1, max_restarts=1)
    assert code == 3
    assert lines[0].startswith("rank 0 was killed by SIGKILL at ")
    assert lines[0].endswith("; restarting all ranks from the newest checkpoint (1 of 1)")
    assert lines[-1] == "not restarted: 1 restart(s) in a row made no progress"


def test_every_decision_is_told_to_whoever_notes_it(start):
    noted = []
    start("os.kill(os.getpid(), signal.SIGKILL)", ranks=1, max_restarts=1, noted=noted.append)
    assert [decision.restart for decision in noted] == [True, False]
    assert "was killed by SIGKILL" in noted[0].lines[-1] and "was killed by SIGKILL" in noted[1].reason


def test_a_rank_that_leaves_early_is_named(start):
    code, lines = start("""
        if attempt == 0:
            if rank == 1:
                os._exit(0)
            time.sleep(0.3)
            raise RuntimeError("[gloo] Connection closed by peer")
    """)
    assert code == 0
    assert lines[-1].startswith("rank 1 left before the others, with exit code 0, at ")


def test_a_killed_rank_is_restarted_into_a_working_world_on_loopback(start, tmp_path):
    code, lines = start(TRAINING)
    assert code == 0
    assert lines == [
        "rank 1 was killed by SIGKILL at step 3 (learning); restarting all ranks from the newest checkpoint (1 of 3)"
    ]
    assert json.loads((tmp_path / "result").read_text()) == [1, 2.0, 2, ["127.0.0.1"]]


@pytest.mark.slow
@pytest.mark.parametrize("debug", ["OFF", "DETAIL"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("world.sum(torch.ones(3000))", "world.sum(torch.ones(4000))"),
        ("world.gather_json(rank)", "world.sum(torch.ones(4))"),
        ("world.agree(1), world.sum(torch.ones(4000))", "world.sum(torch.ones(4000)), world.agree(1)"),
    ],
    ids=["shape", "operation", "order"],
)
def test_ranks_that_call_different_collectives_are_reported(start, monkeypatch, debug, one, other):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", debug)
    code, lines = start(
        f"""
        import torch
        from lockstep.distributed.world import open_world
        with open_world("cpu", timeout=6) as world:
            ({one}) if rank else ({other})
        """,
        max_restarts=0,
    )
    assert code == 3
    report = "\n".join(lines)
    if debug == "DETAIL":
        assert "Detected mismatch between collectives on ranks. Rank" in report
    else:
        assert "with TORCH_DISTRIBUTED_DEBUG=DETAIL and --sync exact torch names both" in report


def test_torchrun_starts_and_restarts_the_same_world(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*torchrun, *command(tmp_path, TRAINING)[1:]], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "result").read_text()) == [1, 2.0, 2, ["127.0.0.1"]]


def test_a_suspended_rank_is_detected_named_and_restarted(start, monkeypatch):
    monkeypatch.setattr(agent, "_CRASH_GRACE", 0.5)
    code, lines = start(
        """
        if attempt == 0:
            heartbeat.tell(12, "learning")
            if rank == 1:
                time.sleep(0.2)
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)
        """,
        silence_limit=1.5,
    )
    assert code == 0
    assert lines[-1].startswith("rank 1 no longer answered at step 12 (learning); restarting all ranks")


def test_a_rank_that_never_releases_the_gil_leaves_a_stack(start, monkeypatch):
    monkeypatch.setattr(agent, "_CRASH_GRACE", 0.5)
    code, lines = start(
        """
        import ctypes
        if attempt == 0:
            time.sleep(0.2)
            if rank == 1:
                ctypes.PyDLL(None).sleep(60)
            time.sleep(60)
        """,
        silence_limit=1.5,
    )
    assert code == 0
    assert any("rank.py" in line for line in lines)
    assert lines[-1].startswith("rank 1 no longer answered at ")


WAITING = """
def note(number, frame):
    with open(place / f"heard-{rank}", "a") as file:
        file.write(f"{signal.Signals(number).name}\\n")
    if not STUBBORN:
        sys.exit(130 if number == signal.SIGINT else 75)

for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, note)
(place / f"ready-{rank}").touch()
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(0.05)
"""


SAVING = """time.sleep(0.05)
    if (place / f"heard-{rank}").exists():
        time.sleep(0.5)
        sys.exit(75)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_stop_request_is_forwarded_once_and_ends_with_75(background, tmp_path, name):
    launcher = background(f"STUBBORN = False\n{WAITING}", 3)
    os.kill(launcher.pid, getattr(signal, name))
    launcher.join(10)
    assert launcher.exitcode == 75
    assert [(tmp_path / f"heard-{rank}").read_text() for rank in range(3)] == [f"{name}\n"] * 3


def test_the_echo_of_a_request_does_not_count_as_a_second_one(background, tmp_path):
    # Schedulers and `timeout` signal a process and then its group.
    launcher = background(f"STUBBORN = True\n{WAITING}".replace("time.sleep(0.05)", SAVING))
    os.kill(launcher.pid, signal.SIGTERM)
    wait_until(lambda: list(tmp_path.glob("heard-*")))
    os.kill(launcher.pid, signal.SIGTERM)
    launcher.join(10)
    assert launcher.exitcode == 75


def test_a_second_request_kills_the_ranks_at_once(background, tmp_path, monkeypatch):
    monkeypatch.setattr(agent, "ECHO_SECONDS", 0.0)
    launcher = background(f"STUBBORN = True\n{WAITING}")
    ranks = children_of(launcher.pid)
    os.kill(launcher.pid, signal.SIGTERM)
    wait_until(lambda: len(list(tmp_path.glob("heard-*"))) == 2)
    os.kill(launcher.pid, signal.SIGTERM)
    launcher.join(3)
    assert launcher.exitcode == 128 + signal.SIGTERM
    assert not psutil.wait_procs(ranks, timeout=0)[1]


def test_an_interrupt_ends_with_130_and_without_a_traceback(background, capfd):
    launcher = background(f"STUBBORN = False\n{WAITING}")
    os.kill(launcher.pid, signal.SIGINT)
    launcher.join(5)
    assert launcher.exitcode == 130
    assert capfd.readouterr().err == ""


def test_ranks_that_ignore_an_interrupt_are_killed(background, monkeypatch, capfd):
    monkeypatch.setitem(agent._GRACE, 130, 0.5)
    launcher = background(f"STUBBORN = True\n{WAITING}")
    ranks = children_of(launcher.pid)
    os.kill(launcher.pid, signal.SIGINT)
    launcher.join(5)
    assert launcher.exitcode == 130
    assert not psutil.wait_procs(ranks, timeout=0)[1]
    assert capfd.readouterr().err.startswith("interrupted, not saved: ")


def test_ranks_that_save_after_an_interrupt_are_waited_for(background, monkeypatch, capfd):
    monkeypatch.setitem(agent._GRACE, 130, 0.5)
    saving = """time.sleep(0.05)
    if (place / f"heard-{rank}").exists():
        heartbeat.tell(5, "saving")
        time.sleep(1.5)
        sys.exit(130)
"""
    launcher = background(f"STUBBORN = True\n{WAITING}".replace("time.sleep(0.05)", saving))
    os.kill(launcher.pid, signal.SIGINT)
    launcher.join(10)
    assert launcher.exitcode == 130
    told = capfd.readouterr().err
    assert "still evaluating or saving: the run stops after that" in told and "not saved" not in told


def test_the_folder_of_a_running_launcher_is_left_alone(background, start, tmp_path, monkeypatch):
    monkeypatch.setattr(launcher_module, "_SETTLED", 0.0)
    background(f"STUBBORN = True\n{WAITING}")
    assert start("")[0] == 0
    assert len(list(tmp_path.glob("lockstep-launcher-*"))) == 1


def test_a_rank_that_leaves_early_ends_the_attempt_though_its_peers_never_notice(start):
    # As with NCCL, which does not tell ranks that a peer is gone.
    code, lines = start("""
        if attempt == 0:
            heartbeat.tell(3, "learning")
            if rank == 1:
                os._exit(0)
            time.sleep(600)
    """)
    assert code == 0
    assert lines[-1].startswith("rank 1 left before the others, with exit code 0, at step 3 (learning); restarting")


def test_a_rank_that_has_finished_leaves_the_others_time_to_finish(start):
    script = """
        heartbeat.tell(3, "finished")
        time.sleep(3 * (rank == 0))
    """
    assert start(script) == (0, [])


def test_no_rank_outlives_its_launcher_and_the_next_launcher_cleans_up(background, start, tmp_path, monkeypatch):
    launcher = background(f"STUBBORN = True\n{WAITING}", 3)
    ranks = children_of(launcher.pid)
    assert len(ranks) == 3
    launcher.kill()
    launcher.join()
    assert not psutil.wait_procs(ranks, timeout=5)[1]
    assert len(list(tmp_path.glob("lockstep-launcher-*"))) == 1
    assert start("")[0] == 0
    assert len(list(tmp_path.glob("lockstep-launcher-*"))) == 1, "a young folder may belong to a launcher that starts"
    monkeypatch.setattr(launcher_module, "_SETTLED", 0.0)
    assert start("")[0] == 0
    assert not list(tmp_path.glob("lockstep-launcher-*"))


def test_the_launcher_of_one_machine_listens_nowhere(background):
    launcher = background(f"STUBBORN = True\n{WAITING}")
    assert not psutil.Process(launcher.pid).net_connections()


@pytest.mark.slow
def test_two_nodes_of_torchrun_come_back_after_a_kill(tmp_path):
    once = TRAINING.replace("attempt == 0 and", "not (place / 'killed').exists() and")
    once = once.replace("            os.kill(", "            (place / 'killed').touch()\n            os.kill(")
    script = command(tmp_path, once)[1:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=2"]
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=two", "--local-addr=127.0.0.1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    nodes = [
        subprocess.Popen([*torchrun, *rendezvous, f"--rdzv-conf=is_host={host}", *script], env=environment)
        for host in (1, 0)
    ]
    try:
        assert [node.wait(120) for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            node.kill()
    assert json.loads((tmp_path / "result").read_text())[1:3] == [2.0, 2]

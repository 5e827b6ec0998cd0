"""Ranks forked from a process that has imported what they need; to the launcher they are like any other rank."""

import os
import signal
import sys
import time

import psutil
import pytest

from lockstep.launch import fork_server
from lockstep.launch.launcher import run_ranks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")

HEAVY = """
import os
from pathlib import Path
imported_by = os.getpid()
with Path(os.environ["PLACE"], "imports").open("a") as file:
    file.write("once ")
"""
RANK = """
import os, signal, sys, time
from pathlib import Path
import heavy
from lockstep.launch.rank_process import enter_rank
enter_rank()
place, rank, attempt = Path(sys.argv[1]), os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("said by", rank, heavy.imported_by == os.getppid(), os.getpgid(0) == os.getpid(), sys.stdin.read() == "")
print("complained", rank, file=sys.stderr)
(place / f"pid-{attempt}-{rank}").write_text(str(os.getpid()))
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Run two ranks of a module with the given body: (exit code, the launcher's lines)."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PLACE", str(tmp_path))
    (tmp_path / "heavy.py").write_text(HEAVY)

    def run(more, modules=("heavy",)):
        (tmp_path / "small_rank.py").write_text(RANK + more)
        lines, argv = [], ["-m", "small_rank", str(tmp_path)]
        with fork_server.opened(argv, modules, 1) as opened:
            assert opened is not None
            code = run_ranks([sys.executable, *argv], 2, fork_server=opened, say=lines.append)
        return code, lines

    return run


def test_modules_are_imported_once_for_all_ranks_and_attempts(start, tmp_path, capfd):
    code, lines = start("if attempt < 2 and rank == '1': os.kill(os.getpid(), signal.SIGKILL)")
    assert code == 0
    assert [line.partition(" at ")[0] for line in lines] == ["  complained 1", "rank 1 was killed by SIGKILL"] * 2
    assert (tmp_path / "imports").read_text() == "once "
    shown = capfd.readouterr()
    assert shown.out == "said by 0 True True True\n" * 3
    assert shown.err == "complained 0\n" * 3


@pytest.mark.parametrize("code", [2, 75])
def test_exit_codes_are_passed_on(start, code):
    assert start(f"sys.exit({code})") == (code, [])


def test_a_traceback_is_the_ranks_own(start):
    code, lines = start("if rank == '1': raise ValueError('the reason')\ntime.sleep(60)")
    assert code == 3
    assert "ValueError: the reason" in "\n".join(lines)


def test_ranks_are_new_interpreters_if_forking_is_not_safe(start, tmp_path):
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    assert start("", modules=("threaded",)) == (0, [])
    assert (tmp_path / "imports").read_text() == "once once "


def test_ranks_are_not_forked_if_an_import_opened_a_gpu(start, tmp_path):
    # A module that opens a file which the server is made to take for a GPU's.
    (tmp_path / "opens_gpu.py").write_text(
        f"from lockstep.launch import fork_server\nimport __main__\nkept = open('{tmp_path}/imports')\n"
        f"__main__._GPU_FILES = ('{tmp_path}/imports',)"
    )
    assert start("", modules=("heavy", "opens_gpu")) == (0, [])
    assert (tmp_path / "imports").read_text() == "once once once "


def test_ranks_die_with_the_fork_server_which_then_starts_no_more(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    (tmp_path / "sleeper.py").write_text(
        "import time\nfrom lockstep.launch.rank_process import enter_rank\nenter_rank()\n"
        "open('ready', 'w')\ntime.sleep(60)"
    )
    monkeypatch.chdir(tmp_path)
    made = fork_server.ForkServer(["-m", "sleeper"], ["json"], threads=1)
    child = made.fork(os.environ, os.devnull, os.devnull)
    assert child is not None
    assert child.poll() is None
    end = time.monotonic() + 20
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    rank = psutil.Process(child.pid)
    # A scheduler signals all processes of a run; the fork server must ignore it.
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
        rank.parent().send_signal(number)
    child.send_signal(signal.SIGUSR1)
    assert child.wait(5) == -signal.SIGUSR1
    child = made.fork(os.environ, os.devnull, os.devnull)
    rank = psutil.Process(child.pid)
    rank.parent().kill()
    assert child.wait(5) == -signal.SIGKILL
    rank.wait(5)
    assert made.fork(os.environ, None, None) is None
    made.close()

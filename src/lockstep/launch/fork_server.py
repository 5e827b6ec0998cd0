"""The fork server: a process that has imported what ranks need, and forks one whenever a rank is to start.

Importing torch and what stands on it is nearly all that starting a rank takes. Here it is done once, so that a start
on few cores takes less and a restart hardly any time. The launcher need not import torch at all.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from lockstep.launch import rank_process

_NOT_FOR_US = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP") if hasattr(signal, name)]
"""Requests that a cluster sends to all processes of a run: the launcher and the ranks answer them."""
_GPU_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dxg")
_PATIENCE = 300.0
_TICK = 0.02


class Child:
    """A rank that the fork server has forked, with as much of a subprocess.Popen as the launcher needs."""

    def __init__(self, pid: int, server: "ForkServer") -> None:
        self.pid, self._server = pid, server

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._server.exit_code(self.pid)

    def wait(self, timeout: float) -> int:
        """Wait for its end."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_TICK)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The launcher's side: orders go out by one pipe; process ids and exit codes come back by another."""

    def __init__(self, command: Sequence[str], modules: Sequence[str], threads: int) -> None:
        """`command`: what a rank runs, after the interpreter: -m, a module and its words."""
        answers, theirs = os.pipe()
        words = [sys.executable, "-m", __name__, str(os.getpid()), str(theirs), ",".join(modules), *command]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            pass_fds=[theirs],
            start_new_session=True,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
        )
        os.close(theirs)
        os.set_blocking(answers, False)
        self._answers, self._rest = answers, b""
        self._forked: list[int] = []
        self._codes: dict[int, int] = {}

    def fork(self, env: Mapping[str, str], stdout: Path | None, stderr: Path | None) -> Child | None:
        """Start a rank, its output going to files or where the launcher's goes; None where the server is gone."""
        outputs = [None if path is None else str(path) for path in (stdout, stderr)]
        count, deadline = len(self._forked), time.monotonic() + _PATIENCE
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"env": dict(env), "outputs": outputs}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        while len(self._forked) == count and self._process.poll() is None and time.monotonic() < deadline:
            select.select([self._answers], [], [], 1.0)
            self._read()
        return Child(self._forked[-1], self) if len(self._forked) > count else None

    def exit_code(self, pid: int) -> int | None:
        """How a rank ended; None while it runs."""
        gone = self._process.poll() is not None
        self._read()
        # Its ranks die with it.
        return self._codes.get(pid, -signal.SIGKILL if gone else None)

    def close(self) -> None:
        """End it, and with it what still runs."""
        self._process.kill()
        self._process.wait()
        os.close(self._answers)
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._answers, 65536):
                self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        for line in map(json.loads, lines):
            if "code" in line:
                self._codes[line["pid"]] = line["code"]
            else:
                self._forked.append(line["pid"])


@contextlib.contextmanager
def opened(command: Sequence[str], modules: Sequence[str], threads: int) -> Iterator[ForkServer | None]:
    """A fork server for ranks of a command; None where each rank had better be a program of its own."""
    if not modules or sys.platform != "linux":
        yield None
        return
    server = ForkServer(command, modules, threads)
    try:
        yield server
    finally:
        server.close()


def serve(orders: IO[bytes], answers: int, handlers: Mapping[int, Any]) -> dict[str, Any] | None:
    """Fork for every order and tell how children end; returns the order in a child, None once there are no more.

    handlers: what a child does about signals.
    """
    asleep, awake = os.pipe()
    for end in (asleep, awake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(awake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([orders.fileno(), asleep], [], [])
        if asleep in ready:
            os.read(asleep, 4096)
            _tell_ends(answers)
        if orders.fileno() in ready:
            if not (line := orders.readline()):
                return None
            if not os.fork():
                signal.set_wakeup_fd(-1)
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                # Told once it leads a group: by that the launcher can end it and whatever it starts.
                os.setsid()
                _tell(answers, {"pid": os.getpid()})
                for end in (asleep, awake, answers):
                    os.close(end)
                return json.loads(line)


def _tell_ends(answers: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _tell(answers, {"pid": ended[0], "code": os.waitstatus_to_exitcode(ended[1])})


def _tell(answers: int, line: dict[str, int]) -> None:
    os.write(answers, json.dumps(line).encode() + b"\n")


def _become(order: dict[str, Any], server: int) -> None:
    """Turn this fresh process into what the launcher ordered."""
    for number, path in enumerate([os.devnull, *order["outputs"]]):
        if path:
            stream = os.open(path, os.O_RDWR if number == 0 else os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(stream, number)
            os.close(stream)
    os.environ.clear()
    os.environ.update(order["env"])
    os.environ[rank_process.LAUNCHER_VARIABLE] = str(server)
    if os.environ.get("PYTHONFAULTHANDLER", "0") not in ("", "0"):
        faulthandler.enable()


def _opened_gpu() -> bool:
    """Whether an import has opened a GPU's driver; importing torch alone does not."""
    for link in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith(_GPU_FILES):
                return True
    return False


def main(launcher: str, answers: str, modules: str, *command: str) -> None:
    """Import, then serve; in a child, become the rank."""
    rank_process.die_with_parent(int(launcher))
    usual = {number: signal.signal(number, signal.SIG_IGN) for number in _NOT_FOR_US}
    usual[signal.SIGCHLD] = signal.SIG_DFL
    # A child that is interrupted before it is a rank just ends; the launcher says what happened.
    interrupted = usual[signal.SIGINT]
    usual[signal.SIGINT] = signal.SIG_DFL
    for module in modules.split(","):
        # What cannot be imported is told by the rank that needs it.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    if threading.active_count() > 1 or _opened_gpu():
        # A lock that another thread holds would stay locked in the fork for ever, and a GPU's driver that is open here
        # is lost to the fork. Ranks are then started as programs of their own.
        return
    server = os.getpid()
    order = serve(os.fdopen(0, "rb", buffering=0, closefd=False), int(answers), usual)
    if order is None:
        return
    _become(order, server)
    _, module, *words = command
    sys.argv = [module, *words]
    signal.signal(signal.SIGINT, interrupted)
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The fork server: a process that has imported what ranks need, and forks to start one.

Nearly all the time it takes to start a rank is spent importing torch. The fork server imports it once, so the first
start is faster on few cores and a restart takes hardly any time. The launcher itself never imports torch.
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

_IGNORED_SIGNALS = [
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP") if hasattr(signal, name)
]
"""Stop requests that a scheduler sends to every process of a run: the launcher and the ranks handle them."""
_GPU_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dxg")
"""Device files of NVIDIA, AMD and WSL drivers."""
_FORK_TIMEOUT = 300.0
"""Seconds to wait for a forked rank; the first one waits for the imports, which a busy machine stretches."""
_POLL_INTERVAL = 0.02


class Child:
    """A rank forked by the fork server, with the part of subprocess.Popen's interface that the launcher uses."""

    def __init__(self, pid: int, server: "ForkServer") -> None:
        self.pid, self._server = pid, server

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._server.exit_code(self.pid)

    def wait(self, timeout: float) -> int:
        """Wait until it exits; subprocess.TimeoutExpired if it does not."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_POLL_INTERVAL)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The launcher's side: orders go out through one pipe, process ids and exit codes come back through another."""

    def __init__(self, command: Sequence[str], modules: Sequence[str], threads: int) -> None:
        """`command`: what a rank runs, after the interpreter: -m, a module and its arguments."""
        answers, answers_end = os.pipe()
        argv = [sys.executable, "-m", __name__, str(os.getpid()), str(answers_end), ",".join(modules), *command]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            pass_fds=[answers_end],
            # Ctrl-C in the terminal must not reach it: the launcher decides when ranks end.
            start_new_session=True,
            # OpenMP reads this when torch is imported; setting it in the forked rank would be too late.
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
        )
        # Only the server's copy stays open, so reading reports the end of the pipe when the server dies.
        os.close(answers_end)
        os.set_blocking(answers, False)
        self._answers, self._partial_line = answers, b""
        self._forked: list[int] = []
        """Process ids in the order of the orders."""
        self._codes: dict[int, int] = {}
        """Exit codes by process id."""

    def fork(self, env: Mapping[str, str], stdout: Path | None, stderr: Path | None) -> Child | None:
        """Start a rank; None if the server is gone. Output goes to files, or to the launcher's streams for None."""
        outputs = [None if path is None else str(path) for path in (stdout, stderr)]
        # Orders are sent one at a time, so the next process id that arrives belongs to this one.
        count, deadline = len(self._forked), time.monotonic() + _FORK_TIMEOUT
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"env": dict(env), "outputs": outputs}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            # The server has exited, for example because forking was not safe: the caller starts an interpreter instead.
            return None
        while len(self._forked) == count and self._process.poll() is None and time.monotonic() < deadline:
            select.select([self._answers], [], [], 1.0)
            self._read()
        return Child(self._forked[-1], self) if len(self._forked) > count else None

    def exit_code(self, pid: int) -> int | None:
        """A rank's exit code; None while it runs."""
        # Poll before reading: an exit code written just before the server died is then still found in the pipe.
        gone = self._process.poll() is not None
        self._read()
        # Ranks are killed when the server dies (die_with_parent), so without a code of its own a rank got SIGKILL.
        return self._codes.get(pid, -signal.SIGKILL if gone else None)

    def close(self) -> None:
        """Kill it, and with it every rank that still runs."""
        self._process.kill()
        self._process.wait()
        os.close(self._answers)
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._answers, 65536):
                self._partial_line += chunk
        *lines, self._partial_line = self._partial_line.split(b"\n")
        for line in map(json.loads, lines):
            if "code" in line:
                self._codes[line["pid"]] = line["code"]
            else:
                self._forked.append(line["pid"])


@contextlib.contextmanager
def opened(command: Sequence[str], modules: Sequence[str], threads: int) -> Iterator[ForkServer | None]:
    """A fork server for ranks of a command; None where each rank has to be a new interpreter."""
    # Linux only: elsewhere the kernel does not kill the ranks when the server dies, which `exit_code` relies on.
    if not modules or sys.platform != "linux":
        yield None
        return
    server = ForkServer(command, modules, threads)
    try:
        yield server
    finally:
        server.close()


def serve(orders: IO[bytes], answers: int, handlers: Mapping[int, Any]) -> dict[str, Any] | None:
    """Fork for every order and report exit codes; returns the order in a child, None when the orders end.

    handlers: the signal handlers of a child.
    """
    # A pipe that becomes readable on SIGCHLD, so that one select waits for orders and for exits without a race.
    wakeup, wakeup_end = os.pipe()
    for end in (wakeup, wakeup_end):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    # The wakeup pipe is only written for signals that have a Python handler.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([orders.fileno(), wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 4096)
            _report_exits(answers)
        if orders.fileno() in ready:
            if not (line := orders.readline()):
                return None
            if not os.fork():
                signal.set_wakeup_fd(-1)
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                # The child reports itself, after setsid: from then on the launcher can kill its whole process group.
                os.setsid()
                _send(answers, {"pid": os.getpid()})
                for end in (wakeup, wakeup_end, answers):
                    os.close(end)
                return json.loads(line)


def _report_exits(answers: int) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _send(answers, {"pid": ended[0], "code": os.waitstatus_to_exitcode(ended[1])})


def _send(answers: int, line: dict[str, int]) -> None:
    # Server and children write to the same pipe; a write this short is atomic (PIPE_BUF), so lines never mix.
    os.write(answers, json.dumps(line).encode() + b"\n")


def _set_up_rank(order: dict[str, Any], server: int) -> None:
    """Give the forked process its streams and its environment."""
    # stdin is the order pipe in the server, and must not stay open in a rank. Streams without a path are inherited.
    for number, path in enumerate([os.devnull, *order["outputs"]]):
        if path:
            stream = os.open(path, os.O_RDWR if number == 0 else os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(stream, number)
            os.close(stream)
    # Replaced as a whole, so that a variable the launcher has removed does not survive.
    os.environ.clear()
    os.environ.update(order["env"])
    # A rank checks that its parent is the process it expects (die_with_parent): here that is this server.
    os.environ[rank_process.LAUNCHER_VARIABLE] = str(server)
    # Python reads this variable only when the interpreter starts.
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
    """Import the modules, then serve; in a child, run the command as a rank."""
    rank_process.die_with_parent(int(launcher))
    child_handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _IGNORED_SIGNALS}
    child_handlers[signal.SIGCHLD] = signal.SIG_DFL
    # Until the child runs the command, SIGINT just kills it: a KeyboardInterrupt in here would print a traceback.
    interrupt_handler = child_handlers[signal.SIGINT]
    child_handlers[signal.SIGINT] = signal.SIG_DFL
    for module in modules.split(","):
        # An import that fails here fails again in the rank that needs it, which reports it properly.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    if threading.active_count() > 1 or _opened_gpu():
        # Not safe to fork: a lock held by another thread would stay locked in the child for ever, and a GPU driver
        # opened before the fork does not work after it. The launcher then starts ranks as new interpreters.
        return
    server = os.getpid()
    order = serve(os.fdopen(0, "rb", buffering=0, closefd=False), int(answers), child_handlers)
    if order is None:
        return
    _set_up_rank(order, server)
    _, module, *arguments = command
    sys.argv = [module, *arguments]
    signal.signal(signal.SIGINT, interrupt_handler)
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])

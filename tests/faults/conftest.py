"""What fault tests share: whole runs through the command, with faults planted, and a network of machines in one."""

import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.weights import load_weights

LOCKSTEP = [sys.executable, "-m", "lockstep"]
PATIENCE = 240.0


class Command:
    """One `lockstep` command of a test, its output in a file."""

    def __init__(self, words, log, faults="", prefix=(), **variables):
        launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        clean = {name: value for name, value in os.environ.items() if name not in launcher}
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*prefix, *LOCKSTEP, *words],
                env={**clean, "OMP_NUM_THREADS": "1", "LOCKSTEP_FAULTS": faults, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self):
        return self.log.read_text(errors="replace")

    def family(self):
        """The process and all that it has started."""
        try:
            whole = psutil.Process(self.process.pid)
            return [whole, *whole.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def ends(self, code=0, within=PATIENCE):
        """Wait for the end, and return the output."""
        assert self.process.wait(within) == code, self.output
        return self.output

    def kill(self):
        """End all of it as a power cut would."""
        for member in self.family():
            member.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path):
    """Start `lockstep` commands; what is left of them ends with the test."""
    started = []

    def run(*words, faults="", prefix=(), **variables):
        log = tmp_path / f"output-{len(started)}"
        started.append(Command(words, log, faults, prefix, **variables))
        return started[-1]

    yield run
    for command in started:
        command.kill()


def snake(folder, name, *more):
    """The words of a short run in exact mode."""
    sizes = ["--sync", "exact", "--total-timesteps", "2560", "--eval-every", "0", "--checkpoint-every", "512"]
    return ["train", "snake", "--preset", "debug", "--runs-dir", str(folder), "--run-name", name, *sizes, *more]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The hash of the short run when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    Command(snake(folder, "run"), folder / "output").ends()
    return hash_of(folder / "run")


def hash_of(run):
    """The hash of a run's final weights."""
    return weights_hash(load_weights(run / "final")[0])


def logged(run):
    """The log points of a run."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def wait_until(condition, within=PATIENCE, what="it"):
    """Look ten times a second until a condition holds."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.1)


def ranks_of(point):
    """How many ranks a log point tells of."""
    return sum(tag.startswith("time/fps_rank") for tag in point)


@pytest.fixture(scope="session")
def tools():
    """The functions above, for test files, which cannot import this one."""

    class Tools:
        pass

    for function in (snake, hash_of, logged, wait_until, ranks_of):
        setattr(Tools, function.__name__, staticmethod(function))
    return Tools


class Network(threading.Thread):
    """Machines in network namespaces of this one that share its file system, joined by a hub in this thread.

    Every frame passes through here, so that it can be lost or delayed: not every kernel can do that by itself.
    """

    def __init__(self, machines):
        super().__init__(daemon=True)
        self._names = [f"lockstep-{os.getpid()}-{number}" for number in range(machines)]
        self._taps = []
        self._cut, self._loss, self._delay = set(), {}, {}
        self._chance, self._waiting, self._sent, self._over = random.Random(0), [], itertools.count(), False

    def build(self):
        for number, name in enumerate(self._names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            self._taps.append(open_tap(name))
            ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        self.start()

    def address(self, number):
        return f"10.77.0.{number + 1}"

    def on(self, number):
        """What to put before a command that runs on this machine."""
        return ("ip", "netns", "exec", self._names[number])

    def cut(self, number):
        """Let nothing from or to this machine through, and tell nobody."""
        self._cut.add(number)

    def mend(self, number):
        self._cut.discard(number)

    def disturb(self, number, loss=0.0, delay=0.0):
        """Lose this share of what the machine sends, and delay the rest by so many seconds."""
        self._loss[number], self._delay[number] = loss, delay

    def run(self):
        while not self._over:
            due = self._waiting[0][0] - time.monotonic() if self._waiting else 0.2
            for tap in select.select(self._taps, [], [], max(0.0, min(due, 0.2)))[0]:
                self._take(self._taps.index(tap), os.read(tap, 65536))
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                self._pass_on(*heapq.heappop(self._waiting)[2:])

    def _take(self, source, frame):
        if source not in self._cut and self._chance.random() >= self._loss.get(source, 0.0):
            due = time.monotonic() + self._delay.get(source, 0.0)
            heapq.heappush(self._waiting, (due, next(self._sent), source, frame))

    def _pass_on(self, source, frame):
        for number, tap in enumerate(self._taps):
            if number != source and number not in self._cut:
                os.write(tap, frame)

    def remove(self):
        self._over = True
        if self.is_alive():
            self.join()
        for tap in self._taps:
            os.close(tap)
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def open_tap(namespace):
    """Make the device eth0 in a namespace; what is sent there is read here, and the other way round."""
    set_interface, is_tap, without_header, of_network = 0x400454CA, 0x0002, 0x1000, 0x40000000
    made = []

    def make():
        # A namespace is entered by a thread, and this one ends in there.
        with Path(f"/run/netns/{namespace}").open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), of_network):
                return
        tap = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tap, set_interface, struct.pack("16sH22x", b"eth0", is_tap | without_header))
        made.append(tap)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise PermissionError(f"no device in namespace {namespace}")
    return made[0]


@pytest.fixture
def network():
    """Three machines; skipped where namespaces are not permitted."""
    if not shutil.which("ip"):
        pytest.skip("needs the command ip")
    made = Network(3)
    try:
        made.build()
    except (subprocess.CalledProcessError, OSError) as error:
        made.remove()
        pytest.skip(f"network namespaces are not permitted here ({error})")
    yield made
    made.remove()


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    """After every test: no process of its runs, no lock, no temporary file of theirs."""
    yield
    for process in psutil.process_iter(["pid", "cmdline"]):
        if str(tmp_path) in " ".join(process.info["cmdline"] or []):
            process.send_signal(signal.SIGKILL)
            pytest.fail(f"left behind: {process.info}")
    for run in tmp_path.glob("*/final"):
        assert not list(Path(run.parent).rglob(".tmp-*"))

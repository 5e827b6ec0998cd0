"""What fault tests share: whole runs through the command, with faults planted, and a network of machines in one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep.core.storage.checkpoint import weights_hash
from lockstep.core.storage.weights import load_weights

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


class Network:
    """Machines in network namespaces of this one, joined by a switch; they share its file system."""

    def __init__(self, machines):
        self._tag = f"ls{os.getpid() % 10000}"
        self._switch = f"{self._tag}s"
        self._names = [f"{self._tag}m{number}" for number in range(machines)]

    def build(self):
        for name in (self._switch, *self._names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self._switch, "link", "add", "hub0", "type", "bridge")
        ip("-n", self._switch, "link", "set", "hub0", "up")
        for number, name in enumerate(self._names):
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{number}", "netns", self._switch)
            ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", self._switch, "link", "set", f"p{number}", "master", "hub0")
            ip("-n", self._switch, "link", "set", f"p{number}", "up")

    def address(self, number):
        return f"10.77.0.{number + 1}"

    def on(self, number):
        """What to put before a command that runs on this machine."""
        return ("ip", "netns", "exec", self._names[number])

    def cut(self, number):
        ip("-n", self._switch, "link", "set", f"p{number}", "down")

    def mend(self, number):
        ip("-n", self._switch, "link", "set", f"p{number}", "up")

    def disturb(self, number, *how):
        """Have packets from this machine delayed or lost: disturb(0, "loss", "20%")."""
        subprocess.run([*self.on(number), "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", *how], check=True)

    def remove(self):
        for name in (self._switch, *self._names):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def network():
    """Three machines; skipped where namespaces are not permitted."""
    if not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("needs the commands ip and tc")
    made = Network(3)
    try:
        made.build()
    except subprocess.CalledProcessError as error:
        made.remove()
        pytest.skip(f"network namespaces are not permitted here ({error.stderr.decode().strip()})")
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

"""Another user of the machine at the sockets and files of a live run: he can neither read, change nor stop it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.weights import load_weights

NOBODY = 65534
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="only root can become another user, on Linux"
)

GARBAGE = [b"", bytes(8), b"\x01" + bytes(7), b"\xff" * 4096, b"GET / HTTP/1.0\r\n\r\n"]


def attack(ports):
    """What another user gets at these ports, and of everything of ours that he finds on the machine."""
    ours, theirs = os.pipe()
    # Forked, because another user may not be allowed to run this interpreter.
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        os.write(theirs, json.dumps(knock(ports) + look_around()).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        found = json.loads(answer.read())
    assert os.waitpid(child, 0)[1] == 0
    return found


def knock(ports):
    """Connect, send garbage, keep connections open; returns what was let in or answered."""
    found, kept = [], []
    for port in ports * 5:
        for message in GARBAGE:
            kept.append(one := socket.socket())
            one.settimeout(0.02)
            with contextlib.suppress(OSError):
                one.connect(("127.0.0.1", port))
                found.append(f"connected to {port}")
                one.sendall(message)
                found.append(one.recv(4096).hex())
    return found


def look_around():
    """Read and write what ranks and launchers keep in files and in their environments."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob("lockstep-*"):
        with contextlib.suppress(OSError):
            found += [str(path) for path in folder.rglob("*")]
        with contextlib.suppress(OSError):
            (folder / "store-9").write_bytes(b"mine")
            found.append(f"wrote into {folder}")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"LOCKSTEP_SECRET" in (process / "environ").read_bytes():
                found.append(f"read the secret of {process}")
    return found


def words(folder, name, *more):
    sizes = ["--sync", "exact", "--total-timesteps", "1536", "--eval-every", "0", "--checkpoint-every", "512"]
    return ["train", "snake", "--preset", "debug", "--runs-dir", str(folder), "--run-name", name, *sizes, *more]


def start(folder, name, *more, **variables):
    command = [sys.executable, "-m", "lockstep", *words(folder, name, *more)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def listening_ports(pid):
    """The ports that a process and all that it started listen on."""
    whole = psutil.Process(pid)
    ports = set()
    for process in (whole, *whole.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            ports |= {c.laddr.port for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    return sorted(ports)


@pytest.mark.slow
def test_another_user_finds_no_door_into_a_live_run(tmp_path):
    alone = start(tmp_path, "alone")
    assert alone.wait(120) == 0, alone.stdout.read()
    paced = "slow@at=1..5,attempt=0..,seconds=2"
    run = start(tmp_path, "run", "--ranks", "2", LOCKSTEP_FAULTS=paced)
    try:
        end = time.monotonic() + 90
        while not (tmp_path / "run/metrics.jsonl").exists():
            assert time.monotonic() < end and run.poll() is None
            time.sleep(0.1)
        ports = listening_ports(run.pid)
        assert ports, "gloo has no other transport than TCP"
        assert attack(ports) == []
        output, _ = run.communicate(timeout=120)
        assert run.returncode == 0, output
        assert "killed" not in output
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    one, two = (weights_hash(load_weights(tmp_path / name / "final")[0]) for name in ("alone", "run"))
    assert one == two

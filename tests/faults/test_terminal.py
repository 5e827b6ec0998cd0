"""A terminal that is closed under a run: it saves first, as if it had been asked to stop."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading

from lockstep.errors import StoppedOnRequest
from lockstep.storage.checkpoint_retention import verify_run


def test_a_run_on_one_rank_saves_when_its_terminal_is_closed(tools, tmp_path):
    ours, theirs = pty.openpty()
    words = tools.snake(tmp_path, "run", "--ranks", "1", "--total-timesteps", "1000000", "--checkpoint-every", "0")

    def take_terminal():
        # Under nohup the tests, and all that they start, ignore what is tested here.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-m", "lockstep", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_terminal,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    os.close(theirs)
    try:
        threading.Thread(target=_drain, args=(ours,), daemon=True).start()
        tools.wait_until(lambda: len(tools.logged(tmp_path / "run")) >= 2, what="log points")
        os.close(ours)
        assert process.wait(240) == StoppedOnRequest.exit_code
    finally:
        process.kill()
        process.wait()
    (problems,) = verify_run(tmp_path / "run").values()
    assert problems == []


def _drain(terminal):
    """Read what is shown, so that the run does not wait for a reader."""
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass

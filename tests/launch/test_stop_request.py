"""Stop requests: set a flag, are acknowledged once, and never raise."""

import hashlib
import os
import signal
import threading
import time

import pytest

from lockstep.launch.stop_request import INTERRUPTED, PREEMPTED, StopRequest


@pytest.mark.parametrize(("number", "flag"), [(signal.SIGTERM, PREEMPTED), (signal.SIGINT, INTERRUPTED)])
def test_a_request_sets_the_flag_and_is_acknowledged_once(number, flag):
    heard = []
    with StopRequest(heard.append) as request:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # the same request again
    assert request.flag == flag
    assert heard == ["lockstep: stopping, saving first; ask again to stop at once without saving"]


def test_a_request_is_heard_while_the_main_thread_is_inside_a_call():
    heard = []
    with StopRequest(lambda line: heard.append(time.monotonic())):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        # Seconds inside one call: no handler runs before it returns.
        hashlib.pbkdf2_hmac("sha256", b"", b"", 5_000_000)
        returned = time.monotonic()
    assert heard and heard[0] < returned


def test_a_signal_to_a_forked_process_is_not_ours():
    with StopRequest() as request:
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        os.waitpid(child, 0)
    assert request.flag == 0


def test_a_closed_terminal_is_a_stop_request_unless_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with StopRequest() as request:
            os.kill(os.getpid(), signal.SIGHUP)
        assert request.flag == PREEMPTED
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with StopRequest() as request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert request.flag == 0
    finally:
        signal.signal(signal.SIGHUP, before)

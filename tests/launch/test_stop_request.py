"""Stop requests: set a flag, are acknowledged once, and never raise."""

import os
import signal

import pytest

from lockstep.launch import stop_request
from lockstep.launch.stop_request import INTERRUPTED, PREEMPTED, StopRequest


@pytest.mark.parametrize(("number", "flag"), [(signal.SIGTERM, PREEMPTED), (signal.SIGINT, INTERRUPTED)])
def test_a_request_sets_the_flag_and_is_acknowledged_once(capfd, number, flag):
    with StopRequest(answers=True) as request:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # the same request again
    assert request.flag == flag
    assert capfd.readouterr().err.count("stopping, saving first") == 1


def test_a_closed_terminal_does_not_prevent_the_save(monkeypatch):
    def gone(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(stop_request.os, "write", gone)
    with StopRequest(answers=True) as request:
        os.kill(os.getpid(), signal.SIGTERM)
    assert request.flag == PREEMPTED


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

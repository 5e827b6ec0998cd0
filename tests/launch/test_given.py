"""Objects given to the Python API: the same here and in other processes, and only from the caller's own files."""

import os
import subprocess
import sys
import threading

import pytest

from lockstep.errors import UserError
from lockstep.launch import given


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    monkeypatch.setattr(given, "_here", {})
    monkeypatch.setenv(given.VARIABLE, os.environ.get(given.VARIABLE, ""))


def in_another_process(source):
    code = f"from lockstep.launch import given; print(given.fetch({source!r})())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_another_process_gets_a_function_that_no_module_has():
    number = 41
    source = given.give(lambda: number + 1, "answer")
    assert given.fetch(source)() == 42
    assert in_another_process(source).stdout.strip() == "42"


def test_the_last_object_with_a_label_counts():
    assert given.give(lambda: 1, "one") == given.give(lambda: 2, "one")
    assert in_another_process("given/one").stdout.strip() == "2"


def test_what_cannot_be_sent_is_still_there_in_this_process(monkeypatch):
    source = given.give(threading.Lock(), "lock")
    assert given.fetch(source) is not None
    with pytest.raises(UserError, match=r"given/lock: cannot be sent to other processes \(TypeError"):
        given.refuse_unsendable(source)
    assert "cannot be sent to other processes" in in_another_process(source).stderr


def test_a_file_that_others_can_write_is_not_read(monkeypatch):
    source = given.give(lambda: 3, "open")
    given._path(source).chmod(0o666)
    monkeypatch.setattr(given, "_here", {})
    with pytest.raises(UserError, match="another user can write it, so it is not read"):
        given.fetch(source)


def test_an_object_of_another_process_is_asked_for():
    with pytest.raises(UserError, match=r"given/nobody: was given to .* as a Python object, which is not stored"):
        given.fetch("given/nobody")

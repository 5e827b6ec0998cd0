"""Where the author of an environment that failed has to look."""

import json
import sysconfig
from pathlib import Path

import pytest

import lockstep
from lockstep.envs.failures import failures_told, place_of
from lockstep.errors import RunFailed, UserError

PACKAGES = Path(sysconfig.get_path("purelib"))


def failing(path, calls=None):
    """A function that seems to be in the file of that name: it fails, or calls another that does."""
    names = {"inner": calls}
    exec(compile("def outer():\n    inner() if inner else 1 / 0", str(path), "exec"), names)
    return names["outer"]


def place(function):
    with pytest.raises(ZeroDivisionError) as caught:
        function()
    # Without the frame of this function.
    caught.value.__traceback__ = caught.value.__traceback__.tb_next
    return place_of(caught.value)


def test_the_place_is_the_last_one_outside_of_libraries():
    in_library = failing(PACKAGES / "torch" / "nn.py")
    assert place(failing("/home/me/maze.py", in_library)) == ", /home/me/maze.py:2"
    assert place(failing("/home/me/maze.py", failing(json.__file__))) == ", /home/me/maze.py:2"
    # An environment that was installed itself: there is nothing better than where the error comes from.
    assert place(in_library) == f", {PACKAGES / 'torch' / 'nn.py'}:2"


def test_a_package_whose_name_begins_like_ours_is_not_ours():
    ours = Path(lockstep.__file__).parent
    assert place(failing(ours / "envs" / "hosting.py")) == ""
    theirs = ours.with_name("lockstep_envs") / "maze.py"
    assert place(failing(theirs)) == f", {theirs}:2"


def test_an_error_that_says_enough_is_passed_on():
    with pytest.raises(UserError, match=r"^mine$"), failures_told(RunFailed):
        raise UserError("mine")
    with pytest.raises(KeyError), failures_told(RunFailed, passing=(KeyError,)):
        raise KeyError

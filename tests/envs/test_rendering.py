"""Why an environment cannot be rendered: OpenGL is blamed only where another backend could help."""

import pytest

from lockstep.envs import rendering
from lockstep.errors import RunFailed, UserError


class Pool:
    def __init__(self, **_):
        pass

    def disband(self):
        pass


def refused(monkeypatch, chosen, reasons):
    """What is told if backend after backend fails for these reasons."""
    monkeypatch.setattr(rendering, "WorkerPool", Pool)
    monkeypatch.setenv(rendering.VARIABLE, chosen)
    monkeypatch.delenv("DISPLAY", raising=False)
    left = iter(reasons)

    def make(pool):
        raise RunFailed(f"environment 0: {next(left)}")

    with pytest.raises(UserError) as raised:
        rendering.open_stage(make, "Pendulum-v1")
    return str(raised.value)


PYGAME = "a package it needs is missing: pygame is not installed"


@pytest.mark.parametrize(("chosen", "count"), [("", 2), ("egl", 1)])
def test_a_missing_package_is_not_blamed_on_opengl(monkeypatch, chosen, count):
    assert refused(monkeypatch, chosen, [PYGAME] * count) == f"Pendulum-v1: cannot be rendered ({PYGAME})"


def test_opengl_is_named_where_every_backend_fails_in_its_own_way(monkeypatch):
    told = refused(monkeypatch, "", ["no libEGL", "no libOSMesa"])
    assert "(egl: no libEGL; osmesa: no libOSMesa); if OpenGL is missing, install libegl1" in told

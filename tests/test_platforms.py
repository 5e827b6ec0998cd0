"""Windows and macOS: Lockstep without the modules, functions and signals that they lack.

A hook in every process of these tests hides them from the package, and from the package alone: the standard library
and torch of this system need them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lockstep.cli import starting
from lockstep.cli.main import main
from lockstep.distributed import world
from lockstep.envs import watchdog
from lockstep.errors import UserError
from lockstep.workloads import registry

HOOK = '''
import builtins, os, sys, types

MODULES = {modules}
NAMES = {names}


class Without(types.ModuleType):
    """A module without some of its names; what is set in it is set in the module itself."""

    def __init__(self, module, hidden):
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_hidden", hidden)

    def __getattribute__(self, name):
        if name == "platform":
            return {platform!r}
        if name in object.__getattribute__(self, "_hidden"):
            raise AttributeError(name)
        return getattr(object.__getattribute__(self, "_module"), name)

    def __setattr__(self, name, value):
        setattr(object.__getattribute__(self, "_module"), name, value)


def hidden(name, globals=None, locals=None, fromlist=(), level=0):
    if (globals or {{}}).get("__name__", "").split(".")[0] == "lockstep":
        if name in MODULES:
            raise ImportError(f"{{name}} is hidden")
        if name in NAMES:
            return Without(imported(name, globals, locals, fromlist, level), NAMES[name])
    return imported(name, globals, locals, fromlist, level)


imported, builtins.__import__ = builtins.__import__, hidden
'''
LACKING = {
    "win32": (
        {"fcntl", "resource", "termios", "pwd", "grp"},
        {
            "os": {"fork", "killpg", "setsid", "getuid", "geteuid", "sched_getaffinity", "waitpid", "O_NOFOLLOW"},
            "signal": {"SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGURG", "SIGSTOP", "SIGCONT", "pthread_kill"},
            "sys": set(),
        },
    ),
    "darwin": (set(), {"os": {"sched_getaffinity"}, "signal": set(), "sys": set()}),
}


@pytest.fixture
def run_as(tmp_path):
    """`run_as(platform, *words)` runs Python, with what the platform lacks hidden in all processes that it starts."""

    def run(platform, *words):
        folder = tmp_path / "hook"
        folder.mkdir(exist_ok=True)
        modules, names = LACKING[platform]
        (folder / "sitecustomize.py").write_text(HOOK.format(modules=modules, names=names, platform=platform))
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        return done.stdout

    return run


IMPORT_ALL = """
import importlib, pkgutil, lockstep
for module in pkgutil.walk_packages(lockstep.__path__, "lockstep."):
    # The kernels need Triton, and the entry point would start.
    if "triton" not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from lockstep.launch import fork_server
assert fork_server.sys.platform == PLATFORM
print("imported")
"""


@pytest.mark.parametrize("platform", LACKING)
def test_every_module_is_imported_without_what_the_platform_lacks(run_as, platform):
    assert run_as(platform, "-c", IMPORT_ALL.replace("PLATFORM", repr(platform))).endswith("imported\n")


# macOS lacks little, so that run is a long test.
@pytest.mark.parametrize("platform", ["win32", pytest.param("darwin", marks=pytest.mark.slow)])
def test_a_run_is_trained_examined_and_evaluated(run_as, platform, tmp_path):
    code = (
        "from lockstep.cli.main import main\n"
        "def do(line): assert main(line.split()) == 0, line\n"
        "do('train snake --preset debug --max-updates 2 --run-name one --device cpu')\n"
        "do('resume one --max-updates 3')\n"
        "do('verify one')\n"
        "do('eval one --episodes 4')\n"
        "do('doctor --ranks 0')\n"
    )
    assert "a run would work" in (told := run_as(platform, "-c", code)) or "no problems found" in told


@pytest.mark.slow
@pytest.mark.parametrize("platform", LACKING)
@pytest.mark.parametrize("line", ["snake", "gym --env-id CartPole-v1 --env-workers 2"])
def test_two_ranks_train_without_what_the_platform_lacks(run_as, platform, line):
    words = f"train {line} --preset debug --ranks 2 --max-updates 2 --device cpu --run-name two"
    assert "done: " in run_as(platform, "-m", "lockstep", *words.split())


def test_several_ranks_on_an_apple_gpu_are_refused_in_one_line(capsys):
    assert main(["train", "snake", "--preset", "debug", "--device", "mps", "--ranks", "2"]) == 2
    assert "gloo cannot send an Apple GPU's tensors between ranks" in capsys.readouterr().err


def test_on_a_mac_several_ranks_compute_on_the_cores(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert world.choose_device("auto", 0).type == "mps"
    assert world.choose_device("auto", 1, size=2).type == "cpu"
    config = registry.load("snake").preset("debug").replace(device="mps")
    assert starting.ranks_here(config, starting.LaunchOptions(ranks=1), None) == (1, [])
    with pytest.raises(UserError, match="use one rank, or --device cpu"):
        starting.ranks_here(config, starting.LaunchOptions(ranks=2), None)


def test_without_a_signal_to_wake_it_nothing_is_watched(monkeypatch):
    monkeypatch.setattr(watchdog, "_SIGNAL", None)
    dog = watchdog.Watchdog()
    with dog.watching(0.0):
        pass
    assert dog._thread is None


def test_the_readme_names_every_platform():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert all(f"\n| {name}" in readme for name in ("Linux", "cluster", "macOS", "Windows"))

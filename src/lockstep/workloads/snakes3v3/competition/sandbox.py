"""Runs a stranger's `submission.py` away from everything: this file is started as a program of its own.

It answers observations with actions, a line of JSON each, on the pipes it was started with. Before the submission is
loaded the process moves into namespaces of its own (Linux): no network, no other processes, and a file system that
holds only Python and the submission, read-only, and an empty /tmp in memory. Limits on memory and processes follow.
Nothing of Lockstep is imported: it is not there any more when the submission runs.
"""

import ctypes
import importlib.util
import json
import os
import random
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

# From Linux's headers.
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 2, 4, 1 << 12, 1 << 14, 1 << 18
_DETACH = 2
_SET_DEATH_SIGNAL, _DROP_BOUNDING, _NO_NEW_PRIVILEGES = 1, 24, 38
_MOUNT_SETATTR = 442  # the same number on every architecture
_HERE, _RECURSIVE = -100, 0x8000
_READ_ONLY, _ATTR_NOSUID = 1, 2
_NOBODY = 65534
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/null", "/dev/zero", "/dev/urandom")
SUBMISSION, SCRATCH = "/submission", "/tmp"
_SCRATCH_BYTES = 64 << 20
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Discrete:
    """The action space as the platform passes it: four directions."""

    n = 4

    def sample(self) -> int:
        """A random action."""
        return random.randrange(self.n)


def main(folder: str, root: str, memory: str, isolated: str) -> None:
    """Serve the submission in `folder`; `root`: an empty folder that becomes the file system."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What the submission prints would be taken for answers.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)

    def tell(content: Any) -> None:
        answers.write(json.dumps(content).encode() + b"\n")
        answers.flush()

    try:
        if isolated == "yes":
            _isolate(folder, root)
            folder = SUBMISSION
        _limit(int(memory))
    except OSError as error:
        tell({"refused": str(error)})
        return
    tell({"ready": True})
    try:
        controller = _load(folder)
        tell({"loaded": True})
        for line in requests:
            tell([controller(seen, [Discrete()], False) for seen in map(_observation, json.loads(line))])
    except BaseException as error:  # whatever a submission raises, SystemExit included, loses its game
        with suppress(OSError, ValueError):
            tell({"failed": f"{type(error).__name__}: {error}"[:300]})


def _load(folder: str) -> Any:
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("submission", f"{folder}/submission.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    return module.my_controller


def _observation(seen: dict[str, Any]) -> dict[Any, Any]:
    """The platform's keys of beans and snakes are numbers, which JSON does not have as keys."""
    return {int(key) if key.isdigit() else key: value for key, value in seen.items()}


def _limit(memory: int) -> None:
    import resource  # not on Windows, where this file can only be imported

    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, 256),
        (resource.RLIMIT_FSIZE, _SCRATCH_BYTES),
        (resource.RLIMIT_NOFILE, 128),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def _isolate(folder: str, root: str) -> None:
    """Move into new namespaces and a new file system; returns in a process that has no way out of them."""
    spaces = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
    user, group = os.getuid(), os.getgid()
    # Anybody may make namespaces inside a user namespace; root needs none, and can become another user instead.
    own_users = user != 0 or _libc.unshare(spaces) != 0
    if own_users:
        _call("unshare", spaces | _NEWUSER)
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - as few modules as possible
                file.write(line)
    _continue_as_first_process()
    _build_root(folder, root, _NOBODY if not own_users else user)
    if own_users:
        _drop_capabilities()
    else:
        # Root's privileges end with its user number, and limits on processes do not bind root.
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def _continue_as_first_process() -> None:
    """Fork: the child is the first process of the namespace, and with it end all that it starts.

    The parent stays outside as its guard: told to end, or left behind by the arena, it kills the child.
    """
    child = os.fork()
    if child == 0:
        return

    def end(*_: Any) -> NoReturn:
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    os.waitpid(child, 0)
    os._exit(0)


def _build_root(folder: str, root: str, user: int) -> None:
    """Make `root` the file system: Python, the libraries and the submission, all read-only, and an empty /tmp."""
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", 0, "size=1m,mode=755")
    # A virtual environment refers to the Python that it was made from, and either may be a link.
    python = (sys.base_prefix, sys.prefix)
    for path in dict.fromkeys((*_SYSTEM, *python, *map(os.path.realpath, python))):
        _show(path, root + path)
    _show(folder, root + SUBMISSION)
    for name in (SCRATCH, "/old"):
        os.makedirs(root + name, exist_ok=True)  # noqa: PTH103 - as few modules as possible
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY | _ATTR_NOSUID, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _call("syscall", _MOUNT_SETATTR, _HERE, root.encode(), _RECURSIVE, attributes, size)
    scratch = f"size={_SCRATCH_BYTES},mode=700,uid={user}"
    _mount("tmpfs", root + SCRATCH, "tmpfs", _NOSUID | _NODEV, scratch)
    _call("pivot_root", root.encode(), f"{root}/old".encode())
    os.chdir(SCRATCH)
    _call("umount2", b"/old", _DETACH)


def _show(path: str, target: str) -> None:
    """Let a path of the old file system be seen in the new one, unless it is seen already."""
    if os.path.lexists(target) or not os.path.exists(path):  # noqa: PTH110
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
    if os.path.islink(path):  # noqa: PTH114
        os.symlink(os.readlink(path), target)  # noqa: PTH115, PTH211
    elif os.path.isdir(path):  # noqa: PTH112
        os.mkdir(target)  # noqa: PTH102
        _mount(path, target, None, _BIND | _REC)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        _mount(path, target, None, _BIND)


def _drop_capabilities() -> None:
    """Give up what the first process of a user namespace may do there, such as mounting."""
    for capability in range(64):
        _libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0)  # fails beyond the last one that the kernel knows
    version3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _call("capset", version3, (ctypes.c_uint32 * 6)())


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


def _call(function: str, *arguments: Any) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs commands one by one in forked children of a warm process, each with little memory and little time.

Reads JSON lines: {"words": [...]}; answers each with {"code", "seconds", "err", "out"}. The parent never computes, so
that a child finds no lock of a thread that it does not have. A program, not a test.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

MEMORY = 1 << 30
SECONDS = 20


def main() -> None:
    """Answer until there are no more lines."""
    import torch

    from lockstep.cli.main import main as command

    torch.set_num_threads(1)
    _warm_up()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line)["words"], command)), flush=True)


def _warm_up():
    """Have what is mapped and imported at the first use, a gigabyte of it, before children are told what is left."""
    import torch.utils.tensorboard

    from lockstep.compute import kernels
    from lockstep.distributed.world import World
    from lockstep.workloads import registry

    kernels.missing_requirement()
    workload = registry.load("snake")
    config = workload.preset("debug")
    learner = workload.build(config, World().with_lanes(config.effective_lanes, "fast"))
    with torch.inference_mode():
        learner.evaluate(1, 1)


def _answer(words, command):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            _be_the_child(words, command, out, err)
        code = _wait(child, start + SECONDS)
        answer = {"code": code, "seconds": time.monotonic() - start}
        for name, file in (("out", out), ("err", err)):
            file.seek(0)
            answer[name] = file.read(1 << 20).decode(errors="replace")
        return answer


def _be_the_child(words, command, out, err):
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        # What is written to counts, and not what is only mapped, of which torch has gigabytes.
        limit = _private_memory() + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        if words == ["hunger"]:
            code = len(bytearray(2 * MEMORY))
        elif words[0] == "watch":
            code = _watch(Path(words[-1]))
        else:
            code = command(words)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _watch(folder):
    """What a page of `lockstep watch` asks for; the server itself would not end."""
    from lockstep.watch.curve_parts import View
    from lockstep.watch.library import Library

    library = Library(folder)
    while library.refresh():
        pass
    found = library.overview()
    keys = [row["id"] for row in found["runs"]]
    views = [View(axis, 5, (-1e99, 1e99), 20) for axis in ("step", "time")]
    curves = [library.series(dict.fromkeys(keys), tag, view) for tag in found["tags"] for view in views]
    curves += [library.bands(keys, tag, view) for tag in found["tags"] for view in views]
    print(json.dumps([found, curves, [library.details(key) for key in keys]], allow_nan=False))
    return 0


def _private_memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


def _wait(child, deadline):
    """The exit code; -9 for a child whose time was up."""
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


if __name__ == "__main__":
    main()

"""A worker process that runs environments: reads requests from stdin, answers on stdout. Needs no torch.

It exits when its stdin is closed, so it cannot outlive the process that started it, however that one ended.
"""

import json
import os
import signal
import struct
import sys
from typing import BinaryIO

import numpy as np

from lockstep.envs.hosting import Host, Simulators, Sizes, packed, unpacked
from lockstep.errors import RunFailed

# Fixed little-endian headers instead of pickle: nothing that is received can run code, and steps are raw arrays.
REQUEST = struct.Struct("<cIQ")
"""Operation, number of the group of environments, and bytes that follow."""
ANSWER = struct.Struct("<?Q")
"""Whether it succeeded, and bytes that follow: the result, or an error message."""
OPEN, CLOSE, RESET, STEP, SAVE, RESTORE, PICTURE = b"o", b"c", b"r", b"s", b"g", b"p", b"i"
SIZE = struct.Struct("<2I")
"""Height and width of an image."""


class _Group:
    """The environments of one `RemoteHost`."""

    def __init__(self, payload: bytes) -> None:
        spec = json.loads(payload)
        self._sizes = Sizes(spec["observation"], spec["action"], spec["dtype"], spec["agents"])
        self._count = len(spec["names"])
        names, action_dims, numbers = (tuple(spec[name]) for name in ("names", "action_dims", "numbers"))
        simulators = Simulators(spec["opener"], names, action_dims, self._sizes, numbers, spec["timeout"])
        self._host = Host(simulators, spec["pictures"])

    def answer(self, operation: bytes, payload: bytes) -> bytes:
        """Carry out a request and return the result."""
        if operation == RESET:
            return self._host.reset(np.frombuffer(payload, np.uint32)).tobytes()
        if operation == STEP:
            return self._step(payload)
        if operation == SAVE:
            return packed(self._host.save()).tobytes()
        if operation == PICTURE:
            image = self._host.render(*SIZE.unpack(payload))
            return SIZE.pack(*image.shape[:2]) + image.tobytes()
        assert operation == RESTORE
        # Seeds are the first column; float64 holds every 32-bit seed exactly.
        table = np.frombuffer(payload, np.float64).reshape(self._count, -1)
        self._host.restore(table[:, 0].astype(np.uint32), unpacked(table[:, 1:]))
        return b""

    def _step(self, payload: bytes) -> bytes:
        # Actions, seeds and time-limit flags one after another, as RemoteHost.step joins them.
        width = self._sizes.action
        actions = np.frombuffer(payload, np.float32, self._count * width).reshape(self._count, width)
        seeds = np.frombuffer(payload, np.uint32, self._count, offset=actions.nbytes)
        last = np.frombuffer(payload, np.bool_, self._count, offset=actions.nbytes + seeds.nbytes)
        return self._host.step(actions, seeds, last).tobytes()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the stream ends."""
    groups: dict[int, _Group] = {}
    while head := requests.read(REQUEST.size):
        operation, group, size = REQUEST.unpack(head)
        payload = requests.read(size)
        if operation == CLOSE:
            # The only request without an answer: it is sent ahead of another one.
            groups.pop(group, None)
            continue
        try:
            if operation == OPEN:
                groups[group] = _Group(payload)
                succeeded, answer = True, b""
            else:
                succeeded, answer = True, groups[group].answer(operation, payload)
        except RunFailed as error:  # names the environment already
            succeeded, answer = False, str(error).encode()
        except Exception as error:  # whatever it is, the owner must be told
            succeeded, answer = False, f"an environment failed: {type(error).__name__}: {error}".encode()
        answers.write(ANSWER.pack(succeeded, len(answer)) + answer)
        answers.flush()


def main() -> None:
    """Serve the process at the other end of stdin and stdout."""
    # Ctrl-C and a scheduler's signals reach all processes of a run. The owner handles them, and still needs its
    # environments until it has saved. When it exits, the pipe is closed and this process ends.
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):  # Windows has no SIGUSR1
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # Anything that a library prints goes to stderr, since it would corrupt the answers.
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        os._exit(0)  # the owner has exited; a normal exit would try to flush to the closed pipe


if __name__ == "__main__":
    main()

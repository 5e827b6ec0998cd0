"""A process that holds environments for another one: reads requests from stdin, answers on stdout. Needs no torch.

It ends when its stdin does, so it cannot outlive the process that started it, whatever happened to that.
"""

import json
import os
import signal
import struct
import sys
from typing import BinaryIO

import numpy as np

from lockstep.workloads.control.hosting import Host, Sizes, packed, unpacked

REQUEST = struct.Struct("<cIQ")
"""What is wanted, in which group of environments, and the bytes that follow."""
ANSWER = struct.Struct("<?Q")
"""Whether it worked, and the bytes that follow: what was asked for, or what went wrong."""
OPEN, CLOSE, RESET, STEP, SAVE, RESTORE, PICTURE = b"o", b"c", b"r", b"s", b"g", b"p", b"i"
SIZE = struct.Struct("<2I")
"""Height and width of a picture."""


class _Group:
    """Environments of one owner."""

    def __init__(self, payload: bytes) -> None:
        about = json.loads(payload)
        self._sizes = Sizes(about["observation"], about["action"])
        self._count = len(about["tasks"])
        self._host = Host(about["tasks"], about["action_dims"], self._sizes, about["pictures"])

    def answer(self, wanted: bytes, payload: bytes) -> bytes:
        """Do what is wanted."""
        if wanted == RESET:
            return self._host.reset(np.frombuffer(payload, np.uint32)).tobytes()
        if wanted == STEP:
            return self._step(payload)
        if wanted == SAVE:
            return packed(self._host.save()).tobytes()
        if wanted == PICTURE:
            image = self._host.render(*SIZE.unpack(payload))
            return SIZE.pack(*image.shape[:2]) + image.tobytes()
        assert wanted == RESTORE
        table = np.frombuffer(payload, np.float64).reshape(self._count, -1)
        self._host.restore(table[:, 0].astype(np.uint32), unpacked(table[:, 1:]))
        return b""

    def _step(self, payload: bytes) -> bytes:
        width = self._sizes.action
        actions = np.frombuffer(payload, np.float32, self._count * width).reshape(self._count, width)
        seeds = np.frombuffer(payload, np.uint32, self._count, offset=actions.nbytes)
        last = np.frombuffer(payload, np.bool_, self._count, offset=actions.nbytes + seeds.nbytes)
        return self._host.step(actions, seeds, last).tobytes()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer every request until there are no more."""
    groups: dict[int, _Group] = {}
    while head := requests.read(REQUEST.size):
        wanted, group, size = REQUEST.unpack(head)
        payload = requests.read(size)
        if wanted == CLOSE:
            groups.pop(group, None)
            continue
        try:
            if wanted == OPEN:
                groups[group] = _Group(payload)
                good, answer = True, b""
            else:
                good, answer = True, groups[group].answer(wanted, payload)
        except Exception as error:  # whatever it is, the owner must hear of it
            good, answer = False, f"{type(error).__name__}: {error}".encode()
        answers.write(ANSWER.pack(good, len(answer)) + answer)
        answers.flush()


def main() -> None:
    """Serve the process at the other ends of stdin and stdout."""
    # Ctrl-C reaches the whole group of processes; the owner decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever a library prints must not get between the answers.
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        os._exit(0)  # the owner is gone; there is nothing to flush to


if __name__ == "__main__":
    main()

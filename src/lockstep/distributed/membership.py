"""Proof that every connection of a group leads to a rank of this run, and not to a program that came first.

gloo connects ranks by TCP and asks nobody who he is: whoever connects first with the number that a rank expects takes
a peer's place. So each pair of ranks exchanges challenges and answers that only holders of the run's secret can give,
before anything else travels. An established TCP connection cannot be entered from outside, so once is enough.
"""

import os
import secrets
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.errors import RunFailed
from lockstep.launch import wire
from lockstep.launch.secret import VARIABLE

_SECONDS = 60.0
_CHALLENGE_BYTES = 32


def check_members(group: dist.ProcessGroup, rank: int, size: int, timeout: float) -> None:
    """RunFailed unless every other rank of a gloo group proves to know the run's secret. Called by every rank.

    Without a secret, under another launcher, nothing is checked.
    """
    secret = os.environ.get(VARIABLE)
    if secret is None or size == 1:
        return
    limit = timedelta(seconds=min(timeout, _SECONDS))
    asked = [secrets.token_bytes(_CHALLENGE_BYTES) for _ in range(size)]
    received = _exchange(asked, group, limit)
    answers = [wire.prove(secret, challenge.hex(), str(rank), str(other)) for other, challenge in enumerate(received)]
    for other, answer in enumerate(_exchange([answer.encode() for answer in answers], group, limit)):
        text = answer.decode(errors="replace")
        if not wire.proves(text, secret, asked[other].hex(), str(other), str(rank)):
            raise RunFailed(
                f"rank {rank}: what connected to it as rank {other} does not know this run's secret: another program "
                "took that rank's place; nothing it sent was used"
            )


def _exchange(rows: list[bytes], group: dist.ProcessGroup, limit: timedelta) -> list[bytes]:
    """Send a row to each rank, over the connection to that very rank, and receive one from each."""
    out: Tensor = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8)
    into = torch.empty_like(out)
    work = dist.all_to_all_single(into, out, group=group, async_op=True)
    assert work is not None
    work.wait(limit)
    width = len(rows[0])
    return [bytes(into[start : start + width].tolist()) for start in range(0, len(rows) * width, width)]

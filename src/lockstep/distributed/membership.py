"""Authenticates the members of a group: every connection must lead to a rank of this run, not to another program.

gloo connects ranks over TCP without authentication: whoever connects first with the number a rank expects takes a
peer's place. So before any data is exchanged, each pair of ranks exchanges challenges that only holders of the run's
secret can answer. Once is enough, because nobody can inject data into an established TCP connection from outside.
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

# An impostor may simply never answer; there is no need to wait for the run's whole timeout then.
_SECONDS = 60.0
_CHALLENGE_BYTES = 32


def check_members(group: dist.ProcessGroup, rank: int, size: int, timeout: float) -> None:
    """RunFailed unless every other rank of a gloo group proves knowledge of the run's secret. Called by every rank.

    Under another launcher (torchrun) there is no secret, and nothing is checked.
    """
    secret = os.environ.get(VARIABLE)
    if secret is None or size == 1:
        return
    limit = timedelta(seconds=min(timeout, _SECONDS))
    challenges = [secrets.token_bytes(_CHALLENGE_BYTES) for _ in range(size)]
    received = _exchange(challenges, group, limit)
    # Both ranks are part of the proof, in order: an answer cannot be replayed to another rank or reflected.
    answers = [wire.prove(secret, challenge.hex(), str(rank), str(other)) for other, challenge in enumerate(received)]
    for other, answer in enumerate(_exchange([answer.encode() for answer in answers], group, limit)):
        text = answer.decode(errors="replace")
        if not wire.proves(text, secret, challenges[other].hex(), str(other), str(rank)):
            raise RunFailed(
                f"rank {rank}: the peer connected as rank {other} does not know this run's secret: another program "
                "took that rank's place; nothing it sent was used"
            )


def _exchange(rows: list[bytes], group: dist.ProcessGroup, limit: timedelta) -> list[bytes]:
    """Send one row to each rank, over the direct connection to that rank, and receive one from each."""
    out: Tensor = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8)
    into = torch.empty_like(out)
    # All-to-all, because it uses every pair's own connection; an all-gather passes data on through other ranks.
    work = dist.all_to_all_single(into, out, group=group, async_op=True)
    assert work is not None
    work.wait(limit)
    width = len(rows[0])
    return [bytes(into[start : start + width].tolist()) for start in range(0, len(rows) * width, width)]

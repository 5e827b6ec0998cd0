"""The few exchanges between ranks that all else is made of. Every function is called by every rank of the group."""

import json
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.errors import RunFailed


def sum_over_ranks(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over ranks, in place; the order of the addition is the backend's."""
    staged = _staged(tensor, group)
    dist.all_reduce(staged, op=dist.ReduceOp.SUM, group=group)
    if staged is not tensor:
        tensor.copy_(staged)
    return tensor


def gather_rows(rows: Tensor, counts: tuple[int, ...], group: dist.ProcessGroup) -> Tensor:
    """Rows of all ranks in rank order; rank r contributes counts[r] rows. Uneven counts are padded on the wire."""
    most = max(counts)
    staged = _staged(rows, group)
    padded = staged.new_zeros((most, *rows.shape[1:]))
    padded[: rows.shape[0]] = staged
    received = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(received, padded, group=group)
    return torch.cat([block[:count] for block, count in zip(received, counts, strict=True)]).to(rows.device)


def maximum(flag: int, group: dist.ProcessGroup) -> int:
    """The largest integer flag of all ranks; integers only, because a float maximum can lose a NaN on gloo."""
    box = torch.tensor([flag], dtype=torch.int64)
    dist.all_reduce(box, op=dist.ReduceOp.MAX, group=group)
    return int(box.item())


def gather_json(value: Any, size: int, group: dist.ProcessGroup) -> list[Any]:
    """Every rank's JSON value in rank order. JSON, because pickled objects from the network would run code."""
    body = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([body.numel()], dtype=torch.int64), group=group)
    longest = max(int(length) for length in lengths)
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: body.numel()] = body
    bodies = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(bodies, padded, group=group)
    return [
        json.loads(bytes(block[: int(length)].tolist()).decode()) for block, length in zip(bodies, lengths, strict=True)
    ]


def meet(name: str, timeout: float, group: dist.ProcessGroup) -> None:
    """A barrier with a name; a time-out says which ranks were missing where."""
    try:
        dist.monitored_barrier(group=group, timeout=timedelta(seconds=timeout), wait_all_ranks=True)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise RunFailed(f"barrier '{name}': not all ranks arrived within {timeout:g} s ({reason})") from error


def _staged(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The tensor where the backend can reach it: gloo works in host memory (several ranks sharing one GPU use it)."""
    on_host = dist.get_backend(group) == "gloo" and tensor.device.type != "cpu"
    return tensor.cpu() if on_host else tensor.contiguous()

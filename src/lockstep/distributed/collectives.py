"""The few collectives everything else is built on. Every function is called by every rank of the group."""

import json
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.errors import RunFailed


def sum_over_ranks(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """All-reduce (sum) in place; the backend chooses the order of the additions."""
    # Reduced in place, unless the backend cannot reach the tensor or it is not contiguous: then via a copy.
    staged = _staged(tensor, group)
    dist.all_reduce(staged, op=dist.ReduceOp.SUM, group=group)
    if staged is not tensor:
        tensor.copy_(staged)
    return tensor


def gather_rows(rows: Tensor, counts: tuple[int, ...], group: dist.ProcessGroup) -> Tensor:
    """The rows of all ranks in rank order, shape (sum(counts), ...); rank r contributes counts[r] rows."""
    # all_gather needs equal shapes, so shorter contributions are padded with zeros and cut again on arrival.
    most = max(counts)
    staged = _staged(rows, group)
    padded = staged.new_zeros((most, *rows.shape[1:]))
    padded[: rows.shape[0]] = staged
    received = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(received, padded, group=group)
    return torch.cat([block[:count] for block, count in zip(received, counts, strict=True)]).to(rows.device)


def maximum(flag: int, group: dist.ProcessGroup) -> int:
    """The maximum of an integer flag over all ranks; integers only, because gloo's MAX on floats can drop a NaN."""
    value = torch.tensor([flag], dtype=torch.int64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX, group=group)
    return int(value.item())


def gather_json(value: Any, size: int, group: dist.ProcessGroup) -> list[Any]:
    """Every rank's JSON value in rank order. Not all_gather_object: it unpickles, and so runs, what peers send."""
    body = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    # First the lengths, then the texts, padded to the longest.
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


def named_barrier(name: str, timeout: float, group: dist.ProcessGroup) -> None:
    """A barrier whose timeout error names the barrier and the missing ranks."""
    try:
        # Only the monitored barrier knows which ranks are missing; it exists on gloo only.
        dist.monitored_barrier(group=group, timeout=timedelta(seconds=timeout), wait_all_ranks=True)
    except RuntimeError as error:
        # The first line names the ranks; a C++ stack follows.
        reason = str(error).splitlines()[0]
        raise RunFailed(f"barrier '{name}': not all ranks arrived within {timeout:g} s ({reason})") from error


def _staged(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The tensor in memory the backend can use: host memory for gloo, which also carries ranks that share a GPU."""
    on_host = dist.get_backend(group) == "gloo" and tensor.device.type != "cpu"
    return tensor.cpu() if on_host else tensor.contiguous()

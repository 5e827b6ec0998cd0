"""Branches: functions that do not read each other's results, whose work on a GPU may overlap."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")


class Branches:
    """Runs `count` functions side by side: on a GPU each on a stream of its own, else one after the other.

    Kernels keep their shapes, and so their bits; only their start no longer waits for the branch before. Inside a
    recorded graph the branches are recorded too, and one launch starts them all.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._device = device
        self._streams = _streams(device, count) if device.type == "cuda" and count > 1 else []

    def run(self, functions: Sequence[Callable[[], T]]) -> list[T]:
        """The functions' results. They must not write to memory that another of them uses."""
        if not self._streams:
            return [function() for function in functions]
        main = torch.cuda.current_stream(self._device)
        results = []
        try:
            for stream, function in zip(self._streams, functions, strict=True):
                stream.wait_stream(main)
                # Autocast keeps weights in their short format for whoever comes next; the next branch would not wait
                # for the copy.
                torch.clear_autocast_cache()
                with torch.cuda.stream(stream):
                    results.append(function())
        finally:
            torch.clear_autocast_cache()
            # After all of them were started: waiting earlier would line them up again. After an error too, which
            # frees memory that the others still read.
            for stream in self._streams:
                main.wait_stream(stream)
        return results


@cache
def _streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    # The same for all, since they run in turn: libraries allocate a workspace for each stream that they meet.
    return [torch.cuda.Stream(device) for _ in range(count)]

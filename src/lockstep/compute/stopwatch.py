"""How the time of an update is divided between its parts."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

import torch


class Stopwatch:
    """Seconds spent in named parts. On a GPU this is the time to launch the work, unless `precise` waits for it."""

    def __init__(self, device: torch.device, precise: bool = False) -> None:
        self._waits = precise and device.type == "cuda"
        self._device = device
        self._seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time inside this context under a name."""
        start = time.perf_counter()
        yield
        if self._waits:
            # Not the default: a wait after every part would stop the host from running ahead of the device.
            torch.cuda.synchronize(self._device)
        self._seconds[name] += time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """The seconds since the last call, by part."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds

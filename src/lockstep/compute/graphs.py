"""CUDA graphs: a function's GPU work is captured once and then replayed, so that Python costs nothing per call."""

from collections.abc import Callable
from typing import Any

import torch

from lockstep.compute import torch_private
from lockstep.compute.kernels import kernels_usable

# Ordinary calls before the capture: libraries choose their kernels and allocate workspaces in the first ones, which
# must not happen while a graph is captured.
_EAGER_CALLS = 3


class Recording:
    """A function that runs eagerly at first and as a single graph launch from then on.

    It must always be called with the same objects, read and write the same tensors, and never wait for the device.
    The warm-up calls do real work, so captured and eager runs compute the same.
    """

    def __init__(self, function: Callable[..., Any], device: torch.device) -> None:
        self._function = function
        self._device = device
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Run, record or replay."""
        if self._graph is not None:
            self._graph.replay()
            return self._result
        self._calls += 1
        if self._calls <= _EAGER_CALLS:
            # On a side stream, as torch requires of the calls before a capture. Each stream waits for the other, so the
            # order with the work around this call stays.
            side = torch.cuda.Stream(self._device)
            side.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(side):
                result = self._function(*arguments)
            torch.cuda.current_stream(self._device).wait_stream(side)
            return result
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._result = self._function(*arguments)
        self._graph = graph
        # Capturing only records the kernels: this call's own work is the first replay.
        graph.replay()
        return self._result


class Accelerator:
    """Makes a run's functions fast: compiled and captured on a GPU, unchanged on a CPU."""

    def __init__(self, device: torch.device, setting: str, exact: bool) -> None:
        # In exact mode too: a graph launches the same kernels with the same shapes, so the bits stay.
        self.records = device.type == "cuda" and setting != "none"
        self.compiles = (self.records and setting == "auto" and kernels_usable(device)) or setting == "default"
        # The compiler may choose between kernels by timing them, on each rank for itself; in exact mode by shape alone.
        self._options: dict[str, Any] | None = {"deterministic": True} if exact else None
        self._device = device

    def record(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as a CUDA graph if this run captures graphs, else unchanged."""
        return Recording(function, self._device) if self.records else function

    def compile(self, function: Any) -> Any:
        """The function or module, compiled if the run asks for it. It must not draw random numbers.

        The generator relies on 64-bit products that wrap around. Signed overflow is undefined in C++, so a compiled
        CPU kernel may give other numbers.
        """
        if not self.compiles:
            return function
        # On a GPU several kernels are compiled at once, by worker processes that need time to start.
        if self.records:
            torch_private.start_compilers()
        return torch.compile(function, dynamic=False, options=self._options)

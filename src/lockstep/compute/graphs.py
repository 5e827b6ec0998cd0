"""Recorded kernels: a function whose GPU work is captured once and replayed, so that Python costs nothing per call."""

from collections.abc import Callable
from typing import Any

import torch

from lockstep.compute import torch_private
from lockstep.compute.kernels import kernels_fit

_EAGER_CALLS = 3


class Recording:
    """A function that runs as written at first and is a single graph launch from then on.

    It must always be called with the same objects, read and write the same tensors, and never wait for the device.
    The first calls are ordinary ones (libraries choose their kernels and allocate then), so no call is wasted.
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
        graph.replay()
        return self._result


class Accelerator:
    """What a run does to make its kernels fast: compile and record on a GPU, nothing on a CPU."""

    def __init__(self, device: torch.device, setting: str, exact: bool) -> None:
        # A compiled kernel may be chosen by a timing, which exact mode cannot allow.
        self.records = device.type == "cuda" and setting != "none" and not exact
        self._compiles = (self.records and setting == "auto" and kernels_fit(device)) or setting == "default"
        self._device = device

    def record(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, recorded where this device can."""
        return Recording(function, self._device) if self.records else function

    def compile(self, function: Any) -> Any:
        """The function or module, compiled where the run asks for it; one that draws random numbers must not be.

        Their products wrap around; a C++ compiler takes that for impossible in signed numbers and changes the result.
        """
        if not self._compiles:
            return function
        if self.records:
            torch_private.start_compilers()
        return torch.compile(function, dynamic=False)

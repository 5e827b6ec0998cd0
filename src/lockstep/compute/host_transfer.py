"""From the host to the device in one piece, without a wait. E: environments."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor


class HostTransfer:
    """Named numbers of E environments, sent together as float32; what arrives lies where it always does."""

    def __init__(self, count: int, shapes: Mapping[str, tuple[int, ...]], device: torch.device) -> None:
        widths = {name: math.prod(shape) for name, shape in shapes.items()}
        whole, on_gpu = (count, sum(widths.values())), device.type == "cuda"
        self._sent = torch.zeros(whole, pin_memory=on_gpu)
        self._passed = torch.cuda.Event() if on_gpu else None
        self._arrived = torch.zeros(whole, device=device)
        self._parts: dict[str, Tensor] = {}
        self.views: dict[str, Tensor] = {}
        """(E, ...) what was sent last, on the device."""
        offset = 0
        for name, shape in shapes.items():
            part = slice(offset, offset + widths[name])
            self._parts[name] = self._sent[:, part].unflatten(1, shape or (1,))
            view = self._arrived[:, part].unflatten(1, shape or (1,))
            self.views[name] = view if shape else view.squeeze(1)
            offset += widths[name]

    def send(self, **values: Tensor) -> None:
        """Send (E, ...) host tensors, all of them."""
        if self._passed is not None:
            # What was sent last may still be on its way; where the host has waited for an answer it is not.
            self._passed.synchronize()
        for name, part in self._parts.items():
            part.copy_(values[name].view_as(part))
        self._arrived.copy_(self._sent, non_blocking=True)
        if self._passed is not None:
            self._passed.record()


class Answer:
    """One tensor on its way back to the host, for which the host waits when it needs it and no earlier."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._here = torch.zeros(shape, pin_memory=on_gpu)
        self._arrived = torch.cuda.Event() if on_gpu else None

    def ask(self, tensor: Tensor) -> None:
        """Begin to fetch what the device will have computed by now."""
        self._here.copy_(tensor, non_blocking=self._arrived is not None)
        if self._arrived is not None:
            self._arrived.record()

    def wait(self) -> Tensor:
        """The numbers, on the host."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._here

"""Copies between host and device that do not block: several tensors in one transfer. E: environments."""

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor


class HostTransfer:
    """Named tensors of E environments, copied to the device together: images as bytes, all others as float32.

    The tensors on the device keep their memory, so that captured graphs can read them.
    """

    def __init__(
        self,
        count: int,
        shapes: Mapping[str, tuple[int, ...]],
        device: torch.device,
        images: Collection[str] = (),
    ) -> None:
        """`images`: names whose tensors are uint8."""
        numbers = {name: shape for name, shape in shapes.items() if name not in images}
        pixels = {name: shape for name, shape in shapes.items() if name in images}
        self._packs = [_Pack(count, numbers, torch.float32, device)]
        self._packs += [_Pack(count, pixels, torch.uint8, device)] if pixels else []
        self._passed = torch.cuda.Event() if device.type == "cuda" else None
        self.views = {name: view for pack in self._packs for name, view in pack.views.items()}
        """(E, ...) the tensors on the device, by name."""

    def send(self, **values: Tensor) -> None:
        """Copy (E, ...) host tensors to the device, one for every name."""
        if self._passed is not None:
            # The previous copy may still read the pinned memory that is overwritten below. After an `Answer.wait` it
            # never does, and this returns at once.
            self._passed.synchronize()
        for pack in self._packs:
            pack.send(values)
        if self._passed is not None:
            self._passed.record()


class _Pack:
    """Named tensors of one type, side by side in one tensor on the host and one on the device."""

    def __init__(
        self, count: int, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, device: torch.device
    ) -> None:
        widths = {name: math.prod(shape) for name, shape in shapes.items()}
        whole = (count, sum(widths.values()))
        # Pinned: only page-locked memory can be copied without blocking the host.
        self._sent = torch.zeros(whole, dtype=dtype, pin_memory=device.type == "cuda")
        self._arrived = torch.zeros(whole, dtype=dtype, device=device)
        self._parts: dict[str, Tensor] = {}
        self.views: dict[str, Tensor] = {}
        offset = 0
        for name, shape in shapes.items():
            part = slice(offset, offset + widths[name])
            # A scalar per environment has the shape (), which unflatten does not take: (E, 1) on the way, (E,) outside.
            self._parts[name] = self._sent[:, part].unflatten(1, shape or (1,))
            view = self._arrived[:, part].unflatten(1, shape or (1,))
            self.views[name] = view if shape else view.squeeze(1)
            offset += widths[name]

    def send(self, values: Mapping[str, Tensor]) -> None:
        for name, part in self._parts.items():
            part.copy_(values[name].view_as(part))
        self._arrived.copy_(self._sent, non_blocking=True)


class Answer:
    """One tensor copied back to the host; the host blocks only when it needs the values."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._here = torch.zeros(shape, pin_memory=on_gpu)
        self._arrived = torch.cuda.Event() if on_gpu else None

    def ask(self, tensor: Tensor) -> None:
        """Start copying a tensor to the host, behind the work that is already queued on the device."""
        self._here.copy_(tensor, non_blocking=self._arrived is not None)
        if self._arrived is not None:
            self._arrived.record()

    def wait(self) -> Tensor:
        """The values on the host, valid until the next `ask`."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._here

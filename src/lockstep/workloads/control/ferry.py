"""Tables from the host to the device of a learner, without waiting for what that is doing."""

import torch
from torch import Tensor

from lockstep.workloads.control.simulation import Floats


class Ferry:
    """Carries one table after another; on a GPU each is sent while the GPU still computes something else."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cargo: Tensor | None = None
        self._left: torch.cuda.Event | None = None

    def carry(self, table: Floats) -> Tensor:
        """The table as a tensor of its own on the device."""
        if self._device.type != "cuda":
            return torch.from_numpy(table).to(self._device, copy=True)
        if self._cargo is None or self._cargo.shape != table.shape:
            # Only memory that stays where it is can be sent in the background.
            self._cargo = torch.empty(table.shape, pin_memory=True)
        if self._left is not None:
            self._left.synchronize()
        self._cargo.copy_(torch.from_numpy(table))
        arrived = self._cargo.to(self._device, non_blocking=True)
        self._left = torch.cuda.Event()
        self._left.record()
        return arrived

"""Mixed precision: the number format of the forward pass, and the loss scale that fp16 needs."""

import contextlib
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lockstep.compute import torch_private

Format = Literal["auto", "fp32", "bf16", "fp16"]

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Finite steps after which the loss scale is doubled, as in torch's GradScaler.
_GROWTH_INTERVAL = 2000


class Precision:
    """The format of the forward pass. Weights, gradients and optimizer state stay in fp32."""

    def __init__(self, name: Format, device: torch.device) -> None:
        if name == "auto":
            name = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
        self.name = name
        self._device = device
        self._scales = name == "fp16"
        # fp16 overflows above 65504 and rounds gradients below 6e-8 to zero. So the loss is multiplied by a power of
        # two, which changes no digits, as large as it can be without overflow. On the device, for captured graphs.
        self.scale: Tensor = torch.full((), 65536.0 if self._scales else 1.0, device=device)
        self._good_steps = torch.zeros((), dtype=torch.int64, device=device)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which a forward pass runs."""
        if self.name == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=_DTYPES[self.name])

    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide the gradients by the loss scale."""
        if self._scales:
            gradients = [p.grad for p in parameters if p.grad is not None]
            torch_private.divide(gradients, self.scale)

    def learn_from(self, finite: Tensor) -> None:
        """Adapt the loss scale: halve it after an overflow, double it after many finite steps in a row."""
        # Selected on the device instead of branching on the host, so that it can be part of a captured graph.
        if self._scales:
            self._good_steps.copy_(torch.where(finite, self._good_steps + 1, 0))
            grow = self._good_steps >= _GROWTH_INTERVAL
            self._good_steps.copy_(torch.where(grow, 0, self._good_steps))
            factor = torch.where(finite, torch.where(grow, 2.0, 1.0), 0.5)
            self.scale.mul_(factor).clamp_(1.0, 2.0**24)

    def state(self) -> dict[str, float]:
        """What a checkpoint stores."""
        return {"scale": float(self.scale), "good_steps": int(self._good_steps)}

    def load(self, state: dict[str, float]) -> None:
        """Restore what `state` returned."""
        self.scale.fill_(state["scale"])
        self._good_steps.fill_(int(state["good_steps"]))

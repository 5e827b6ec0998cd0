"""One optimiser step that is the same on every rank: clip, refuse what is not finite, move."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lockstep.compute import torch_private


class Optimizer:
    """Adam over named parameters, with the norm of the gradient limited and steps that are not finite left out.

    With a weight decay it is AdamW; biases and the scales of norms do not decay.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        eps: float,
        max_norm: float,
        betas: tuple[float, float] = (0.9, 0.999),
        *,
        scales: Mapping[str, float] | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        """`scales`: what the rate is multiplied with for parameters whose names begin so, where it is not one."""
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        device = self._parameters[0].device
        self._max_norm = max_norm
        on_gpu = device.type == "cuda"
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in parameters.items():
            kind = _scale_of(name, scales or {}), weight_decay * _decays(name, parameter)
            groups.setdefault(kind, []).append(parameter)
        self._scales = [scale for scale, _ in groups]
        self._fused = device.type != "mps"
        self._adam = torch.optim.AdamW(
            [
                # A recorded graph needs its rate in device memory; fused Adam on a CPU wants a plain number.
                {"params": some, "weight_decay": decay, "lr": torch.zeros((), device=device) if on_gpu else 0.0}
                for (_, decay), some in groups.items()
            ],
            eps=eps,
            betas=betas,
            fused=self._fused,
            capturable=on_gpu,
        )

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next steps."""
        for group, scale in zip(self._adam.param_groups, self._scales, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * scale)
            else:
                group["lr"] = rate * scale

    def step(self) -> tuple[Tensor, Tensor]:
        """Move the parameters; returns the gradient's norm before clipping and whether it was finite."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch_private.norms(gradients)))
        finite = torch.isfinite(norm)
        torch_private.multiply(gradients, (self._max_norm / (norm + 1e-6)).clamp(max=1.0))
        torch_private.leave_out_next_step(self._adam, (~finite).to(torch.float32))
        if self._fused or bool(finite):
            self._adam.step()
        return norm, finite

    def state(self) -> dict[str, Tensor]:
        """Moments and step counts by parameter name."""
        return {
            f"{kind}.{name}": value.detach()
            for name, parameter in zip(self._names, self._parameters, strict=True)
            for kind, value in self._adam.state.get(parameter, {}).items()
        }

    def outline(self) -> dict[str, Tensor]:
        """A state as `state` gives it after a step, without numbers."""
        kinds = {"exp_avg", "exp_avg_sq", "step"}
        return {
            f"{kind}.{name}": torch.empty(() if kind == "step" else parameter.shape, device="meta")
            for name, parameter in zip(self._names, self._parameters, strict=True)
            for kind in sorted(kinds)
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state from `state`."""
        for name, parameter in zip(self._names, self._parameters, strict=True):
            kept = {key.split(".", 1)[0]: value for key, value in state.items() if key.split(".", 1)[1] == name}
            if kept:
                self._adam.state[parameter] = {
                    kind: _like(value, parameter) if kind != "step" else value.clone().to(parameter.device)
                    for kind, value in kept.items()
                }


def scheduled_rate(rate: float, schedule: str, steps: int, total_steps: int, warmup: int, stride: int) -> float:
    """The learning rate of an update of `stride` steps after `steps`: warm-up, then the schedule over the whole run."""
    progress = min(steps / total_steps, 1.0)
    factor = {"constant": 1.0, "linear": 1.0 - progress, "cosine": 0.5 * (1 + math.cos(math.pi * progress))}
    return rate * factor[schedule] * (min(1.0, (steps + stride) / warmup) if warmup else 1.0)


def _scale_of(name: str, scales: Mapping[str, float]) -> float:
    return next((scale for beginning, scale in scales.items() if name.startswith(beginning)), 1.0)


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.dim() > 1 and name.rpartition(".")[2] not in ("bias", "scale")


def _like(value: Tensor, parameter: nn.Parameter) -> Tensor:
    # The same memory order as the parameter: another order would add up the same numbers differently.
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)

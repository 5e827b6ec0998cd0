"""The optimizer step, the same on every rank: clip the gradient, skip it if it is not finite, update the weights."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.compute import torch_private

_KINDS = ("exp_avg", "exp_avg_sq", "step")
"""What torch's AdamW keeps for each parameter."""
_OPTIONS = ("lr", "betas", "weight_decay", "eps")
"""What its kernel takes besides, from a parameter group."""


class Optimizer:
    """Adam over named parameters, with gradient clipping by norm; steps with a non-finite gradient are skipped.

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
        """`scales`: factors on the learning rate, by the prefix of the parameters' names; 1 for all others."""
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        device = self._parameters[0].device
        self._max_norm = max_norm
        on_gpu = device.type == "cuda"
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        # One group for each pair of (learning rate factor, weight decay).
        for name, parameter in parameters.items():
            kind = _scale_of(name, scales or {}), weight_decay * _decays(name, parameter)
            groups.setdefault(kind, []).append(parameter)
        self._scales = [scale for scale, _ in groups]
        # A fused optimizer can skip a step by a flag on the device (see `step`); on MPS the host decides instead.
        self._fused = device.type != "mps"
        # On a CPU the step is short: torch's own bookkeeping around the kernel would take several times as long.
        self._direct = device.type == "cpu" and torch_private.has_adamw_kernel()
        self._kernel_lists: list[tuple[dict[str, Any], list[list[Tensor]]]] | None = None
        """Each group with its parameters, moments and step counts, as the kernel takes them; None = not known yet."""
        self._counts = torch.zeros(len(self._parameters))
        """The step counts of all parameters, so that one addition advances them; only on a CPU."""
        self._adam = torch.optim.AdamW(
            [
                # A CUDA graph reads the rate from device memory; fused Adam on a CPU needs a plain number.
                {"params": members, "weight_decay": decay, "lr": torch.zeros((), device=device) if on_gpu else 0.0}
                for (_, decay), members in groups.items()
            ],
            eps=eps,
            betas=betas,
            fused=self._fused,
            capturable=on_gpu,
        )

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        for group, scale in zip(self._adam.param_groups, self._scales, strict=True):
            if isinstance(group["lr"], Tensor):
                # In place: a captured graph holds the address of this tensor.
                group["lr"].fill_(rate * scale)
            else:
                group["lr"] = rate * scale

    def step(self) -> tuple[Tensor, Tensor]:
        """Update the parameters; returns the gradient's norm before clipping and whether it was finite."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch_private.norms(gradients)))
        if self._direct and len(gradients) == len(self._parameters):
            return norm, self._step_directly(gradients, norm)
        # One non-finite element makes the norm non-finite, so one test covers all gradients.
        finite = torch.isfinite(norm)
        # 1e-6 as in torch.nn.utils.clip_grad_norm_. Always multiplied: a branch would wait for the device.
        torch_private.multiply(gradients, (self._max_norm / (norm + 1e-6)).clamp(max=1.0))
        # The decision stays on the device: no synchronization, and a captured graph can take it.
        torch_private.skip_next_step(self._adam, (~finite).to(torch.float32))
        if self._fused or bool(finite):
            self._adam.step()
        return norm, finite

    def _step_directly(self, gradients: list[Tensor], norm: Tensor) -> Tensor:
        """The same on a CPU, where the host may look at the norm, by the kernel of AdamW alone."""
        finite = math.isfinite(float(norm))
        if self._kernel_lists is None:
            self._kernel_lists = self._listed()
        if finite:
            torch_private.multiply(gradients, (self._max_norm / (norm + 1e-6)).clamp(max=1.0))
            self._counts += 1
            for group, (parameters, *kept) in self._kernel_lists:
                given = [p.grad for p in parameters if p.grad is not None]
                torch_private.adamw(parameters, given, *kept, **{name: group[name] for name in _OPTIONS})
        return torch.tensor(finite)

    def _listed(self) -> list[tuple[dict[str, Any], list[list[Tensor]]]]:
        """What the kernel takes for each group; parameters without moments get zeros, as before torch's first step."""
        states = self._adam.state
        for count, parameter in zip(self._counts.unbind(), self._parameters, strict=True):
            kept = states[parameter] or {
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            count.fill_(kept.get("step", 0.0))
            states[parameter] = {**kept, "step": count}
        return [
            (group, [group["params"], *([states[p][kind] for p in group["params"]] for kind in _KINDS)])
            for group in self._adam.param_groups
        ]

    def state(self) -> dict[str, Tensor]:
        """Adam's moments and step counts, as `<kind>.<parameter name>`."""
        return {
            f"{kind}.{name}": value.detach()
            for name, parameter in zip(self._names, self._parameters, strict=True)
            for kind, value in self._adam.state.get(parameter, {}).items()
        }

    def outline(self) -> dict[str, Tensor]:
        """The names and shapes that `state` has after the first step, without values (on the meta device)."""
        return {
            f"{kind}.{name}": torch.empty(() if kind == "step" else parameter.shape, device="meta")
            for name, parameter in zip(self._names, self._parameters, strict=True)
            for kind in _KINDS
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self._kernel_lists = None
        # Not through AdamW.load_state_dict, which identifies parameters by position instead of by name.
        for name, parameter in zip(self._names, self._parameters, strict=True):
            kept = {key.split(".", 1)[0]: value for key, value in state.items() if key.split(".", 1)[1] == name}
            if kept:
                self._adam.state[parameter] = {
                    kind: _like(value, parameter) if kind != "step" else value.clone().to(parameter.device)
                    for kind, value in kept.items()
                }


def scheduled_rate(rate: float, schedule: str, steps: int, total_steps: int, warmup: int, stride: int) -> float:
    """The learning rate of the update from `steps` to `steps + stride`: a schedule over the whole run, with warm-up."""
    progress = min(steps / total_steps, 1.0)
    factor = {"constant": 1.0, "linear": 1.0 - progress, "cosine": 0.5 * (1 + math.cos(math.pi * progress))}
    # Warm-up counts the steps at the end of the update: the first update must not have a rate of 0.
    return rate * factor[schedule] * (min(1.0, (steps + stride) / warmup) if warmup else 1.0)


def _scale_of(name: str, scales: Mapping[str, float]) -> float:
    return next((scale for prefix, scale in scales.items() if name.startswith(prefix)), 1.0)


def _decays(name: str, parameter: nn.Parameter) -> bool:
    # By name as well: in an ensemble the members' biases and scales are stacked into matrices.
    return parameter.dim() > 1 and name.rpartition(".")[2] not in ("bias", "scale")


def _like(value: Tensor, parameter: nn.Parameter) -> Tensor:
    # In the parameter's memory layout: in another one, sums over the same numbers would round differently.
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)

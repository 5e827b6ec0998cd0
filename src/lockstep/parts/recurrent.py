"""An LSTM over sequences in which episodes may begin. T: time, B: sequences, I: inputs, H: hidden units.

PyTorch's own LSTM cannot forget in the middle of a sequence. Here the projections of all inputs are one product, and so
is the gradient of the recurrent weights; what remains step by step is one small product and a few operations on (B, H).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

State = tuple[Tensor, Tensor]
"""What an LSTM carries from step to step: its output and its cells, (B, H) each."""


class LSTM(nn.Module):
    """One layer. Its gates lie side by side in the order output, input, forget, candidate."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.inputs = nn.Linear(input_size, 4 * hidden_size)
        self.recurrent = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))

    def initialise(self, generator: torch.Generator) -> None:
        """Orthogonal weights gate by gate; zero biases, but 1 for the forget gate, so that it remembers at first."""
        for weight in (self.inputs.weight, self.recurrent):
            for gate in weight.data.chunk(4):
                nn.init.orthogonal_(gate, generator=generator)
        nn.init.zeros_(self.inputs.bias)
        nn.init.ones_(self.inputs.bias.data.chunk(4)[2])

    def forward(self, inputs: Tensor, state: State, keep: Tensor) -> State:
        """Outputs (T, B, H) and the last cells (B, H) for inputs (T, B, I).

        keep (T, B): 0.0 where a step is the first of an episode and what was before is forgotten, else 1.0. The
        gradient goes through the outputs, as far as the start of the sequences and not into the state before them.
        """
        return _Recurrence.apply(self.inputs(inputs), *state, self.recurrent, keep.unsqueeze(-1))

    def step(self, inputs: Tensor, state: State) -> State:
        """The output and the cells (B, H) after one more input (B, I)."""
        hidden, cells = state
        gates = self.inputs(inputs) + F.linear(hidden, self.recurrent)
        output, entry, forget, candidate = gates.float().chunk(4, dim=-1)
        cells = torch.sigmoid(forget) * cells + torch.sigmoid(entry) * torch.tanh(candidate)
        return torch.sigmoid(output) * torch.tanh(cells), cells


class _Recurrence(torch.autograd.Function):
    """What goes step by step, forth and back. Products are made in the format of the inputs, all else in fp32."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, hidden: Tensor, cells: Tensor, weight: Tensor, keep: Tensor) -> State:
        size, dtype = hidden.shape[-1], projected.dtype
        # A product with few rows is twice as fast on a CPU when the weights lie in the order that it reads them in.
        across = weight.to(dtype).t().contiguous()
        gates = torch.empty_like(projected, dtype=torch.float32)
        outputs = gates.new_empty(*projected.shape[:2], size)
        entered, squashed = torch.empty_like(outputs), torch.empty_like(outputs)
        first = hidden
        for t in range(len(projected)):
            gates[t] = torch.addmm(projected[t], (hidden * keep[t]).to(dtype), across)
            _activate(gates[t], size)
            output, entry, forget, candidate = gates[t].split(size, dim=-1)
            torch.mul(cells, keep[t], out=entered[t])
            cells = (entry * candidate).addcmul_(forget, entered[t])
            squashed[t] = cells
            hidden = torch.mul(output, _squash(squashed[t]), out=outputs[t])
        ctx.save_for_backward(gates, entered, squashed, outputs, first, weight, keep)
        ctx.mark_non_differentiable(cells)
        ctx.dtype = dtype
        return outputs, cells

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gates, entered, squashed, outputs, first, weight, keep = ctx.saved_tensors
        size, dtype = first.shape[-1], ctx.dtype
        output, entry, forget, candidate = gates.split(size, dim=-1)
        # What each gradient is multiplied by on its way, for all steps at once.
        to_output, to_cells = squashed * output * (1 - output), output * (1 - squashed.square())
        to_others = torch.stack(
            (candidate * entry * (1 - entry), entered * forget * (1 - forget), entry * (1 - candidate.square())), dim=2
        )
        to_earlier = forget * keep
        changes = torch.empty_like(gates, dtype=dtype)
        weight = weight.to(dtype)
        hidden, cells = torch.zeros_like(first), torch.zeros_like(first)
        for t in reversed(range(len(gates))):
            hidden = hidden + gradient[t]
            cells = cells.addcmul_(hidden, to_cells[t])
            torch.mul(hidden, to_output[t], out=changes[t, :, :size])
            torch.mul(cells.unsqueeze(1), to_others[t], out=changes[t, :, size:].unflatten(1, (3, size)))
            cells = cells * to_earlier[t]
            hidden = (changes[t] @ weight).to(torch.float32) * keep[t]
        before = torch.cat((first.unsqueeze(0), outputs[:-1])) * keep
        of_weight = changes.flatten(0, 1).t() @ before.flatten(0, 1).to(dtype)
        return changes, None, None, of_weight.to(torch.float32), None


def _activate(gates: Tensor, size: int) -> None:
    """Sigmoid of the first three gates and hyperbolic tangent of the last, in place."""
    gates[:, : 3 * size].sigmoid_()
    _squash(gates[:, 3 * size :])


def _squash(values: Tensor) -> Tensor:
    """Hyperbolic tangent in place."""
    if values.device.type != "cpu":
        return values.tanh_()
    # There a tangent takes three times as long as a sigmoid: tanh x = 2 sigmoid 2x - 1.
    return values.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)

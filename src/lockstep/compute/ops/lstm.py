"""An LSTM over sequences in which episodes may start. T: time, B: sequences, I: inputs, H: hidden units.

PyTorch's own LSTM cannot reset its state in the middle of a sequence. Here the input projections of all steps are one
product, and so is the gradient of the recurrent weights. One small product and a few operations on (B, H) remain for
each step.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.compute import torch_private
from lockstep.compute.kernels import kernels_usable
from lockstep.compute.lane_axis import by_lane, by_row, with_rule
from lockstep.compute.ops import fused_lstm

State = tuple[Tensor, Tensor]
"""An LSTM's state between steps: its output and its cells, (B, H) each."""


class LSTM(nn.Module):
    """One layer. The four gates are stacked along the last axis: output, input, forget, candidate."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.inputs = nn.Linear(input_size, 4 * hidden_size)
        self.recurrent = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))

    def initialise(self, generator: torch.Generator) -> None:
        """Orthogonal weights for each gate; zero biases, but 1 for the forget gate, so that cells persist at first."""
        for weight in (self.inputs.weight, self.recurrent):
            for gate in weight.data.chunk(4):
                nn.init.orthogonal_(gate, generator=generator)
        nn.init.zeros_(self.inputs.bias)
        nn.init.ones_(self.inputs.bias.data.chunk(4)[2])

    def forward(self, inputs: Tensor, state: State, keep: Tensor) -> State:
        """Outputs (T, B, H) and the last cells (B, H) for inputs (T, B, I).

        keep (T, B): 0.0 at the first step of an episode, where the state is reset, else 1.0. Gradients flow through the
        outputs back to the start of the sequences, and not into the initial state.
        """
        given = self.inputs(inputs), *state, self.recurrent, keep.unsqueeze(-1)
        outputs, last, *_ = torch_private.apply(_Recurrence, *given)
        return outputs.contiguous(), last

    def step(self, inputs: Tensor, state: State) -> State:
        """The output and the cells (B, H) after one more input (B, I)."""
        hidden, cells = state
        gates = self.inputs(inputs) + F.linear(hidden, self.recurrent)
        # fp32, also under autocast: cells accumulate over a whole episode.
        output, entry, forget, candidate = gates.float().chunk(4, dim=-1)
        cells = torch.sigmoid(forget) * cells + torch.sigmoid(entry) * torch.tanh(candidate)
        return torch.sigmoid(output) * torch.tanh(cells), cells


def _recur(projected: Tensor, hidden: Tensor, cells: Tensor, weight: Tensor, keep: Tensor) -> tuple[Tensor, ...]:
    """The recurrence: outputs, last cells, and what the gradient needs: gates, the cells of every step and their tanh.

    Products are in the dtype of the inputs, everything else in fp32. On a CPU a step of a few sequences takes little
    longer than the overhead of its torch calls. So there are few calls: views are made for all steps at once, results
    are written to their final place, and resets are skipped at steps without one. On a GPU each call would be a kernel,
    so there our own kernels take all of a step but its product.
    """
    if kernels_usable(projected.device):
        return fused_lstm.recur(projected, hidden, cells, weight, keep)
    size, dtype = hidden.shape[-1], projected.dtype
    # A product with few rows is twice as fast on a CPU if the weights are stored in the order it reads them in.
    across = weight.to(dtype).t().contiguous()
    gates = torch.empty_like(projected, dtype=torch.float32)
    outputs, every_cell, squashed = (gates.new_empty(*projected.shape[:2], size) for _ in range(3))
    forgets, activation = _forgets(keep), _Activation(gates.device)
    places = _by_step(projected, gates, *_gates(gates), outputs, every_cell, squashed)
    for t, (entering, of_gates, output, entry, forget, candidate, of_output, of_cells, of_squashed) in places:
        if forgets[t]:
            # Not in place: at later steps these are rows of `outputs` and `every_cell`, which are results.
            hidden, cells = hidden * keep[t], cells * keep[t]
        # `out=` takes no other dtype than the product's, so other formats go through a copy.
        if dtype == torch.float32:
            torch.addmm(entering, hidden, across, out=of_gates)
        else:
            of_gates.copy_(torch.addmm(entering, hidden.to(dtype), across))
        activation.of_gates(of_gates, candidate)
        cells = torch.mul(entry, candidate, out=of_cells).addcmul_(forget, cells)
        hidden = torch.mul(output, activation.of_cells(cells, of_squashed), out=of_output)
    # A copy, because `cells` is a view of a tensor that is a result, too.
    return outputs, cells.clone(), gates, every_cell, squashed


def _recur_backwards(
    gradient: Tensor,
    gates: Tensor,
    every_cell: Tensor,
    squashed: Tensor,
    first_cells: Tensor,
    weight: Tensor,
    keep: Tensor,
) -> Tensor:
    """The gradient of the gates before their activation, (T, B, 4H) in fp32 or in the dtype of the products.

    `weight`: in the dtype of the products.
    """
    if kernels_usable(gradient.device):
        return fused_lstm.recur_backwards(gradient, gates, every_cell, squashed, first_cells, weight, keep)
    dtype, forgets = weight.dtype, _forgets(keep)
    # All local derivatives at once; the loop below only multiplies gradients into them, in place.
    changes, to_cells = _slopes(gates, squashed, _before(first_cells, every_cell, keep, forgets))
    hidden, cells = gradient[-1], torch.zeros_like(first_cells)
    by_gate = changes.unflatten(-1, (4, -1))
    places = _by_step(changes, by_gate[:, :, 0], by_gate[:, :, 1:], to_cells, _gates(gates)[2])
    for t, (change, of_output, of_others, to_cell, forget) in reversed(places):
        cells.addcmul_(hidden, to_cell)
        of_output.mul_(hidden)
        of_others.mul_(cells.unsqueeze(1))
        # No gradient into the initial state.
        if t == 0:
            break
        cells.mul_(forget)
        # What reaches the previous step: nothing where this step starts an episode (keep = 0).
        if keep.is_cuda or dtype != torch.float32:
            cells.mul_(keep[t])
            hidden = torch.addcmul(gradient[t - 1], (change.to(dtype) @ weight).to(torch.float32), keep[t])
            continue
        if forgets[t]:
            cells.mul_(keep[t])
            # Before the product, so that a sequence has the same bits whether or not one beside it is reset.
            change = change * keep[t]
        hidden = torch.addmm(gradient[t - 1], change, weight)
    return changes


def _recurrent_gradient(changes: Tensor, outputs: Tensor, first_hidden: Tensor, keep: Tensor) -> Tensor:
    """The gradient of the recurrent weights, over all steps in one product."""
    before = _before(first_hidden, outputs, keep, _forgets(keep))
    return (changes.flatten(0, 1).t() @ before.flatten(0, 1).to(changes.dtype)).to(torch.float32)


_backwards = with_rule(_recur_backwards, by_row(_recur_backwards, (1, 1, 1, 1, 0, None, 1), 1))
_weight_gradient = with_rule(_recurrent_gradient, by_lane(_recurrent_gradient))


class _Recurrence(torch.autograd.Function):
    """The recurrence and its gradients."""

    forward = staticmethod(_recur)
    vmap = staticmethod(by_row(_recur, (1, 0, 0, None, 1), (1, 0, 1, 1, 1)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        projected, *first, weight, keep = inputs
        outputs, last, *between = output
        ctx.mark_non_differentiable(last, *between)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(outputs, *between, *first, weight, keep)
        ctx.dtype = projected.dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        outputs, gates, every_cell, squashed, first_hidden, first_cells, weight, keep = ctx.saved_tensors
        changes = _backwards(gradient, gates, every_cell, squashed, first_cells, weight.to(ctx.dtype), keep)
        # A lane's part lies in memory as if it were alone: sums that follow may go by that.
        changes = changes.to(ctx.dtype).contiguous()
        return changes, None, None, _weight_gradient(changes, outputs, first_hidden, keep), None


def _forgets(keep: Tensor) -> list[bool]:
    """The steps at which some sequence is reset; on a GPU all of them."""
    # Reading `keep` would wait for the GPU, and multiplying by 1.0 changes nothing.
    return [True] * len(keep) if keep.is_cuda else (keep == 0).flatten(1).any(1).tolist()


def _gates(values: Tensor) -> tuple[Tensor, ...]:
    """The four gates' parts (..., H) of values (..., 4H)."""
    return values.unflatten(-1, (4, -1)).unbind(-2)


def _by_step(*tensors: Tensor) -> list[tuple[int, tuple[Tensor, ...]]]:
    """Each step's index and its slice of every tensor (T, ...)."""
    return list(enumerate(zip(*(tensor.unbind() for tensor in tensors), strict=True)))


class _Activation:
    """Sigmoids for the gates, hyperbolic tangents for the candidate and the cells."""

    def __init__(self, device: torch.device) -> None:
        self._plain = device.type == "cuda"
        self._minus_one = torch.full((), -1.0, device=device)

    def of_gates(self, gates: Tensor, candidate: Tensor) -> None:
        """Activate (B, 4H), of which the last quarter is the candidate."""
        if self._plain:
            gates[:, : -candidate.shape[-1]].sigmoid_()
            candidate.tanh_()
        else:
            # On a CPU tanh takes three times as long as a sigmoid, and tanh x = 2 sigmoid(2x) - 1. Doubling the
            # candidate first makes it one sigmoid over all gates.
            candidate.add_(candidate)
            gates.sigmoid_()
            torch.add(self._minus_one, candidate, alpha=2.0, out=candidate)

    def of_cells(self, cells: Tensor, out: Tensor) -> Tensor:
        """The tanh of (B, H), written to `out`."""
        if self._plain:
            return torch.tanh(cells, out=out)
        torch.add(cells, cells, out=out).sigmoid_()
        return torch.add(self._minus_one, out, alpha=2.0, out=out)


def _slopes(gates: Tensor, squashed: Tensor, entered: Tensor) -> tuple[Tensor, Tensor]:
    """The local derivatives of all steps: with respect to the gates (T, B, 4H) and to the cells (T, B, H).

    `squashed`: tanh of the cells; `entered`: the cells before each step.
    """
    output, entry, _, candidate = _gates(gates)
    slopes, one = torch.empty_like(gates), gates.new_ones(())
    # Sigmoid gates (the first three): s' = s - s^2, times what the gate multiplies.
    sigmoids = slice(0, 3 * squashed.shape[-1])
    torch.addcmul(
        gates[..., sigmoids], gates[..., sigmoids], gates[..., sigmoids], value=-1.0, out=slopes[..., sigmoids]
    )
    *to_sigmoids, to_candidate = _gates(slopes)
    for slope, factor in zip(to_sigmoids, (squashed, candidate, entered), strict=True):
        slope.mul_(factor)
    # tanh' = 1 - tanh^2, for the candidate and for the cells.
    torch.addcmul(one, candidate, candidate, value=-1.0, out=to_candidate).mul_(entry)
    return slopes, torch.addcmul(one, squashed, squashed, value=-1.0).mul_(output)


def _before(first: Tensor, values: Tensor, keep: Tensor, forgets: list[bool]) -> Tensor:
    """The value before each step (T, B, H): that of the previous step, or 0 after a reset."""
    # torch.cat copies, so that multiplying in place leaves `values` unchanged.
    earlier = torch.cat((first.unsqueeze(0), values[:-1]))
    return earlier.mul_(keep) if any(forgets) else earlier

"""The LSTM's fused steps: compared with the plain recurrence in Triton's interpreter, and on a GPU."""

from functools import partial
from unittest import mock

import pytest
import torch

from lockstep.compute import torch_private
from lockstep.compute.branches import Branches
from lockstep.compute.graphs import Recording
from lockstep.compute.ops import fused_lstm, lstm

NAMES = ("outputs", "last cells", "gates", "every cell", "squashed", "gradient of the inputs", "gradient of the weight")


def given(device, steps, rows, size, dtype=torch.float32, seed=3):
    """Projected inputs, state, weight, keep and the outputs' gradient; inputs and gradient are not contiguous."""
    numbers = torch.Generator().manual_seed(seed)

    def draw(*sizes):
        return torch.randn(sizes, generator=numbers).to(device)

    projected = draw(rows, steps, 4 * size).to(dtype).transpose(0, 1).requires_grad_()
    weight = (draw(4 * size, size) / size**0.5).requires_grad_()
    # Every third sequence begins anew at a step, some twice in a row; one at the very first.
    keep = (draw(steps, rows) > -0.4).float()
    keep[0, :1] = 0.0
    return (projected, draw(rows, size), draw(rows, size), weight, keep.unsqueeze(-1)), draw(rows, steps, size)


def computed(fused, inputs, gradient):
    """All that the recurrence returns, and its gradients, by the kernels or by PyTorch's operations."""
    with mock.patch.object(lstm, "kernels_usable", lambda device: fused):
        results = torch_private.apply(lstm._Recurrence, *inputs)
        gradients = torch.autograd.grad(results[0], (inputs[0], inputs[3]), gradient.transpose(0, 1))
    return *(result.detach() for result in results), *gradients


def compare(device, steps, rows, size, dtype=torch.float32, tolerance=1e-5):
    """Results and gradients equal the plain ones, relative to the largest of each tensor."""
    inputs, gradient = given(device, steps, rows, size, dtype)
    wanted, found = (computed(fused, inputs, gradient) for fused in (False, True))
    for name, one, other in zip(NAMES, found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype, name
        if rows:
            assert other.any(), name
            difference = (one.float() - other.float()).abs().max()
            assert difference <= tolerance * other.float().abs().max() + 1e-7, (name, steps, rows, size, difference)


def compare_all(device):
    """Sizes that are no powers of two, several programs, one step, one sequence and none, and short formats."""
    compare(device, 6, 7, 5)
    compare(device, 3, 37, 24)
    compare(device, 1, 4, 8)
    compare(device, 5, 1, 16)
    compare(device, 2, 0, 8)
    compare(device, 6, 7, 12, dtype=torch.bfloat16, tolerance=0.02)
    compare(device, 6, 7, 12, dtype=torch.float16, tolerance=0.002)


def check_tanh(device):
    """The candidate is the tanh of its input, to the last digits also near 0 and far from it."""
    small = torch.logspace(-30, 1.6, 500, dtype=torch.float64)
    values = torch.cat((-small, torch.zeros(1, dtype=torch.float64), torch.linspace(0.5, 0.6, 99).double(), small))
    projected = torch.zeros(1, len(values), 4)
    projected[0, :, 3] = values.float()
    zeros = torch.zeros(len(values), 1)
    inputs = (projected, zeros, zeros, torch.zeros(4, 1), torch.ones(1, len(values), 1))
    _, _, gates, *_ = fused_lstm.recur(*(part.to(device) for part in inputs))
    wanted = projected[0, :, 3].double().tanh()
    # A rounded number is off by up to 6e-8 of itself.
    assert ((gates[0, :, 3].cpu().double() - wanted).abs() <= 4e-7 * wanted.abs()).all()


def check_operators(device):
    """What the operators declare to torch.compile is true."""
    for dtype in (torch.float32, torch.bfloat16):
        inputs, gradient = given(device, 3, 5, 8, dtype)
        projected, hidden, cells, weight, keep = (part.detach() for part in inputs)
        torch.library.opcheck(fused_lstm.recur, (projected, hidden, cells, weight, keep))
        _, _, *between = fused_lstm.recur(projected, hidden, cells, weight, keep)
        backwards = (gradient.transpose(0, 1), *between, cells, weight.to(dtype), keep)
        torch.library.opcheck(fused_lstm.recur_backwards, backwards)


def test_fused_steps_are_those_of_the_plain_recurrence(interpret):
    interpret(__file__)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [256, 48, 5])
def test_the_kernels_can_be_built_for_a_gpu(build_kernels, size, dtype):
    from lockstep.compute.ops import lstm_triton

    built = build_kernels(lstm_triton, "forward", "backward")
    computed(True, *given(torch.device("cpu"), 1, 3, size, dtype))
    assert built == ["forward", "backward"]


def test_a_cpu_computes_without_the_kernels():
    inputs, _ = given(torch.device("cpu"), 3, 2, 4)
    with mock.patch.object(fused_lstm, "recur", side_effect=AssertionError):
        lstm._recur(*(part.detach() for part in inputs))


@pytest.mark.gpu
def test_fused_steps_are_those_of_the_plain_recurrence_on_a_gpu():
    device = torch.device("cuda")
    compare_all(device)
    compare(device, 16, 512, 256, tolerance=1e-4)
    compare(device, 16, 65, 256, dtype=torch.bfloat16, tolerance=0.05)
    check_tanh(device)
    check_operators(device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lanes_have_the_same_bits_alone_and_as_branches_of_a_recorded_graph(dtype):
    device, lanes = torch.device("cuda"), 4
    parts = [given(device, 8, 48, 64, dtype, seed) for seed in range(lanes)]
    alone = [computed(True, *part) for part in parts]
    branches = Branches(lanes, device)
    recording = Recording(lambda: branches.run([partial(computed, True, *part) for part in parts]), device)
    # The first calls are eager, then it is recorded and replayed.
    for _ in range(6):
        together = recording()
        for wanted, found in zip(alone, together, strict=True):
            for name, one, other in zip(NAMES, found, wanted, strict=True):
                assert torch.equal(one, other), name


if __name__ == "__main__":
    compare_all(torch.device("cpu"))
    check_tanh(torch.device("cpu"))
    check_operators(torch.device("cpu"))

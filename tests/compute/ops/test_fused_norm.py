"""The fused kernels compute a norm and an activation: compared with PyTorch in Triton's interpreter, and on a GPU."""

import pytest
import torch
import torch.nn.functional as F

from lockstep.compute.ops import fused_norm

NAMES = ("signal", "bias", "scale", "shift")


def step_by_step(signal, bias, scale, shift, kept, simplex):
    """The same as `normed`, in eager PyTorch."""
    each = (*scale.shape[:-1], *[1] * (signal.dim() - scale.dim()), scale.shape[-1])
    value = signal.float() + bias.view(each)
    value = value if kept is None else value * kept
    value = F.layer_norm(value, value.shape[-1:], eps=fused_norm.EPS) * scale.view(each) + shift.view(each)
    return torch.softmax(value.unflatten(-1, (-1, simplex)), -1).flatten(-2) if simplex else F.mish(value)


def inputs(device, shape, members=0, drops=False, dtype=torch.float32, spread=1.0):
    """Random numbers; the dropout factors are not contiguous in memory."""
    numbers = torch.Generator().manual_seed(3)

    def draw(*sizes):
        return torch.randn(sizes, generator=numbers).to(device)

    weights = (members, shape[-1]) if members else shape[-1:]
    kept = (draw(*shape[:-1], 2 * shape[-1]) > -0.5).float()[..., ::2] if drops else None
    tensors = (draw(*shape).mul(spread).to(dtype), *(draw(*weights) for _ in range(3)))
    return [tensor.requires_grad_() for tensor in tensors], kept


def compare(device, shape, simplex=0, tolerance=1e-4, **choices):
    """Results and gradients equal PyTorch's, relative to the largest of each tensor."""
    tensors, kept = inputs(device, shape, **choices)
    wanted = step_by_step(*tensors, kept, simplex)
    found = fused_norm.normed(*tensors, kept, simplex)
    assert found.shape == wanted.shape and found.dtype == torch.float32
    gradient = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to(device)
    pairs = [("result", found.detach(), wanted.detach())]
    ours, theirs = (torch.autograd.grad(result, tensors, gradient) for result in (found, wanted))
    pairs += [(name, *pair) for name, *pair in zip(NAMES, ours, theirs, strict=True)]
    for name, one, other in pairs:
        assert one.shape == other.shape and one.dtype == other.dtype, name
        if wanted.numel():
            assert float((one - other).abs().max()) <= tolerance * float(other.abs().max()) + 1e-6, (name, shape)
    looked_through = fused_norm.normed(tensors[0], *(tensor.detach() for tensor in tensors[1:]), kept, simplex)
    assert torch.equal(torch.autograd.grad(looked_through, tensors[0], gradient)[0], ours[0])


def compare_all(device):
    """Widths that are not powers of two, members, dropout, many rows, one row and none."""
    compare(device, (7, 24))
    compare(device, (3, 5, 24), members=3)
    compare(device, (2, 3, 5, 8), drops=True)
    compare(device, (3, 300, 16), members=3, drops=True)
    compare(device, (1, 48), simplex=8)
    compare(device, (9, 48), simplex=1, spread=3.0)
    compare(device, (4, 6, 12), simplex=4)
    compare(device, (0, 24))
    compare(device, (20, 24), dtype=torch.bfloat16, tolerance=0.01)
    compare(device, (5, 8), spread=1e4)


def check_operators(device):
    """What the operators declare to torch.compile is true."""
    (signal, bias, scale, shift), kept = inputs(device, (3, 5, 24), members=3, drops=True)
    for simplex in (0, 8):
        torch.library.opcheck(fused_norm._forward, (signal, bias, scale, shift, kept, simplex))
        torch.library.opcheck(fused_norm._forward, (signal[0], bias[0], scale[0], shift[0], None, simplex))
    gradient, plain = torch.randn_like(signal).detach(), [part.detach() for part in (signal, bias, scale, shift)]
    for weights in (True, False):
        torch.library.opcheck(fused_norm._backward, (gradient, *plain, kept, 0, weights))


def test_kernels_are_norm_and_activation(interpret):
    interpret(__file__)


@pytest.mark.parametrize(
    ("shape", "choices"),
    [
        # More tiles than a grid's second axis can have.
        ((66_000, 1100), {}),
        ((3, 5, 512), {"members": 3, "drops": True}),
        ((5, 384), {"simplex": 8}),
        ((5, 4096), {"dtype": torch.bfloat16}),
    ],
)
def test_the_kernels_can_be_built_for_a_gpu(build_kernels, shape, choices):
    from lockstep.compute.ops import fused_norm_triton

    built = build_kernels(fused_norm_triton, "forward", "backward")
    simplex = choices.pop("simplex", 0)
    tensors, kept = inputs(torch.device("cpu"), shape, **choices)
    fused_norm.normed(*tensors, kept, simplex).sum().backward()
    assert built == ["forward", "backward"]


@pytest.mark.gpu
def test_kernels_are_norm_and_activation_on_a_gpu():
    device = torch.device("cuda")
    compare_all(device)
    check_operators(device)
    # More tiles than a grid's second axis can have.
    compare(device, (300_000, 512))


@pytest.mark.parametrize(("simplex", "fits"), [(0, True), (8, True), (12, False)])
def test_distributions_of_other_sizes_are_computed_eagerly(monkeypatch, simplex, fits):
    monkeypatch.setattr(fused_norm, "kernels_usable", lambda device: True)
    assert fused_norm.fits(torch.zeros(1), simplex) == fits


if __name__ == "__main__":
    compare_all(torch.device("cpu"))
    check_operators(torch.device("cpu"))

import pytest
import torch
from torch import nn

from lockstep.compute.ops import convolution
from lockstep.compute.ops.convolution import Conv3x3

LAST = torch.channels_last


@pytest.fixture(autouse=True)
def arm(monkeypatch):
    """The gradients are the same on any processor, so they are tested on any."""
    monkeypatch.setattr(convolution, "is_arm", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)


def pair(channels_in=3, channels_out=5, dtype=torch.float32):
    torch.manual_seed(0)
    ours = Conv3x3(channels_in, channels_out).to(dtype=dtype, memory_format=LAST)
    theirs = nn.Conv2d(channels_in, channels_out, 3, padding=1).to(dtype=dtype, memory_format=LAST)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def gradients(layer, planes, memory_format=LAST):
    planes = planes.contiguous(memory_format=memory_format).requires_grad_()
    output = layer(planes)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(output.dtype)
    return output, *torch.autograd.grad((output * weights).sum(), (planes, layer.weight, layer.bias))


def test_the_gradients_of_one_cell_are_those_worked_out_by_hand():
    layer = Conv3x3(1, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(9.0).view(1, 1, 3, 3))
        layer.bias.zero_()
    planes = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]], requires_grad=True)
    output = layer(planes)
    output[0, 0, 0, 0].backward()
    # The cell sees 1, 2, 3, 4 through the kernel's lower right: 4, 5, 7, 8.
    assert output[0, 0, 0, 0].item() == 1 * 4 + 2 * 5 + 3 * 7 + 4 * 8
    assert planes.grad.flatten().tolist() == [4, 5, 7, 8]
    assert layer.weight.grad.flatten().tolist() == [0, 0, 0, 0, 1, 2, 0, 3, 4]
    assert layer.bias.grad.item() == 1


def test_gradients_agree_with_finite_differences():
    layer, _ = pair(2, 3, torch.float64)
    planes = torch.randn(3, 2, 4, 5, dtype=torch.float64).contiguous(memory_format=LAST).requires_grad_()
    function = convolution._Convolution.apply
    assert torch.autograd.gradcheck(function, (planes, layer.weight, layer.bias))


@pytest.mark.parametrize("memory_format", [LAST, torch.contiguous_format])
@pytest.mark.parametrize("shape", [(7, 3, 6, 6), (1, 3, 4, 9), (301, 3, 8, 8)])
def test_values_and_gradients_are_those_of_the_library(shape, memory_format):
    ours, theirs = pair()
    planes = torch.randn(shape)
    wanted = gradients(theirs.double(), planes.double(), memory_format)
    for found, exact in zip(gradients(ours, planes, memory_format), wanted, strict=True):
        assert (found - exact).norm() <= 1e-5 * exact.norm()


def test_the_same_batch_gives_the_same_bits():
    ours, _ = pair(16, 16)
    planes = torch.randn(32, 16, 8, 8)
    first, again = gradients(ours, planes), gradients(ours, planes)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_gradients_have_the_memory_layout_of_their_weights():
    ours, _ = pair(4, 6)
    ours(torch.randn(2, 4, 6, 6)).sum().backward()
    assert ours.weight.grad.stride() == ours.weight.stride() == (36, 1, 12, 4)


def test_without_training_or_in_another_dtype_the_library_convolution_is_used():
    ours, theirs = pair()
    planes = torch.randn(2, 3, 6, 6)
    assert "_Convolution" in type(ours(planes).grad_fn).__name__
    with torch.no_grad():
        assert torch.equal(ours(planes), theirs(planes))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "_Convolution" not in type(ours(planes).grad_fn).__name__
    ours.requires_grad_(False)
    assert ours(planes).grad_fn is None
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight", "bias"]


def test_onednn_is_used_for_convolutions_while_a_run_has_it_turned_off(monkeypatch):
    seen = []
    convolve = torch.nn.functional.conv2d
    monkeypatch.setattr(
        convolution.F, "conv2d", lambda *a, **k: seen.append(torch.backends.mkldnn.enabled) or convolve(*a, **k)
    )
    torch.backends.mkldnn.enabled = False
    layer = Conv3x3(1, 1)
    layer(torch.ones(1, 1, 2, 2, requires_grad=True)).sum().backward()
    assert seen == [True, True] and not torch.backends.mkldnn.enabled
    with torch.no_grad():
        layer(torch.ones(1, 1, 2, 2))
    assert not torch.backends.mkldnn.enabled

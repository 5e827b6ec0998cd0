import torch

from lockstep.compute.ops.products import product


def test_values_and_gradients_are_those_of_a_matrix_product():
    one, other = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 6, 4)
    ours = [tensor.clone().requires_grad_() for tensor in (one, other)]
    theirs = [tensor.clone().requires_grad_() for tensor in (one, other)]
    found, expected = product(ours[0], ours[1].transpose(-1, -2)), theirs[0] @ theirs[1].transpose(-1, -2)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    (found * weight).sum().backward(), (expected * weight).sum().backward()
    for mine, plain in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, plain.grad)


def test_autocast_applies_to_the_product():
    one, other = (torch.randn(2, 4, 4, requires_grad=True) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = product(one, other)
    assert found.dtype == torch.bfloat16
    found.float().sum().backward()
    assert one.grad.dtype == torch.float32

"""Mish and its gradient equal those of torch over the whole range of float32."""

import torch
import torch.nn.functional as F

from lockstep.compute.ops.activation import mish


def test_values_and_gradients_are_those_of_torch_in_double_precision():
    x = torch.cat((torch.linspace(-30, 30, 4001), torch.tensor([-100.0, -88.0, 0.0, 88.0, 1e4, -1e4])))
    ours, theirs = x.clone().requires_grad_(), x.double().requires_grad_()
    weights = torch.randn(len(x), generator=torch.Generator().manual_seed(0))
    (mish(ours) * weights).sum().backward()
    (F.mish(theirs) * weights.double()).sum().backward()
    torch.testing.assert_close(mish(x), F.mish(x.double()).float(), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(ours.grad, theirs.grad.float(), rtol=2e-6, atol=2e-6)


def test_mish_has_the_known_values_at_some_points():
    assert mish(torch.tensor([0.0, 20.0, -50.0])).tolist() == [0.0, 20.0, mish(torch.tensor(-50.0)).item()]
    # tanh(log(1 + e)) = 0.8650984
    torch.testing.assert_close(mish(torch.tensor(1.0)), torch.tensor(0.8650984))


def test_mish_can_be_compiled_without_graph_breaks():
    compiled = torch.compile(lambda x: mish(x).sum(), backend="aot_eager", fullgraph=True)
    x = torch.randn(7, generator=torch.Generator().manual_seed(1))
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(one).backward()
    mish(other).sum().backward()
    torch.testing.assert_close(one.grad, other.grad)

"""Linear layers that multiply in another way have the values of torch's, and are themselves again afterwards."""

import pytest
import torch
from torch import nn

from lockstep.compute.ops.lane_linear import LinearLayers, by_cohort, lane_linear


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 2, 7])
@pytest.mark.parametrize("shape", [(20,), (1, 20), (3, 20), (40, 20), (4, 5, 20), (0, 20)])
def test_values_and_gradients_are_those_of_the_layer(shape, outputs, bias):
    layer, inputs = nn.Linear(20, outputs, bias), numbers(*shape).requires_grad_()
    wanted, found = layer(inputs), lane_linear(layer, inputs)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted)
    weights = (inputs, *layer.parameters())
    pairs = zip(*(torch.autograd.grad(result.square().sum(), weights) for result in (found, wanted)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_under_autocast_the_layer_computes_in_the_short_format():
    layer, inputs = nn.Linear(20, 1), numbers(32, 20)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(lane_linear(layer, inputs), layer(inputs))


def test_cohorts_are_multiplied_one_by_one():
    layer, inputs = nn.Linear(20, 3), numbers(12, 20)
    assert torch.equal(by_cohort(4, layer, inputs), torch.cat([layer(part) for part in inputs.split(3)]))


def test_layers_are_themselves_again_also_after_an_error():
    class Own(nn.Linear):
        """Computes something else than torch's."""

    network = nn.Sequential(nn.Linear(20, 20), Own(20, 20), nn.Linear(20, 20))
    network[2].forward = network[0].forward
    asked = []

    def compute(layer, inputs):
        asked.append(layer)
        return inputs

    layers = LinearLayers(network, compute)
    with pytest.raises(ZeroDivisionError), layers.replaced():
        network(numbers(4, 20))
        raise ZeroDivisionError
    assert asked == [network[0]], "neither another class nor a layer with a forward pass of its owner"
    assert "forward" not in vars(network[0]) and "forward" in vars(network[2])

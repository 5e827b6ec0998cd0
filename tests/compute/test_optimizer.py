"""The optimizer step: clipped, skipped if it is not finite, and continued exactly after a load."""

import torch
from torch import nn

from lockstep.compute.optimizer import Optimizer


def _optimizer(max_norm=1e9, rate=0.1):
    layer = nn.Linear(2, 1, bias=False)
    nn.init.constant_(layer.weight, 1.0)
    optimizer = Optimizer(dict(layer.named_parameters()), eps=1e-8, max_norm=max_norm)
    optimizer.set_rate(rate)
    return layer, optimizer


def test_the_first_step_of_adam_moves_by_the_rate():
    layer, optimizer = _optimizer()
    layer.weight.grad = torch.tensor([[5.0, -0.1]])
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.tensor([[0.9, 1.1]]))


def test_weights_decay_and_biases_and_scales_do_not():
    layer = nn.Linear(2, 1)
    layer.scale = nn.Parameter(torch.ones(3, 2))
    nn.init.ones_(layer.weight), nn.init.ones_(layer.bias)
    optimizer = Optimizer(dict(layer.named_parameters()), eps=1e-8, max_norm=1e9, weight_decay=0.1)
    optimizer.set_rate(0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.full((1, 2), 0.95))
    assert layer.bias.item() == 1.0 and torch.equal(layer.scale.detach(), torch.ones(3, 2))


def test_the_norm_is_reported_before_clipping_and_limited_after():
    layer, optimizer = _optimizer(max_norm=0.5)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    norm, finite = optimizer.step()
    assert float(norm) == 5.0 and bool(finite)
    torch.testing.assert_close(layer.weight.grad.norm(), torch.tensor(0.5), rtol=1e-5, atol=0)


def test_a_gradient_that_is_not_finite_changes_no_weight():
    layer, optimizer = _optimizer()
    layer.weight.grad = torch.tensor([[1.0, 1.0]])
    optimizer.step()
    weight, state = layer.weight.detach().clone(), {k: v.clone() for k, v in optimizer.state().items()}
    for bad in (float("nan"), float("inf")):
        layer.weight.grad = torch.tensor([[1.0, bad]])
        _, finite = optimizer.step()
        assert not bool(finite)
    assert torch.equal(layer.weight, weight)
    assert all(torch.equal(state[name], value) for name, value in optimizer.state().items())


def test_a_loaded_optimizer_continues_with_the_same_bits():
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 1, 2, generator=generator)
    layer, optimizer = _optimizer()
    for number, gradient in enumerate(gradients):
        if number == 3:
            kept_weight, kept = layer.weight.detach().clone(), {k: v.clone() for k, v in optimizer.state().items()}
        layer.weight.grad = gradient.clone()
        optimizer.step()
    other, resumed = _optimizer()
    with torch.no_grad():
        other.weight.copy_(kept_weight)
    resumed.load(kept)
    for gradient in gradients[3:]:
        other.weight.grad = gradient.clone()
        resumed.step()
    assert torch.equal(other.weight, layer.weight)


def test_some_parameters_have_a_learning_rate_of_their_own():
    layers = nn.ModuleDict({"slow": nn.Linear(1, 1, bias=False), "quick": nn.Linear(1, 1, bias=False)})
    for weight in layers.parameters():
        nn.init.zeros_(weight)
        weight.grad = torch.ones_like(weight)
    optimizer = Optimizer(dict(layers.named_parameters()), 1e-8, 1e9, scales={"slow.": 0.3})
    optimizer.set_rate(0.1)
    optimizer.step()
    moved = {name: round(weight.item(), 6) for name, weight in layers.named_parameters()}
    assert moved == {"slow.weight": -0.03, "quick.weight": -0.1}


def test_the_bits_are_those_of_torchs_own_optimizer():
    generator = torch.Generator().manual_seed(0)
    layers = [nn.Linear(5, 3), nn.Linear(5, 3)]
    layers[1].load_state_dict(layers[0].state_dict())
    ours = Optimizer(dict(layers[0].named_parameters()), eps=1e-5, max_norm=0.5, weight_decay=0.1)
    ours.set_rate(0.01)
    groups = [{"params": [layers[1].weight], "weight_decay": 0.1}, {"params": [layers[1].bias], "weight_decay": 0.0}]
    torchs = torch.optim.AdamW(groups, lr=0.01, eps=1e-5, fused=True)
    for number in range(6):
        gradients = [torch.randn(p.shape, generator=generator) for p in layers[0].parameters()]
        for layer in layers:
            for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
                parameter.grad = gradient.clone()
            # A parameter without a gradient keeps its moments and its count, whatever the others do.
            if number == 2:
                layer.bias.grad = None
        ours.step()
        nn.utils.clip_grad_norm_(layers[1].parameters(), 0.5)
        torchs.step()
        assert all(torch.equal(*pair) for pair in zip(layers[0].parameters(), layers[1].parameters(), strict=True))
    kept = ours.state()
    assert kept["step.weight"] == 6 and kept["step.bias"] == 5
    assert torch.equal(kept["exp_avg_sq.bias"], torchs.state[layers[1].bias]["exp_avg_sq"])

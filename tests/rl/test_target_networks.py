"""Copies of a network: which of them move with it, and which of them gradients reach."""

import torch
from torch import nn

from lockstep.rl.target_networks import follow, target_of, view_of


def layer(value):
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, value)
    return module


def test_a_target_goes_its_share_of_the_way():
    source, target = layer(3.0), target_of(layer(1.0))
    follow(target, source, 0.25)
    assert target.weight.item() == 1.5
    follow(target, source, 1.0)
    assert target.weight.item() == 3.0 and source.weight.item() == 3.0
    assert not target.weight.requires_grad and source.weight.requires_grad


def test_a_view_has_the_networks_weights_also_after_they_moved():
    network = nn.Sequential(nn.Linear(2, 3), nn.LSTM(3, 2))
    view = view_of(network)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(1.0)
    for weight, seen in zip(network.parameters(), view.parameters(), strict=True):
        assert weight.data_ptr() == seen.data_ptr() and torch.equal(weight, seen)
    inputs = torch.randn(1, 1, 2)
    assert torch.equal(network(inputs)[0], view(inputs)[0])


def test_gradients_pass_through_a_view_and_leave_nothing_behind():
    network = nn.Sequential(nn.Linear(2, 3), nn.LSTM(3, 2))
    view = view_of(network)
    for weight in network.parameters():
        weight.grad = torch.full_like(weight, 7.0)
    inputs = torch.randn(4, 1, 2, requires_grad=True)
    view(inputs)[0].sum().backward()
    assert inputs.grad.abs().sum() > 0
    assert all(bool((weight.grad == 7.0).all()) for weight in network.parameters())
    assert all(weight.grad is None for weight in view.parameters())


def test_a_loaded_network_is_still_seen_by_its_view():
    network = layer(1.0)
    view = view_of(network)
    network.load_state_dict({"weight": torch.tensor([[5.0]])})
    assert view.weight.item() == 5.0

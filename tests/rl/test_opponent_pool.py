import torch
from torch import nn

from lockstep.rl.opponent_pool import OpponentPool


def actor(weight):
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, weight)
    return layer


def weights(pool):
    return [network.weight.item() for network in pool.networks]


def test_a_new_version_replaces_the_oldest():
    current = actor(0.0)
    pool = OpponentPool(current, 2)
    for version in (1, 2, 3):
        nn.init.constant_(current.weight, float(version))
        pool.add(current, version)
    # Version 3 took the place of version 1.
    assert weights(pool) == [2.0, 3.0]


def test_a_pool_is_saved_and_restored():
    pool = OpponentPool(actor(0.0), 2)
    pool.add(actor(3.0), 1)
    other = OpponentPool(actor(9.0), 2)
    other.load({name: value.clone() for name, value in pool.state().items()})
    assert weights(other) == [0.0, 3.0]


def test_resetting_replaces_every_version():
    pool = OpponentPool(actor(0.0), 2)
    pool.reset(actor(4.0))
    assert weights(pool) == [4.0, 4.0]
    assert not any(parameter.requires_grad for network in pool.networks for parameter in network.parameters())
    assert torch.equal(pool.networks[0].weight, pool.networks[1].weight)

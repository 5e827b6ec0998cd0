"""Gradients of one module with several losses."""

import pytest
import torch
from torch import nn

from lockstep.compute.precision import Precision
from lockstep.distributed.replicas import replicate
from lockstep.distributed.world import World

CPU = torch.device("cpu")


class Scaled(nn.Module):
    """The sum of a module's weights times the batch, so that the gradient is the batch."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, batch):
        return self.module.weight.sum() * batch, {}


@pytest.mark.parametrize("kind", ["exact", "fast", "recorded"])
def test_two_losses_of_one_module_leave_each_its_own_gradient(kind):
    module = nn.Linear(3, 2, bias=False)
    world = World().with_lanes(2, "exact" if kind == "exact" else "fast")
    record = (lambda function: function) if kind == "recorded" else None
    cohorts = [[batch] for batch in ((1.0, 2.0) if kind == "exact" else (3.0,))]
    first = replicate(Scaled(module), world, Precision("fp32", CPU), record)
    second = replicate(Scaled(module), world, Precision("fp32", CPU), record, beside=first)
    for replica in (second, first, first, second, first):
        replica.backward(cohorts)
        assert torch.equal(module.weight.grad, torch.full((2, 3), 3.0))

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


class Fixed:
    """Stands in for a CUDA graph: what it is called with first is what it computes with ever after."""

    def __init__(self, function):
        self._function, self._arguments = function, None

    def __call__(self, *arguments):
        self._arguments = self._arguments or arguments
        return self._function(*self._arguments)


def test_every_lane_is_recorded_by_itself_and_reads_its_own_batch_in_place():
    module = nn.Linear(3, 2, bias=False)
    replica = replicate(Scaled(module), World().with_lanes(2, "exact"), Precision("fp32", CPU), Fixed)
    batches = [torch.tensor(1.0), torch.tensor(2.0)]
    for first, second in ((1.0, 2.0), (5.0, -1.0)):
        batches[0].fill_(first)
        batches[1].fill_(second)
        replica.backward([[batch] for batch in batches])
        assert torch.equal(module.weight.grad, torch.full((2, 3), first + second))

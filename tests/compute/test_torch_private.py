"""Undocumented names of torch: each must exist, and do the same as its fallback."""

import pytest
import torch
from torch import nn

from lockstep.compute import torch_private


@pytest.mark.parametrize("name", torch_private.USED)
def test_the_installed_torch_has_the_name(name):
    assert name not in torch_private.missing(), f"torch {torch.__version__} has no {name}"


def test_a_name_that_torch_lacks_is_reported_missing(monkeypatch):
    monkeypatch.setattr(torch_private, "USED", ("torch.no_such_name", "torch.no_such_module.name", "torch.add"))
    assert torch_private.missing() == ["torch.no_such_name", "torch.no_such_module.name"]


def results():
    tensors = [torch.linspace(-1, 2, 7), torch.full((3, 5), 0.3)]
    torch_private.multiply(tensors, torch.tensor(0.7))
    torch_private.divide(tensors, torch.tensor(1.3))
    torch_private.move_towards(tensors, [torch.ones(7), torch.zeros(3, 5)], 0.01)
    return [*tensors, *torch_private.norms(tensors)]


def test_without_the_fused_functions_the_bits_are_the_same(monkeypatch):
    fused = results()
    for name in torch_private.USED:
        if name.startswith("torch._foreach"):
            monkeypatch.delattr(torch, name.removeprefix("torch."))
    assert all(torch.equal(one, other) for one, other in zip(fused, results(), strict=True))


@pytest.mark.parametrize(("flag", "moves"), [(0.0, True), (1.0, False)])
def test_a_fused_optimizer_skips_a_step_by_the_flag(flag, moves):
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    adam = torch.optim.Adam([weight], lr=0.1, fused=True)
    torch_private.skip_next_step(adam, torch.tensor(flag))
    adam.step()
    assert (not torch.equal(weight.detach(), torch.ones(3))) is moves

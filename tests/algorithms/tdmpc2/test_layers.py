"""On a GPU the layers are kernels: compared with the plain layers in Triton's interpreter, and on a GPU."""

import pytest
import torch

from lockstep.algorithms.tdmpc2.model.layers import Ensemble, mlp, run
from lockstep.compute.ops import fused_norm


def results(device, fuse, *, features, rows, simplex, dtype=torch.float32):
    """Outputs and gradients of networks, by name."""
    torch.manual_seed(3)
    plain, distributions = mlp(5, [features] * 2, 4), mlp(5, [features], features, simplex)
    ensemble = Ensemble(3, 5, [features] * 2, 4)
    networks = torch.nn.ModuleDict({"plain": plain, "distributions": distributions, "ensemble": ensemble})
    for weight in networks.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    networks.to(device)
    seen = torch.randn(rows, 5).to(device).requires_grad_()
    kept = (torch.rand(3, rows, features) > 0.3).float().to(device) / 0.7
    frozen = [tuple(part if part is None else part.detach() for part in layer) for layer in ensemble.stack()]
    found = {}
    fits, fused_norm.kernels_usable = fused_norm.kernels_usable, lambda _: fuse
    try:
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            answers = {
                "plain": plain(seen.view(rows // 2, 2, 5)),
                "distributions": distributions(seen),
                "ensemble": ensemble(seen),
                "some dropped": ensemble(seen, kept),
                "two members": run(ensemble.stack(torch.tensor([2, 2], device=device)), seen),
                "frozen": run(frozen, seen, kept),
            }
        for name, answer in answers.items():
            wanted = torch.randn(answer.shape, generator=torch.Generator().manual_seed(1)).to(device)
            leaves = {"input": seen, **dict(networks.named_parameters())}
            gradients = torch.autograd.grad(answer, list(leaves.values()), wanted.to(answer.dtype), allow_unused=True)
            pairs = zip(leaves, gradients, strict=True)
            found |= {f"{name}, {leaf}": gradient for leaf, gradient in pairs if gradient is not None}
            found[name] = answer.detach()
    finally:
        fused_norm.kernels_usable = fits
    return found


def compare(device, tolerance=3e-5, **sizes):
    """Compare kernels with plain layers, relative to the largest value of each tensor."""
    ours, theirs = results(device, True, **sizes), results(device, False, **sizes)
    assert ours.keys() == theirs.keys()
    assert sum("frozen" in name for name in ours) == 2
    for name, wanted in theirs.items():
        largest = float(wanted.abs().max())
        assert largest > 0.01, name
        assert float((ours[name] - wanted).abs().max()) < tolerance * largest, name


def test_kernels_compute_the_layers(interpret):
    interpret(__file__)


@pytest.mark.gpu
@pytest.mark.parametrize("features", [256, 384, 512, 1792, 4096])
def test_kernels_compute_the_layers_on_a_gpu(features):
    torch.set_float32_matmul_precision("highest")
    compare(torch.device("cuda"), 1e-4, features=features, rows=768, simplex=8)
    compare(torch.device("cuda"), 0.1, features=features, rows=10, simplex=8, dtype=torch.bfloat16)


if __name__ == "__main__":
    # More rows than one program handles; neither rows nor features are a power of two.
    compare(torch.device("cpu"), features=24, rows=202, simplex=8)
    compare(torch.device("cpu"), features=48, rows=18, simplex=2)
    compare(torch.device("cpu"), 0.1, features=24, rows=18, simplex=8, dtype=torch.bfloat16)

"""The kernels equal the eager operators: checked with Triton's interpreter, and on a GPU if there is one."""

import pytest
import torch

from lockstep.workloads.cricket.network import operators as used_by
from lockstep.workloads.cricket.network.edges import Edges
from lockstep.workloads.cricket.network.operators import BallAttention, GapAttention, MatchupAttention

RELATIONS, TARGETS = 3, 2


def random_edges(samples, length, device):
    """Random edges; the first ball has no incoming edge, and one node of the first sample reads no ball."""
    numbers = torch.Generator().manual_seed(7)
    allowed = torch.rand(samples, RELATIONS, length, length, generator=numbers) < 0.3
    allowed[:, :, 0] = False
    pair = torch.randint(3, (samples, length), generator=numbers).sort(1).values
    begins = torch.searchsorted(pair, pair)
    players = torch.rand(samples, TARGETS, length, generator=numbers) < 0.5
    players[0, 1] = False
    parts = {
        "present": players[:, 0],
        "allowed": allowed,
        "number": torch.rand(RELATIONS, length, length, generator=numbers),
        "own_number": torch.rand(samples, RELATIONS, length, generator=numbers),
        "distant": torch.zeros(length, length),
        "order": torch.rand(samples, length, generator=numbers).argsort(1),
        "rank": torch.arange(length) - begins,
        "players": players,
        "informing": players[:, :1],
    }
    return Edges(**{name: part.to(device) for name, part in parts.items()})


def results(device, samples, length, channels, heads, fuse):
    """The output of every operator and every gradient, by name."""
    torch.manual_seed(3)
    balls = torch.randn(samples, length, channels).to(device).requires_grad_()
    nodes = torch.randn(samples, TARGETS, channels).to(device).requires_grad_()
    edges = random_edges(samples, length, device)
    operators = {
        "gaps": (GapAttention(RELATIONS, channels, heads), lambda operator: operator(balls, edges)),
        "matchups": (MatchupAttention(channels, heads), lambda operator: operator(balls, edges)),
        "nodes": (BallAttention(TARGETS, channels, heads), lambda operator: operator(balls, nodes, edges.players)),
        "one mask": (BallAttention(TARGETS, channels, heads), lambda operator: operator(balls, nodes, edges.informing)),
    }
    found = {}
    fits, used_by.kernels_usable = used_by.kernels_usable, lambda _: fuse
    try:
        for name, (operator, call) in operators.items():
            for parameter in operator.parameters():
                torch.nn.init.normal_(parameter, std=0.5)
            out = call(operator.to(device))
            leaves = {"balls": balls, **dict(operator.named_parameters())}
            if "nodes" in name or "mask" in name:
                leaves["nodes"] = nodes
            gradient = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(device)
            found[name] = out.detach()
            found |= {
                f"{name}, {leaf}": g
                for leaf, g in zip(leaves, torch.autograd.grad(out, leaves.values(), gradient), strict=True)
            }
    finally:
        used_by.kernels_usable = fits
    return found


def compare(device, *sizes):
    """Compare kernels and operators, relative to the largest number of each tensor."""
    ours, theirs = results(device, *sizes, fuse=True), results(device, *sizes, fuse=False)
    for name, expected in theirs.items():
        largest = float(expected.abs().max())
        assert largest > 0.01, name
        assert float((ours[name] - expected).abs().max()) < 3e-5 * largest, name


def test_kernels_equal_the_eager_operators(interpret):
    interpret(__file__)


def test_the_kernels_can_be_built_for_a_gpu(build_kernels):
    from lockstep.workloads.cricket.network import fused_triton

    names = [f"{what}_{way}" for what in ("gap", "node", "matchup") for way in ("forward", "backward")]
    built = build_kernels(fused_triton, *names)
    results(torch.device("cpu"), 2, 37, 16, 2, fuse=True)
    assert sorted(set(built)) == sorted(names)


@pytest.mark.gpu
@pytest.mark.parametrize("length", [24, 72, 143])
def test_kernels_equal_the_eager_operators_on_a_gpu(length):
    torch.set_float32_matmul_precision("highest")
    compare(torch.device("cuda"), 16, length, 128, 4)


if __name__ == "__main__":
    compare(torch.device("cpu"), 2, 37, 16, 2)
    compare(torch.device("cpu"), 1, 9, 32, 2)

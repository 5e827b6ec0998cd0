"""The GPU kernel draws the same words as `random`: tested in Triton's interpreter, and on a GPU if there is one."""

import pytest
import torch

from lockstep.compute import random

SEED = 2**40 + 2**31 + 5


def counters(device):
    """Index, step and draw in the shapes that occur, with the largest words."""
    index, step = torch.arange(5, device=device) + 2**32 - 5, torch.tensor(2**31 + 7, device=device)
    draws = torch.arange(300, device=device)
    updates = torch.arange(3, device=device)[:, None, None] + 2**32 - 3
    yield index, step, 0
    yield index[:, None], step, draws
    yield index[:, None], 3, draws
    yield index[:, None], updates, draws.view(1, -1)
    yield index.view(1, -1, 1, 1), updates.view(-1, 1, 1, 1), draws.view(6, 50)
    yield index[0], step, 2
    yield index[:0], step, 1
    yield index.expand(7, 5).t(), step, torch.arange(7, device=device)


def compare(device):
    """Every word equals the host's."""
    for there, here in zip(counters(device), counters(torch.device("cpu")), strict=True):
        wanted = random.random_words(SEED, "test", *here)
        fits, random.kernels_usable = random.kernels_usable, lambda _: True
        try:
            found = random.random_words(SEED, "test", *there)
        finally:
            random.kernels_usable = fits
        assert all(torch.equal(one.cpu(), other) for one, other in zip(found, wanted, strict=True)), here
    assert random.kernel_trouble(device) is None


def test_the_kernel_draws_the_same_words(interpret):
    interpret(__file__)


def test_the_kernel_can_be_built_for_a_gpu(build_kernels, monkeypatch):
    from lockstep.compute import random_triton

    built = build_kernels(random_triton, "fill_words")
    monkeypatch.setattr(random, "kernels_usable", lambda device: True)
    random.random_words(SEED, "test", torch.arange(5)[:, None], 3, torch.arange(300))
    assert built == ["fill_words"]


@pytest.mark.gpu
def test_the_kernel_draws_the_same_words_on_a_gpu():
    compare(torch.device("cuda"))


if __name__ == "__main__":
    compare(torch.device("cpu"))

"""Bulk random numbers: the right distributions, independent of the rank that draws them, and never repeated.

The GPU kernels are compared with the eager draws in Triton's interpreter and, if there is one, on a GPU.
"""

import pytest
import torch

from lockstep.algorithms.tdmpc2 import noise


def test_normals_have_the_moments_of_a_normal_distribution():
    numbers = noise.normals(1, "test", torch.arange(2), 3, 50_001)
    assert numbers.shape == (2, 50_001)
    for power, expected, tolerance in ((1, 0.0, 0.02), (2, 1.0, 0.03), (3, 0.0, 0.1), (4, 3.0, 0.2)):
        assert abs(float(numbers.pow(power).mean()) - expected) < tolerance
    # The two numbers of a pair share a radius, but must not be correlated.
    assert abs(float((numbers[:, :-1:2] * numbers[:, 1::2]).mean())) < 0.02


def test_uniforms_fill_the_range():
    numbers = noise.uniforms(1, "test", torch.arange(1), 0, 40_000)
    counts = torch.histc(numbers, 10, 0.0, 1.0)
    assert float(numbers.min()) >= 0 and float(numbers.max()) < 1 and float((counts - 4000).abs().max()) < 300


def test_draws_depend_on_index_step_and_purpose_but_not_on_the_rest_of_the_batch():
    together = noise.normals(5, "test", torch.arange(4), torch.tensor(7), 10)
    assert torch.equal(together[2:3], noise.normals(5, "test", torch.tensor([2]), 7, 10))
    others = [("other", 5, 7), ("test", 6, 7), ("test", 5, 8)]
    for purpose, seed, step in others:
        assert not torch.equal(together, noise.normals(seed, purpose, torch.arange(4), step, 10))
    assert len(set(together.flatten().tolist())) == 40


def test_dropout_zeroes_its_share_and_scales_the_rest():
    factors = noise.kept(3, "test", torch.arange(2), 1, 100_000, dropout=0.25)
    torch.testing.assert_close(factors.unique(), torch.tensor([0.0, 4 / 3]))
    assert abs(float((factors == 0).float().mean()) - 0.25) < 0.005


def test_pairs_are_of_different_members_and_all_come_up_equally():
    pairs = noise.pair(2, "test", torch.arange(20_000), 5)
    counts = torch.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25).view(5, 5)
    assert counts.diagonal().tolist() == [0] * 5
    assert int(counts[~torch.eye(5, dtype=torch.bool)].min()) > 900 and int(counts.max()) < 1100
    assert noise.pair(2, "test", torch.tensor(3), 1).tolist() == [0, 0]
    assert sorted(noise.pair(2, "test", torch.tensor(3), 2).tolist()) == [0, 1]


def compare(device, count):
    """Kernels draw the host's numbers: dropout factors to the bit, normal numbers up to rounding."""

    def draws(where):
        index, step = torch.arange(3, device=where) + 2**32 - 3, torch.tensor(2**31 + 7, device=where)
        normals = noise.normals(2**40 + 2**31 + 5, "test", index, step, count)
        return normals.cpu(), noise.kept(2**40 + 2**31 + 5, "test", index, step, count, 0.01).cpu()

    normals, kept = draws(torch.device("cpu"))
    fits, noise.kernels_usable = noise.kernels_usable, lambda _: True
    try:
        found, found_kept = draws(device)
    finally:
        noise.kernels_usable = fits
    torch.testing.assert_close(found, normals, rtol=1e-4, atol=1e-5)
    assert torch.equal(found_kept, kept) and 0 < int((kept == 0).sum()) < count


def test_the_kernels_draw_the_same_numbers(interpret):
    interpret(__file__)


def test_the_kernels_can_be_built_for_a_gpu(build_kernels, monkeypatch):
    from lockstep.algorithms.tdmpc2 import noise_triton

    built = build_kernels(noise_triton, "draw_normals", "draw_kept")
    monkeypatch.setattr(noise, "kernels_usable", lambda device: True)
    noise.normals(2**40 + 5, "test", torch.arange(3), torch.tensor(7), 1001)
    noise.kept(2**40 + 5, "test", torch.arange(3), torch.tensor(7), 1001, 0.01)
    assert built == ["draw_normals", "draw_kept"]


@pytest.mark.gpu
def test_the_kernels_draw_the_same_numbers_on_a_gpu():
    compare(torch.device("cuda"), 1_000_003)


if __name__ == "__main__":
    compare(torch.device("cpu"), 3001)

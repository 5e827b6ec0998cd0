"""Which computations give a row the same bits whatever stands beside it."""

import pytest
import torch
from torch.nn import functional

from lockstep.compute.row_invariance import (
    _CORRECTLY_ROUNDED,
    _VECTORS_ALWAYS,
    rounds_ends_alike,
    same_bits_in_groups,
    unseen,
)

ROWS = torch.randn(4096, generator=torch.Generator().manual_seed(0))
TWO = {"add", "sub", "rsub", "mul", "mul_", "div", "div_", "maximum", "minimum"}
NOT_OF_ONE_NUMBER = {"max_pool2d_with_indices", "add_", "relu_", "clamp_", "mul_", "div_"}


@pytest.mark.parametrize("name", sorted({*_CORRECTLY_ROUNDED.split(), *_VECTORS_ALWAYS.split()} - NOT_OF_ONE_NUMBER))
def test_trusted_functions_do_not_depend_on_the_place_of_an_element(name):
    def apply(rows):
        function = getattr(torch, name) if hasattr(torch, name) else getattr(functional, name)
        rows = rows.abs() if name in ("log", "log1p", "sqrt") else rows
        bounds = {"clamp": (-1.0, 1.0), "clamp_min": (0.0,), "clamp_max": (0.0,)}.get(name, ())
        return function(rows, *((rows * 1.7 + 0.1,) if name in TWO else bounds))

    whole = apply(ROWS)
    for size in (1, 3, 4, 7, 13, 20):
        assert torch.equal(torch.cat([apply(part) for part in ROWS.split(size)]), whole)


@pytest.mark.parametrize(("size", "trusted"), [(64, True), (128, True), (4, False), (65, False)])
def test_a_function_that_rounds_leftover_elements_differently_is_trusted_with_whole_vectors_only(size, trusted):
    # All zeros, so that a trial alone would find nothing.
    assert same_bits_in_groups(lambda rows: (torch.sigmoid(rows),), [torch.zeros(2 * size)], 2) is trusted


def test_copies_and_exact_arithmetic_are_trusted():
    rows = torch.randn(14, 3, generator=torch.Generator().manual_seed(0))
    assert same_bits_in_groups(lambda part: (part.relu()[:, :2].clone() * 3 - 1,), [rows], 7)


def test_a_sum_that_depends_on_the_number_of_rows_is_found_although_the_result_hides_it():
    class Sum(torch.nn.Module):
        def forward(self, rows):
            # In the last bit, and rounded away afterwards.
            return (rows.sum(1) * 0.0,) if len(rows) < 4 else (rows.flip(1).cumsum(1)[:, -1] * 0.0,)

    rows = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    assert not same_bits_in_groups(Sum(), [rows], 2)


def test_a_scaled_sum_is_no_plain_one():
    assert same_bits_in_groups(lambda rows: (torch.add(rows, rows),), [torch.zeros(6)], 2)
    assert not same_bits_in_groups(lambda rows: (torch.add(rows, rows, alpha=0.3),), [torch.zeros(6)], 2)
    assert not same_bits_in_groups(lambda rows: (torch.sub(rows, rows, alpha=0.3),), [torch.zeros(6)], 2)


def test_what_is_computed_from_weights_alone_does_not_matter():
    weights = torch.rand(5, generator=torch.Generator().manual_seed(0))
    assert same_bits_in_groups(lambda rows: (rows * weights.rsqrt(),), [torch.ones(6, 5)], 2)


def test_a_single_number_computed_from_weights_is_compared_too():
    temperature = torch.tensor(0.3)
    assert same_bits_in_groups(lambda rows: (rows * torch.sigmoid(temperature),), [torch.ones(6, 5)], 2)


def test_a_function_that_rounds_the_end_of_a_vector_differently_is_found():
    def bent(values):
        # As a processor does: the last few elements by other instructions, in the last bit and not of every number.
        result, ends = values.clone(), values.shape[-1] // 16 * 16
        end = result[..., ends:]
        result[..., ends:] = torch.where(values[..., ends:] > 4, end.nextafter(end + 1), end)
        return result

    assert rounds_ends_alike(torch.abs)
    assert not rounds_ends_alike(bent)


def test_what_is_unseen_is_not_compared():
    def hidden(rows):
        with unseen():
            return (rows.sigmoid(),)

    assert same_bits_in_groups(hidden, [torch.zeros(6)], 2)
    assert not same_bits_in_groups(lambda rows: (rows.sigmoid(),), [torch.zeros(6)], 2)

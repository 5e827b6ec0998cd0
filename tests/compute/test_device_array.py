"""An array on a device answers NumPy's functions as NumPy does, in values and in types."""

import numpy as np
import pytest
import torch

from lockstep.compute.device_array import DeviceArray, array_of, look_up, tensor_of

INTEGERS = np.array([[3, -4, 0, 7], [1, 5, -2, 6]])
NARROW = INTEGERS.astype(np.int16)
FLOATS = np.array([[0.5, -1.25, 2.0, 0.0], [3.5, 1.0, -0.75, 4.0]], np.float32)
FLAGS = INTEGERS > 0

EXPRESSIONS = {
    "a quotient of integers": lambda i, n, f, b: i / 6,
    "an integer and a float": lambda i, n, f, b: i * 0.7,
    "narrow and wide integers": lambda i, n, f, b: n + i,
    "a narrow integer and a number": lambda i, n, f, b: n + 1,
    "a number first": lambda i, n, f, b: 1 - i,
    "single precision and a number": lambda i, n, f, b: f / 3,
    "single precision and integers": lambda i, n, f, b: f + i,
    "whole quotients of negative numbers": lambda i, n, f, b: i // 3,
    "remainders of negative numbers": lambda i, n, f, b: i % 3,
    "flags as numbers": lambda i, n, f, b: b * i,
    "flags": lambda i, n, f, b: (b & (i != 5)) | ~b ^ (f <= 1),
    "bounds": lambda i, n, f, b: np.minimum(np.maximum(i, 0), 5.5),
    "a bound first": lambda i, n, f, b: np.maximum(0.5, np.minimum(5, i)),
    "bounds by an array": lambda i, n, f, b: np.minimum(i, f),
    "clipped": lambda i, n, f, b: np.clip(i / 2, -1, 1),
    "clipped from below": lambda i, n, f, b: (2 - i).clip(min=0),
    "clipped by a fraction": lambda i, n, f, b: i.clip(min=0.3),
    "a choice": lambda i, n, f, b: np.where(b, i, 0),
    "a choice of numbers": lambda i, n, f, b: np.where(b, 0.7, 0),
    "a choice of a whole number and another": lambda i, n, f, b: np.where(b, 0, 0.7),
    "a choice of types": lambda i, n, f, b: np.where(b, n, f),
    "curves": lambda i, n, f, b: np.log1p(np.exp(f)),
    "a negative": lambda i, n, f, b: -f,
    "a sum of flags": lambda i, n, f, b: b.sum(1),
    "a sum of narrow integers": lambda i, n, f, b: n.sum(1),
    "a sum in double precision": lambda i, n, f, b: f.sum(1, dtype=np.float64),
    "the whole sum": lambda i, n, f, b: i.sum(),
    "running sums": lambda i, n, f, b: b.cumsum(1),
    "running sums of nothing": lambda i, n, f, b: f[:, :0].cumsum(1),
    "running sums of floats": lambda i, n, f, b: f.cumsum(1),
    "the least": lambda i, n, f, b: i.min(1, initial=2),
    "the least of nothing": lambda i, n, f, b: n[:, :0].min(1, initial=2),
    "so far all numbers": lambda i, n, f, b: np.logical_and.accumulate(i),
    "so far all": lambda i, n, f, b: np.flip(np.logical_and.accumulate(np.flip(b, 1), 1), 1),
    "cells": lambda i, n, f, b: np.searchsorted([0.5, 2.0], f, side="right"),
    "cells by an array": lambda i, n, f, b: np.searchsorted(np.array([1, 3], like=i), i),
    "cells of integers": lambda i, n, f, b: np.searchsorted((0.5, 2.5), i),
    "members": lambda i, n, f, b: np.isin(i, [3, 5]),
    "a stack": lambda i, n, f, b: np.stack([i, n, f], 2),
    "a stack in a row": lambda i, n, f, b: np.stack([i[0], i[1]], 1).reshape(-1),
    "a product": lambda i, n, f, b: np.einsum("nt,nt->n", f, f),
    "where it is true": lambda i, n, f, b: np.flatnonzero(b[1]),
    "an element of each row": lambda i, n, f, b: np.take_along_axis(i, np.array([[2], [0]], like=i), 1),
    "a table": lambda i, n, f, b: look_up(np.array([1.5, 2.5, 3.5]), i % 3),
    "rows of a table": lambda i, n, f, b: look_up(np.eye(3), i[0] % 3),
    "another type": lambda i, n, f, b: b.astype(np.float16),
    "slices": lambda i, n, f, b: i[:, 1::2],
    "a narrow index": lambda i, n, f, b: i[:, n[0] % 4],
    "a mask": lambda i, n, f, b: i[b],
    "columns by number": lambda i, n, f, b: i[:, [2, 0]],
    "zeros": lambda i, n, f, b: np.zeros((2, 3), np.int16, like=i),
    "zeros without a type": lambda i, n, f, b: np.zeros(3, like=i),
    "ones": lambda i, n, f, b: np.ones((2, 1), bool, like=i),
    "a number everywhere": lambda i, n, f, b: np.full(3, 7, like=i),
    "a number of a type everywhere": lambda i, n, f, b: np.full((2,), 7, float, like=i),
    "a range": lambda i, n, f, b: np.arange(4, like=i),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_and_types_are_those_of_numpy(name):
    inputs = [values.copy() for values in (INTEGERS, NARROW, FLOATS, FLAGS)]
    expected = np.asarray(EXPRESSIONS[name](*inputs))
    found = EXPRESSIONS[name](*(DeviceArray(torch.as_tensor(values)) for values in inputs))
    assert isinstance(found, DeviceArray)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    # Curves may differ in the last bit.
    assert np.allclose(found.tensor.numpy(), expected, rtol=1e-6 if name == "curves" else 0, atol=0)


def changed(values):
    values[:, 0] = 9
    values[np.array([0, 1], like=values), np.array([3, 2], like=values)] += 5
    values[1, :2] = np.array([1.0, 2.0], like=values)
    values[values > 8] = 0
    return values


def test_elements_are_replaced_in_place():
    found = DeviceArray(torch.as_tensor(NARROW.copy()))
    assert changed(found).tolist() == changed(NARROW.copy()).tolist() and found.dtype == np.int16


def test_what_numpy_refuses_is_refused():
    narrow, wide = DeviceArray(torch.as_tensor(NARROW.copy())), DeviceArray(torch.as_tensor(INTEGERS.copy()))
    with pytest.raises(OverflowError, match="100000 is not a number of type int16"):
        narrow + 100_000
    with pytest.raises(TypeError, match="float64 does not fit into int64"):
        wide += 0.5
    with pytest.raises(TypeError):
        own = INTEGERS.copy()
        own += wide
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(wide == 3)
    assert bool(wide.sum() == INTEGERS.sum())
    copy = wide.astype(np.int64)
    copy += 1
    assert wide.tolist() == INTEGERS.tolist()


def test_an_array_of_numpy_takes_part_but_no_device_array_is_copied_back():
    own = DeviceArray(torch.as_tensor(INTEGERS))
    assert (INTEGERS + own).tolist() == (2 * INTEGERS).tolist()
    with pytest.raises(TypeError, match="does not become one of NumPy by itself"):
        np.asarray(own)
    with pytest.raises(TypeError, match="fft"):
        np.fft.fft(own)


def test_on_a_cpu_arrays_are_those_of_numpy_unless_they_are_to_be_like_another():
    tensor = torch.arange(3)
    assert isinstance(array_of(tensor), np.ndarray) and isinstance(array_of(tensor, like=INTEGERS), np.ndarray)
    found = array_of(tensor, like=DeviceArray(tensor))
    assert isinstance(found, DeviceArray) and tensor_of(found) is tensor
    assert tensor_of(np.arange(3)).tolist() == [0, 1, 2] and int(found[2]) == 2 and len(found) == 3

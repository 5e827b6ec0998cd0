"""Broken datasets, losses and modules: one line that names the item, or what was returned, and what to do."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset

from lockstep.errors import RunFailed, UserError

GOOD = [(torch.zeros(3), number % 2) for number in range(20)]


class Stream(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


class Raising(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, number):
        if number == 17:
            raise OSError("disk on fire\nmore")
        return GOOD[number]


class Lying(Raising):
    """Has fewer items than it says."""

    def __getitem__(self, number):
        return GOOD[:10][number]


def net():
    return nn.Linear(3, 2)


def with_item(number, item):
    return [*GOOD[:number], item, *GOOD[number + 1 :]]


DATA = [
    ([], "has no items"),
    (Stream([]), "has no items"),
    (with_item(17, (torch.zeros(4), 1)), r"item 17: \[0\] shape \(4,\), and \(3,\) in item 0; make all items one size"),
    (Stream(with_item(17, (torch.zeros(4), 1))), r"item 17: \[0\] shape \(4,\), and \(3,\) in item 0"),
    (with_item(3, (torch.full((3,), float("nan")), 1)), r"item 3: \[0\] is not a finite number"),
    (with_item(3, (np.array([1.0, np.inf, 0.0]), 1)), r"item 3: \[0\] is not a finite number"),
    (with_item(5, (torch.zeros(3), 1.0)), r"item 5: \[1\] type float32, and int64 in item 0"),
    (with_item(5, (torch.zeros(3),)), r"item 5: has the parts \[0\], and \[0\], \[1\] in item 0"),
    (with_item(5, {"x": torch.zeros(3), "y": 1}), r"item 5: has the parts \['x'\], \['y'\]"),
    (with_item(0, (torch.zeros(3), "cat")), r"item 0: \[1\] is a str; allowed: tensors, arrays, numbers"),
    (with_item(2, None), "item 2: is a NoneType; allowed: tensors"),
    ([{"image": torch.zeros(3)}] * 9, "the keys image; allowed: inputs, and one of target, targets, label"),
    ([(torch.zeros(3),)] * 9, r"tuples of 1; allowed: \(inputs..., target\)"),
    (Raising(), "item 17: raises OSError: disk on fire; correct it"),
    (Lying(), "item 10: raises IndexError"),
    (Stream(with_item(8, ValueError("torn page"))), "item 8: raises ValueError: torn page"),
    (object(), "is a object; allowed: a torch Dataset, or a function that returns one"),
    ((item for item in GOOD), "is an iterator, which can be read only once; give a function"),
]


@pytest.mark.parametrize(("data", "message"), DATA, ids=[message[:40] for _, message in DATA])
@pytest.mark.parametrize("memory_gb", [2, 0], ids=["in memory", "streamed"])
def test_a_broken_dataset_is_told_in_one_line_that_names_the_item(build, data, message, memory_gb):
    with pytest.raises((UserError, RunFailed), match=message) as told:
        learner = build(net, data, GOOD, memory_gb=memory_gb)
        for _ in range(8):
            learner.step()
    assert str(told.value).startswith("training data: ") or "given/" in str(told.value)
    assert len(str(told.value).splitlines()) == 1


def test_broken_validation_data_is_told_as_such(build):
    with pytest.raises(UserError, match=r"^validation data: item 17: \[0\] shape \(4,\)"):
        build(net, GOOD, with_item(17, (torch.zeros(4), 1)))


def test_an_error_in_a_worker_process_is_the_same_line(build):
    with pytest.raises(RunFailed, match=r"^training data: item 17: raises OSError: disk on fire; correct it"):
        build(net, Raising(), GOOD, data_workers=1)


class Dying(Raising):
    def __getitem__(self, number):
        import os
        import signal

        from torch.utils.data import get_worker_info

        if number == 17 and get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return GOOD[number]


def test_a_worker_that_is_killed_is_told(build):
    with pytest.raises(RunFailed, match=r"^training data: a worker process ended \(.*; the same command continues"):
        build(net, Dying(), GOOD, data_workers=1)


LOSSES = [
    (lambda p, t: F.cross_entropy(p, t), 'loss: returned one number for the whole batch; use reduction="none"'),
    (lambda p, t: (p - 1).square(), r"loss: returned shape \(3, 2\); expected is one number for each sample"),
    (lambda p, t: 3.0, "loss: returned float; expected is one number for each sample"),
    ("mse", r"loss mse: the model returned of shape \(3, 2\) .* for targets of shape \(3,\)"),
]


@pytest.mark.parametrize(("loss", "message"), LOSSES, ids=[message[:30] for _, message in LOSSES])
def test_a_loss_that_gives_no_number_for_each_sample_is_refused(build, loss, message):
    learner = build(net, GOOD, GOOD, loss=loss, sync="exact")
    with pytest.raises(UserError, match=message):
        learner.step()


def test_a_metric_is_refused_alike(build):
    learner = build(net, GOOD, GOOD, metrics={"best": lambda p, t: p.max()})
    with pytest.raises(UserError, match="metric best: returned one number for the whole batch"):
        learner.step()


def test_classes_beyond_the_logits_are_told(build):
    data = [(torch.zeros(3), number % 3) for number in range(20)]
    with pytest.raises(UserError, match="targets from 0 to 2, and the model returned 2 logits"):
        build(net, data, data).step()


MODELS = [
    (lambda: 3, "gives a int; allowed: a torch.nn.Module, or a function that returns one"),
    (lambda: [][0], "the model cannot be made .IndexError: list index out of range"),
    (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), "BatchNorm1d, whose moments depend on the rank's batch"),
    (nn.Linear(3, 2).requires_grad_(False), "has no weights to train"),
    (
        nn.Sequential(nn.AlphaDropout(), nn.Linear(3, 2)),
        "AlphaDropout, whose draws depend on the ranks",
    ),
]


@pytest.mark.parametrize(("model", "message"), MODELS, ids=[message[:30] for _, message in MODELS])
def test_a_module_that_cannot_be_trained_is_refused(build, model, message):
    with pytest.raises(UserError, match=message):
        build(model, GOOD, GOOD)

"""Data in memory and streamed: every sample once in each epoch, and the same bits however it is read."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from lockstep.compute import random
from lockstep.storage.checkpoint import weights_hash

COUNT = 43


def table(count=COUNT, seed=1):
    number = torch.arange(count)
    inputs = random.normal(seed, "inputs", number[:, None], 0, torch.arange(3))
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())


class Numbers(IterableDataset):
    """Items in their own order, whose input tells their number."""

    def __init__(self, count=COUNT):
        self.count, self.epochs = count, []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        for number in range(self.count):
            yield torch.full((3,), float(number)), number % 2


class Augmented(Dataset):
    """Items that are drawn anew every time, from torch's own generator."""

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        return torch.randn(3), number % 2


def net():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 2))


class Recorder(nn.Module):
    """Remembers the inputs that it was trained on."""

    def __init__(self):
        super().__init__()
        self.linear, self.seen = nn.Linear(3, 2), []

    def forward(self, inputs):
        if self.training:
            self.seen.append(inputs.detach().clone())
        return self.linear(inputs)


def trained(learner, updates):
    for _ in range(updates):
        learner.step()
    return weights_hash(dict(learner.model.state_dict()))


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_data_trains_to_the_same_bits_as_data_in_memory(build, workers):
    common = {"sync": "exact", "batch_size": 12}
    kept = build(net, table(), table(20, 2), **common)
    streamed = build(net, table(), table(20, 2), memory_gb=0, data_workers=workers, **common)
    assert trained(streamed, 9) == trained(kept, 9)
    assert streamed.evaluate(10**9, 0).measured == kept.evaluate(10**9, 0).measured


@pytest.mark.parametrize("data", [table, Numbers, Augmented])
@pytest.mark.parametrize("before", [2, 4, 7])
def test_a_stream_resumes_in_the_middle_of_an_epoch_to_the_same_bits(build, data, before):
    common = {"batch_size": 12, "memory_gb": 0}  # four batches an epoch
    undisturbed = trained(build(net, data(), table(20, 2), **common), 9)
    learner = build(net, data(), table(20, 2), **common)
    trained(learner, before)
    resumed = build(net, data(), table(20, 2), **common)
    resumed.load(learner.state())
    assert trained(resumed, 9 - before) == undisturbed


def test_an_iterable_dataset_gives_every_item_once_an_epoch_and_in_its_order(build):
    data = Numbers()
    learner = build(Recorder(), data, table(20, 2), memory_gb=0, batch_size=12)
    trained(learner, 8)
    seen = learner.model.network.net.seen
    for epoch in range(2):
        # Four batches of 10 or 11 items; a rank of four lanes has twelve places, and the rest is padding.
        batches = [set(batch[:, 0].int().tolist()) for batch in seen[4 * epoch : 4 * epoch + 4]]
        assert [len(batch) for batch in batches] == [10, 11, 11, 11]
        assert [min(batch) for batch in batches] == [0, 10, 21, 32]
        assert set.union(*batches) == set(range(COUNT))
    assert data.epochs[-1] == 1


def test_small_iterable_data_is_read_into_memory_and_shuffled(build):
    learner = build(Recorder(), Numbers(), table(20, 2), batch_size=12)
    trained(learner, 4)
    seen = [int(value) for batch in learner.model.network.net.seen for value in batch[:, 0]]
    assert set(seen) == set(range(COUNT)) and seen[:12] != sorted(seen[:12])


def test_items_that_are_drawn_anew_are_not_kept_and_follow_from_the_seed(build):
    model = Recorder()

    def seen(**settings):
        learner = build(model, Augmented(), table(20, 2), batch_size=12, **settings)
        trained(learner, 8)
        return torch.cat(learner.model.network.net.seen)

    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = seen()
    assert torch.equal(torch.get_rng_state(), before), "the user's own generator is not moved"
    assert torch.equal(first, seen(data_workers=2)), "the worker that reads an item does not matter"
    assert not torch.equal(first, seen(seed=7))
    one, other = first[:48].flatten().tolist(), first[48:].flatten().tolist()
    assert not set(one) & set(other), "the second epoch draws new ones"


def conftest():
    """The builder of these tests, on a rank that pytest did not start."""
    spec = importlib.util.spec_from_file_location("fit_conftest", Path(__file__).with_name("conftest.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shared_out(world, memory_gb):
    """Train on ranks; returns the hash. Called by every rank."""
    learner = conftest().build(
        net, Numbers(), table(20, 2), world=world, memory_gb=memory_gb, sync="exact", batch_size=12
    )
    found = trained(learner, 6)
    return found, learner.evaluate(10**9, 0).measured


@pytest.mark.parametrize("memory_gb", [0, 1])
def test_any_number_of_ranks_shares_out_an_iterable_dataset_to_the_same_bits(ranks, memory_gb):
    answers = [ranks.run(shared_out, memory_gb, ranks=size) for size in (1, 2, 3)]
    assert len({str(answer) for found in answers for answer in found}) == 1


def test_inputs_may_be_several_or_named(build):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.LazyLinear(2)

        def forward(self, left, right):
            return self.linear(torch.cat([left, right["deep"]], 1))

    def item(number):
        return torch.ones(2) * number, {"deep": torch.ones(1) * number}, number % 2

    tuples = [item(number) for number in range(20)]
    dicts = [{"left": left, "right": right, "label": label} for left, right, label in tuples]
    assert trained(build(Pair, tuples, tuples), 3) == trained(build(Pair, dicts, dicts), 3)

"""The gradients of several lanes in one pass: the bits of each lane by itself, or each by itself."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from lockstep.cli.short_runs import open_learner
from lockstep.compute.machine import is_arm
from lockstep.compute.ops.convolution import Conv3x3
from lockstep.compute.ops.layer_norm import LayerNorm
from lockstep.compute.ops.lstm import LSTM
from lockstep.compute.precision import Precision
from lockstep.config.sources import to_yaml
from lockstep.distributed.gradients import (
    Apart,
    FlatGradient,
    Together,
    Tried,
    cohort_gradients,
    lane_batches,
    lane_products,
)
from lockstep.distributed.world import World
from lockstep.run.arithmetic import restored
from lockstep.workloads import registry

FP32 = Precision("fp32", torch.device("cpu"))
LANES, ROWS = 4, 64


@dataclass
class Rows:
    """Some rows of a table that all lanes share."""

    table: Tensor
    index: Tensor


class Loss(nn.Module):
    """The share of a network's squared outputs, with them as a metric."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, batch):
        loss = self.network(batch.table[batch.index]).square().sum() / 1000
        return loss, {"loss": loss.detach()}


@pytest.fixture(autouse=True)
def as_in_a_run():
    """One thread, and on Arm processors without oneDNN, as runs have it."""
    with restored():
        torch.set_num_threads(1)
        torch.backends.mkldnn.enabled = not is_arm()
        yield


# Whether sums have the same bits in one pass is a matter of the processor's kernels; with these libraries they have.
seen_to_agree = pytest.mark.skipif(
    not (is_arm() or torch.backends.mkl.is_available()), reason="kernels may be chosen by the number of rows"
)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def lanes(*shape):
    """A cohort for each lane, of two micro-batches each."""
    table = numbers(LANES * 2 * ROWS, *shape)
    index = torch.randperm(len(table), generator=torch.Generator().manual_seed(1)).view(LANES, 2, ROWS)
    return [[Rows(table, part) for part in lane] for lane in index]


def apart_from(loss, flat, rows):
    return Apart(loss, flat, rows, FP32, lane_products(loss))


def computed(network, batches):
    """Of a network's loss: how lanes are computed, their gradients by themselves, and those that are used."""
    torch.manual_seed(0)
    loss = Loss(network)
    flat = FlatGradient(list(loss.parameters()))
    rows, alone = (flat.vector.new_zeros(LANES, len(flat.vector)) for _ in range(2))
    way = cohort_gradients(loss, flat, rows, FP32, one_pass=True)
    expected = apart_from(loss, flat, alone)(batches)
    # The first call tries both ways, the second tries again, and the third is the first that need not try.
    for _ in range(3):
        rows.fill_(torch.nan)
        found = way(batches)
        assert torch.equal(rows, alone)
        assert torch.equal(found.values, expected.values)
    return way


class Sequences(nn.Module):
    """An LSTM over rows of 8 steps, of which some start an episode."""

    def __init__(self):
        super().__init__()
        self.lstm = LSTM(16, 64)
        self.lstm.initialise(torch.Generator().manual_seed(0))

    def forward(self, rows):
        inputs = rows.transpose(0, 1)
        keep = (inputs[..., 0] < 1.0).float()
        state = inputs.new_zeros(inputs.shape[1], 64)
        return self.lstm(inputs, (state, state), keep)[0]


NETWORKS = {
    "linear": (lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3)), (20,)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(20, 32), LayerNorm(32), nn.Tanh(), nn.Linear(32, 3)), (20,)),
    "convolution": (lambda: nn.Sequential(Conv3x3(3, 8), nn.ReLU(), Conv3x3(8, 8)), (3, 8, 8)),
    "lstm": (Sequences, (8, 16)),
    "one output": (lambda: nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1)), (20,)),
    "many inputs": (lambda: nn.Linear(600, 8), (600,)),
    "three axes": (lambda: nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 1, bias=False)), (5, 20)),
}


@seen_to_agree
@pytest.mark.parametrize("name", NETWORKS)
def test_lanes_in_one_pass_have_the_bits_of_each_by_itself(name):
    network, shape = NETWORKS[name]
    way = computed(network(), lanes(*shape))
    assert isinstance(way, Tried) and way.in_one_pass


class Reads(nn.Linear):
    """Does something else if a value is large."""

    def forward(self, rows):
        return super().forward(rows) * (2.0 if float(rows.max()) > 100 else 1.0)


class Noisy(nn.Linear):
    """Draws from torch's own generator."""

    def forward(self, rows):
        return super().forward(rows) + torch.zeros_like(rows[:, :1]).normal_() * 0


class Marked(nn.Linear):
    """Adds up a lane's rows in another order if there is a lane axis, as a kernel may."""

    def forward(self, rows):
        twice = super().forward(rows)
        return twice if torch._C._functorch.maybe_current_level() is None else twice * (1 + 2**-23)


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(Reads(20, 3), id="reads a value"),
        pytest.param(Noisy(20, 3), id="draws"),
        pytest.param(Marked(20, 3), id="has other bits"),
        pytest.param(nn.Sequential(nn.Linear(20, 3), nn.SELU()), id="leaves elements over"),
    ],
)
def test_what_cannot_be_one_pass_is_computed_lane_by_lane(network):
    batches = lanes(20)
    for lane in batches:
        for batch in lane:
            batch.index = batch.index[:-1].clone()
    way = computed(network, batches)
    assert isinstance(way, Tried) and not way.in_one_pass


def test_batches_that_are_no_data_classes_are_computed_lane_by_lane():
    class Sum(nn.Linear):
        def forward(self, batch):
            return super().forward(batch).sum(), {}

    loss = Sum(4, 1)
    flat = FlatGradient(list(loss.parameters()))
    way = cohort_gradients(loss, flat, flat.vector.new_zeros(LANES, len(flat.vector)), FP32, one_pass=True)
    way([[numbers(8, 4, seed=lane)] for lane in range(LANES)])
    assert not way.in_one_pass


@seen_to_agree
def test_an_error_in_a_later_batch_is_the_lanes_own():
    class Picky(nn.Linear):
        def forward(self, rows):
            if torch._C._functorch.maybe_current_level() is None and bool((rows > 50).any()):
                raise ValueError("a row is larger than 50")
            # As an index out of range would, in one pass.
            return super().forward(rows[torch.where(rows[:, 0] > 50, 1000, torch.arange(len(rows)))])

    batches = lanes(20)
    loss = Loss(Picky(20, 4))
    flat = FlatGradient(list(loss.parameters()))
    way = cohort_gradients(loss, flat, flat.vector.new_zeros(LANES, len(flat.vector)), FP32, one_pass=True)
    for _ in range(3):
        way(batches)
    assert way.in_one_pass
    batches[0][0].table[:, 0] = 60.0
    with pytest.raises(ValueError, match="larger than 50"):
        for _ in range(2):
            way(batches)


@seen_to_agree
def test_frozen_weights_have_no_gradient():
    network = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
    network[0].weight.requires_grad_(False)
    assert computed(network, lanes(20)).in_one_pass


@pytest.mark.parametrize("threads", [1, 2])
def test_several_threads_or_a_single_lane_need_no_trial(threads):
    torch.set_num_threads(threads)
    loss = Loss(nn.Linear(20, 3))
    flat = FlatGradient(list(loss.parameters()))
    rows = flat.vector.new_zeros(1 if threads == 1 else LANES, len(flat.vector))
    assert isinstance(cohort_gradients(loss, flat, rows, FP32, one_pass=True), Apart)


@seen_to_agree
@pytest.mark.parametrize("workload", ["snake", "snakes3v3", "gym"])
def test_workloads_learn_from_all_lanes_in_one_pass(workload):
    chosen = registry.load(workload)
    config = chosen.preset("debug").replace(sync="exact", threads=1, device="cpu")
    learner = open_learner(World(), workload, to_yaml(config))
    learner.step()
    ways = [value._gradients for name, value in vars(learner).items() if name.endswith("_replica")]
    assert ways and all(way.in_one_pass for way in ways)


def test_a_reset_does_not_change_the_bits_of_sequences_beside_it():
    torch.manual_seed(0)
    lstm = LSTM(16, 64)
    lstm.initialise(torch.Generator().manual_seed(0))
    inputs, keep, state = numbers(8, 12, 16), torch.ones(8, 12), numbers(12, 64, seed=1)
    gradients = []
    for reset in (False, True):
        keep[3, 11] = 0.0 if reset else 1.0
        leaf = inputs.clone().requires_grad_()
        outputs, _ = lstm(leaf, (state, state), keep)
        (outputs * numbers(8, 12, 64, seed=2)).sum().backward()
        gradients.append(leaf.grad)
    assert torch.equal(gradients[0][:, :11], gradients[1][:, :11])
    assert not torch.equal(gradients[0][:, 11], gradients[1][:, 11])


def test_together_is_what_the_fields_that_differ_say():
    loss = Loss(nn.Linear(20, 3))
    flat = FlatGradient(list(loss.parameters()))
    rows = flat.vector.new_zeros(LANES, len(flat.vector))
    found = Together(loss, flat, rows, FP32, lane_products(loss))(lane_batches(lanes(20)))
    assert found.names == ("loss",) and found.values.shape == (LANES, 1)
    assert len({row.sum().item() for row in rows}) == LANES


@dataclass
class Weighted(Rows):
    """With a weight that a schedule may leave at zero."""

    weight: Tensor


class LaterLoss(nn.Module):
    """Its layer normalisation has other bits in one pass, which shows once the weight is no longer zero."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(20, 32), nn.LayerNorm(32), nn.Linear(32, 3))

    def forward(self, batch):
        return (self.network(batch.table[batch.index]).square().sum() * batch.weight), {}


@seen_to_agree
def test_gradients_of_zero_prove_nothing():
    torch.manual_seed(0)
    loss, weight = LaterLoss(), torch.zeros(())
    batches = [[Weighted(batch.table, batch.index, weight) for batch in lane] for lane in lanes(20)]
    flat = FlatGradient(list(loss.parameters()))
    rows, alone = (flat.vector.new_zeros(LANES, len(flat.vector)) for _ in range(2))
    way, apart = cohort_gradients(loss, flat, rows, FP32, one_pass=True), apart_from(loss, flat, alone)
    for number in range(1, 18):
        weight.fill_(0.0 if number < 10 else 1.0)
        way(batches)
        apart(batches)
        assert torch.equal(rows, alone)
        assert not way.in_one_pass


@seen_to_agree
def test_batches_of_another_shape_are_tried_for_themselves():
    torch.manual_seed(0)
    loss = Loss(nn.Sequential(nn.Linear(20, 4), nn.GELU()))
    flat = FlatGradient(list(loss.parameters()))
    rows, alone = (flat.vector.new_zeros(LANES, len(flat.vector)) for _ in range(2))
    way, apart = cohort_gradients(loss, flat, rows, FP32, one_pass=True), apart_from(loss, flat, alone)
    whole = lanes(20)
    short = [[Rows(batch.table, batch.index[:5].clone()) for batch in lane] for lane in whole]
    for number in range(1, 12):
        batches = short if number % 5 == 3 else whole
        way(batches)
        apart(batches)
        assert torch.equal(rows, alone)
    passed = {shapes[0][0][1][-1]: trial.passed for shapes, trial in way._trials.items()}
    assert passed == {64: True, 5: False}


def test_lanes_with_other_numbers_of_micro_batches_are_computed_one_by_one():
    batches = lanes(20)
    batches[0] = batches[0][:1]
    assert lane_batches(batches) is None
    assert not computed(nn.Linear(20, 3), batches).in_one_pass


def test_a_field_that_is_missing_in_one_lane_is_no_field_of_all():
    batches = [[Weighted(batch.table, batch.index, torch.ones(())) for batch in lane] for lane in lanes(20)]
    assert lane_batches(batches) is not None
    batches[1][0].weight = None
    assert lane_batches(batches) is None

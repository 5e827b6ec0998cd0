"""A network on the rows of several lanes has the bits that each lane has alone."""

import torch
from torch import nn
from torch.nn import functional

from lockstep.compute.cohorts import cohorts_of
from lockstep.compute.lanewise import Lanewise

CPU = torch.device("cpu")


class Network(nn.Module):
    """Halves its rows, and counts how many it is given at once."""

    def __init__(self, bend=lambda rows: rows):
        super().__init__()
        self.sizes, self._bend = [], bend

    def forward(self, *rows):
        self.sizes.append(len(rows[0]))
        return tuple(self._bend(part / 2) for part in rows)


def test_lanes_are_computed_at_once_where_that_gives_the_same_bits():
    network = Network()
    function = Lanewise(network, network, 4, CPU)
    rows = torch.arange(8.0)
    function.begin(rows)
    network.sizes.clear()
    assert torch.equal(function(rows)[0], rows / 2)
    assert network.sizes == [8]


def test_lanes_are_computed_apart_where_a_bit_depends_on_the_number_of_rows():
    # The smallest change there is, and only in a batch of more than two rows.
    network = Network(lambda rows: rows.nextafter(rows + 1) if len(rows) > 2 else rows)
    function = Lanewise(network, network, 4, CPU)
    rows = torch.zeros(8)
    function.begin(rows)
    network.sizes.clear()
    assert torch.equal(function(rows, rows + 1)[1], torch.full((8,), 0.5))
    assert network.sizes == [2] * 4


def test_a_network_of_zeros_is_tried_again_when_it_has_learned():
    scale = torch.zeros(())
    network = Network(lambda rows: scale * (rows + 1e-7 * len(rows)))
    function = Lanewise(network, network, 2, CPU)
    rows = torch.ones(4)
    for weight, sizes in ((0.0, [4]), (1.0, [2, 2])):
        scale.fill_(weight)
        function.begin(rows)
        network.sizes.clear()
        function(rows)
        assert network.sizes == sizes


def test_trying_draws_no_number_of_the_users_generator_and_keeps_the_rows():
    rows, images = torch.zeros(4), torch.zeros(4, dtype=torch.uint8)
    before = torch.get_rng_state()
    Lanewise(Network(), Network(), 2, CPU).begin(rows, images)
    assert torch.equal(torch.get_rng_state(), before)
    assert not rows.any() and not images.any()


def test_a_single_lane_is_never_tried():
    network = Network()
    Lanewise(network, network, 1, CPU).begin(torch.ones(4))
    assert network.sizes == []


def test_a_compiled_function_is_never_tried_since_that_would_keep_it_from_being_compiled():
    network = Network()
    function = Lanewise(network, network, 4, CPU, compiled=True)
    function.begin(torch.ones(8))
    assert network.sizes == []
    function(torch.ones(8))
    assert network.sizes == [2] * 4


def test_with_several_threads_lanes_are_computed_apart():
    network = Network()
    function = Lanewise(network, network, 4, CPU)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    function.begin(torch.ones(8))
    torch.set_num_threads(threads)
    network.sizes.clear()
    function(torch.ones(8))
    assert network.sizes == [2] * 4


def test_a_lane_begins_in_memory_where_it_would_alone():
    rows = torch.arange(32.0).view(8, 4)
    first, second = cohorts_of(rows[:2], 2)
    assert first.data_ptr() == rows.data_ptr() and second.data_ptr() % 64 == 0
    assert torch.equal(second, rows[1:2])


def test_products_that_depend_on_the_number_of_rows_are_computed_lane_by_lane_and_all_else_at_once(monkeypatch):
    plain = functional.linear

    def fickle(rows, weight, bias):
        product = plain(rows, weight, bias)
        return product.nextafter(product + 1) if len(rows) > 2 else product

    monkeypatch.setattr(functional, "linear", fickle)
    network = Network()
    network.layer = nn.Linear(3, 5)
    rows = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    function = Lanewise(lambda part: (network.layer(network(part)[0]).relu(),), network, 4, CPU)
    function.begin(rows)
    network.sizes.clear()
    with torch.no_grad():
        alone = torch.cat([plain(part / 2, network.layer.weight, network.layer.bias) for part in rows.split(2)])
        assert torch.equal(function(rows)[0], alone.relu())
    assert network.sizes == [8]
    # Afterwards the layer is its own again.
    assert "forward" not in vars(network.layer)

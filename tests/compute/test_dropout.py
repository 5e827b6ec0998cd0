"""Dropout by counters: which units are dropped depends on the sample alone."""

import pytest
import torch
from torch import nn

from lockstep.compute import random
from lockstep.compute.dropout import CounterDropout, DropoutWords, counted_dropout
from lockstep.errors import RunFailed, UserError


def words_of(samples, epoch=0):
    return random.random_words(0, "dropout", torch.arange(samples), epoch)[0]


def dropped(rate, words, shape):
    place = DropoutWords()
    layer = CounterDropout(rate, 0, place)
    with place.given(words):
        return layer(torch.ones(shape))


def test_a_quarter_of_the_units_is_dropped_and_the_others_are_scaled_up():
    found = dropped(0.25, words_of(1000), (1000, 64))
    # 64,000 draws: a standard deviation of 0.0017.
    assert (found == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert found.unique().tolist() == pytest.approx([0.0, 4 / 3])
    # No unit and no sample is favoured.
    assert (found == 0).float().mean(0).std() < 0.03
    assert (found == 0).float().mean(1).std() < 0.08


def test_a_mask_depends_on_its_sample_and_not_on_the_batch():
    words = words_of(8)
    whole = dropped(0.5, words, (8, 16))
    assert torch.equal(torch.cat((dropped(0.5, words[:3], (3, 16)), dropped(0.5, words[3:], (5, 16)))), whole)
    assert not torch.equal(dropped(0.5, words_of(8, epoch=1), (8, 16)), whole)


def test_layers_and_calls_of_one_layer_have_masks_of_their_own():
    network = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    words = counted_dropout(network)
    with words.given(words_of(4)):
        first, second = network[0](torch.ones(4, 64)), network[1](torch.ones(4, 64))
        again = network[0](torch.ones(4, 64))
    assert not torch.equal(first, second) and not torch.equal(first, again)
    with words.given(words_of(4)):
        assert torch.equal(network[0](torch.ones(4, 64)), first)


def test_sequences_and_samples_in_several_rows_keep_their_words():
    words = words_of(6)
    flat = dropped(0.5, words, (6, 10))
    assert torch.equal(dropped(0.5, words.view(2, 3), (2, 3, 10)).flatten(0, 1), flat)
    assert torch.equal(dropped(0.5, words, (12, 5)).view(6, 10), flat)


def test_a_channel_is_dropped_as_a_whole():
    network = nn.Sequential(nn.Dropout2d(0.5))
    with counted_dropout(network).given(words_of(8)):
        found = network(torch.ones(8, 16, 3, 3)).flatten(2)
    assert (found == found[:, :, :1]).all() and (found == 0).any() and (found > 0).any()


def test_a_network_is_replaced_in_place_with_the_same_weights_and_only_if_it_has_dropout():
    shared = nn.Dropout(0.1)
    network = nn.Sequential(nn.Linear(2, 2), shared, nn.Sequential(nn.Linear(2, 2), shared))
    before = list(network.state_dict())
    assert counted_dropout(network) is not None
    assert isinstance(network[1], CounterDropout) and network[2][1] is network[1]
    assert list(network.state_dict()) == before
    assert counted_dropout(nn.Linear(2, 2)) is None


def test_in_eval_mode_it_is_the_identity_and_needs_no_words():
    network = nn.Sequential(nn.Dropout(0.5)).eval()
    counted_dropout(network)
    assert torch.equal(network(torch.ones(4, 8)), torch.ones(4, 8))
    with pytest.raises(RunFailed, match="without the words"):
        network.train()(torch.ones(4, 8))


def test_everything_can_be_dropped():
    assert not dropped(1.0, words_of(4), (4, 8)).any()


def test_samples_that_are_not_the_first_axis_are_refused():
    with pytest.raises(UserError, match=r"shape \(7, 4, 8\), but there are 4 samples"):
        dropped(0.5, words_of(4), (7, 4, 8))


@pytest.mark.parametrize(
    "layer", [nn.AlphaDropout(), nn.MultiheadAttention(4, 1, dropout=0.1), nn.LSTM(2, 2, 2, dropout=0.1)]
)
def test_layers_that_draw_for_themselves_are_refused_by_name(layer):
    with pytest.raises(UserError, match=f"network: 1 is {type(layer).__name__}"):
        counted_dropout(nn.Sequential(nn.Linear(2, 2), layer))


def test_a_compiled_layer_drops_the_same():
    network = nn.Sequential(nn.Dropout(0.5))
    words = counted_dropout(network)
    compiled = torch.compile(network, backend="eager")
    for epoch in range(3):
        with words.given(words_of(4, epoch)):
            plain = network(torch.ones(4, 64))
        with words.given(words_of(4, epoch)):
            assert torch.equal(compiled(torch.ones(4, 64)), plain)

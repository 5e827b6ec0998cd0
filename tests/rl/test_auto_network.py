"""The network that is chosen by the observations: vectors, images, masks, memory."""

import math

import pytest
import torch

from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.config.config import Layout
from lockstep.errors import UserError
from lockstep.rl.distributions import CategoricalActions, MultiCategoricalActions
from lockstep.rl.network_settings import AutoSettings, MLPSettings
from lockstep.rl.problem import Continuous, Discrete, EnvProblem, MultiDiscrete, Part


def problem(shape, actions=None, parts=()):
    return EnvProblem(name="toy", observation_shape=shape, actions=actions or Discrete(3), make_env=None, parts=parts)


def network(shape, actions=None, parts=(), kind=AutoSettings, **changes):
    values = {"n_envs": 8, "batch_size": 128, "cnn_features": 16, "mlp_width": 8, **changes}
    values = {name: value for name, value in values.items() if kind is AutoSettings or name != "cnn_features"}
    config = Layout(PPOSettings, network=kind).config(values)
    return config.network.build(problem(shape, actions, parts), config)


@pytest.mark.parametrize("actions", [Discrete(3), Continuous(2), MultiDiscrete((2, 3))])
def test_on_vectors_alone_it_is_the_mlp_to_the_bit(actions):
    auto, mlp = network((5,), actions), network((5,), actions, kind=MLPSettings)
    ours, theirs = auto.state_dict(), mlp.state_dict()
    assert {name: value.shape for name, value in ours.items()} == {name: v.shape for name, v in theirs.items()}
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    seen = torch.randn(4, 5)
    for one, other in zip(auto(seen), mlp(seen), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("side", "strides"), [(84, [4, 2, 1]), (36, [4, 2, 1]), (35, [1, 2, 2]), (10, [1, 2, 1])])
def test_images_have_convolutions_that_suit_their_size(side, strides):
    model = network((3, side, side))
    found = [layer.stride[0] for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert found == strides
    outputs, value = model(torch.zeros(2, 3, side, side, dtype=torch.uint8))
    assert outputs.shape == (2, 3) and value.shape == (2,)


def test_bytes_are_scaled_and_an_image_among_several_parts_is_too():
    alone, among = network((1, 5, 5)), network((27,), parts=(Part("speed", (2,)), Part("view", (1, 5, 5), "image")))
    pixels = torch.randint(0, 256, (2, 1, 5, 5))
    torch.testing.assert_close(alone(pixels.to(torch.uint8))[0], alone(pixels / 255)[0])
    row = torch.cat((torch.zeros(2, 2), pixels.flatten(1).float()), dim=1)
    features, _ = among.encoder(row)
    assert features.shape == (2, 8 + 16)
    torch.testing.assert_close(features[:, 8:], among.encoder.images[0](pixels / 255))


MASKED = (Part("vector", (2,)), Part("allowed", (3,), "mask"))


def test_a_forbidden_action_has_no_probability_and_is_never_drawn():
    model = network((5,), parts=MASKED)
    outputs, _ = model(torch.tensor([[0.3, -0.4, 1.0, 1.0, 0.0]]).expand(2000, 5))
    policy = CategoricalActions().of(outputs)
    assert policy.probabilities()[:, 2].tolist() == [0.0] * 2000
    drawn = policy.draw(torch.cat((torch.arange(1999) / 1999, torch.tensor([1 - 2.0**-24]))))
    assert set(drawn.tolist()) == {0, 1}


def test_a_mask_leaves_entropy_and_gradients_finite():
    model = network((5,), parts=MASKED)
    outputs, _ = model(torch.tensor([[0.3, -0.4, 0.0, 1.0, 0.0], [0.3, -0.4, 1.0, 0.0, 1.0]]))
    policy = CategoricalActions().of(outputs)
    assert policy.entropy()[0].item() == 0.0
    assert policy.entropy()[1].item() == pytest.approx(math.log(2), abs=1e-3)
    (policy.entropy().sum() + policy.log_probability(torch.tensor([1, 2])).sum()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.actor.parameters())


def test_a_mask_covers_all_of_several_choices():
    model = network((6,), MultiDiscrete((2, 2)), (Part("vector", (2,)), Part("allowed", (4,), "mask")))
    outputs, _ = model(torch.tensor([[0.1, 0.2, 1.0, 0.0, 0.0, 1.0]]))
    assert MultiCategoricalActions((2, 2)).of(outputs).probabilities().tolist() == [[1.0, 0.0, 0.0, 1.0]]


def test_a_mask_that_does_not_fit_is_refused():
    with pytest.raises(UserError, match="mask allowed of toy: has 3 entries for 4 actions"):
        network((5,), Discrete(4), MASKED)
    with pytest.raises(UserError, match="masks are for discrete actions"):
        network((5,), Continuous(3), MASKED)
    with pytest.raises(UserError, match="nothing but a mask"):
        network((3,), parts=MASKED[1:])


@pytest.mark.parametrize(("shape", "parts"), [((4,), ()), ((2, 6, 6), ()), ((5,), MASKED)])
def test_a_recurrent_network_gives_the_same_step_by_step_and_as_a_sequence(shape, parts):
    model = network(shape, parts=parts, lstm_size=7)
    seen, keep = torch.rand(3, 2, *shape), torch.tensor([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    memory = first = model.first_memory(2, torch.device("cpu"))
    steps = []
    for time in range(3):
        memory = tuple(part * keep[time][:, None] for part in memory)
        outputs, value, memory = model(seen[time], memory)
        steps.append((outputs, value))
    outputs, value = model.sequence(seen, first, keep)
    torch.testing.assert_close(outputs, torch.stack([step[0] for step in steps]))
    torch.testing.assert_close(value, torch.stack([step[1] for step in steps]))


def test_it_learns_from_sequences_exactly_if_it_has_an_lstm():
    assert AutoSettings(lstm_size=4).recurrent and not AutoSettings().recurrent


@pytest.mark.parametrize("lstm", [0, 4])
def test_the_first_weights_depend_on_the_seed_alone(lstm):
    torch.manual_seed(0)
    first = network((2, 6, 6), lstm_size=lstm, seed=1).state_dict()
    torch.manual_seed(1)
    again, other = (network((2, 6, 6), lstm_size=lstm, seed=seed).state_dict() for seed in (1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)

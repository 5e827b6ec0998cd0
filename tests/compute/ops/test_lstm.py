"""The LSTM on sequences: compared with its own steps and with PyTorch's LSTM, and where it resets."""

import pytest
import torch
from torch import nn

from lockstep.compute.ops.lstm import LSTM

T, B, INPUTS, H = 7, 3, 5, 4


@pytest.fixture
def lstm():
    layer = LSTM(INPUTS, H)
    layer.initialise(torch.Generator().manual_seed(0))
    return layer


@pytest.fixture
def inputs():
    return torch.randn(T, B, INPUTS, generator=torch.Generator().manual_seed(1))


def some_state():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(B, H, generator=generator), torch.randn(B, H, generator=generator)


def keep_with_ends():
    keep = torch.ones(T, B)
    keep[0, 1] = keep[3, 0] = keep[4, 0] = keep[6, 2] = 0.0
    return keep


def step_by_step(lstm, inputs, state, keep):
    outputs = []
    for now, going_on in zip(inputs, keep, strict=True):
        hidden, cells = state
        state = lstm.step(now, (hidden * going_on[:, None], cells * going_on[:, None]))
        outputs.append(state[0])
    return torch.stack(outputs), state[1]


def test_one_step_from_a_zero_state_has_the_values_worked_out_by_hand():
    lstm = LSTM(1, 1)
    with torch.no_grad():
        # Gates of an input 1: output sigmoid(0), input sigmoid(0), forget sigmoid(9) but nothing to forget, tanh(ln 3).
        lstm.inputs.weight.copy_(torch.tensor([[0.0], [0.0], [9.0], [torch.tensor(3.0).log()]]))
        lstm.inputs.bias.zero_()
        lstm.recurrent.zero_()
    hidden, cells = lstm.step(torch.ones(1, 1), (torch.zeros(1, 1), torch.zeros(1, 1)))
    # tanh(ln 3) = (3 - 1/3) / (3 + 1/3) = 0.8.
    assert cells.item() == pytest.approx(0.4)
    assert hidden.item() == pytest.approx(0.5 * torch.tanh(torch.tensor(0.4)).item())


def test_a_sequence_gives_the_same_as_its_steps_one_by_one(lstm, inputs):
    wanted, last = step_by_step(lstm, inputs, some_state(), keep_with_ends())
    outputs, cells = lstm(inputs, some_state(), keep_with_ends())
    torch.testing.assert_close(outputs, wanted)
    torch.testing.assert_close(cells, last)


def test_its_gradients_are_those_of_its_steps(lstm, inputs):
    weight = torch.randn(T, B, H, generator=torch.Generator().manual_seed(3))

    def gradients(run):
        seen = inputs.clone().requires_grad_()
        lstm.zero_grad()
        (run(lstm, seen, some_state(), keep_with_ends())[0] * weight).sum().backward()
        return [seen.grad, *(parameter.grad.clone() for parameter in lstm.parameters())]

    for fast, wanted in zip(gradients(LSTM.forward), gradients(step_by_step), strict=True):
        torch.testing.assert_close(fast, wanted)


def test_without_resets_it_is_pytorchs_lstm(lstm, inputs):
    theirs = nn.LSTM(INPUTS, H)
    # PyTorch's order of gates is input, forget, candidate, output.
    order = torch.arange(4 * H).view(4, H)[[1, 2, 3, 0]].flatten()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(lstm.inputs.weight[order])
        theirs.weight_hh_l0.copy_(lstm.recurrent[order])
        theirs.bias_ih_l0.copy_(lstm.inputs.bias[order])
        theirs.bias_hh_l0.zero_()
    wanted, (_, last) = theirs(inputs, tuple(part.unsqueeze(0) for part in some_state()))
    outputs, cells = lstm(inputs, some_state(), torch.ones(T, B))
    torch.testing.assert_close(outputs, wanted)
    torch.testing.assert_close(cells, last[0])


def test_nothing_before_an_episode_reaches_it(lstm, inputs):
    keep = torch.ones(T, B)
    keep[4] = 0.0
    changed = inputs.clone()
    changed[:4] += 1.0
    one, _ = lstm(inputs, some_state(), keep)
    other, _ = lstm(changed, (torch.zeros(B, H), torch.zeros(B, H)), keep)
    assert torch.equal(one[4:], other[4:])
    assert not torch.equal(one[3], other[3])


def test_it_can_compute_in_bf16(lstm, inputs):
    wanted, _ = lstm(inputs, some_state(), keep_with_ends())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, _ = lstm(inputs, some_state(), keep_with_ends())
    torch.testing.assert_close(outputs, wanted, rtol=0.05, atol=0.03)
    outputs.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in lstm.parameters())

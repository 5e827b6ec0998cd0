"""The gradient that is written out is autograd's own, to the last bit."""

import pytest
import torch

from lockstep.algorithms.ppo.surrogate import METRICS, Samples, Weights, surrogate

WEIGHTS = Weights(clip=0.2, value=0.5, entropy=0.01)


def by_autograd(log_probability, value_error, entropy, samples, weights):
    """The same loss, operator by operator."""

    def mean(values):
        return (values if samples.valid is None else torch.where(samples.valid, values, 0.0)).sum() * samples.share

    log_ratio = log_probability - samples.log_probability
    ratio = log_ratio.exp()
    clipped = -samples.advantage * ratio.clamp(1 - weights.clip, 1 + weights.clip)
    policy_loss = mean(torch.maximum(-samples.advantage * ratio, clipped))
    value_loss, mean_entropy = 0.5 * mean(value_error), mean(entropy)
    loss = policy_loss + weights.value * value_loss - weights.entropy * mean_entropy
    far = mean(((ratio - 1).abs() > weights.clip).float())
    return loss, [policy_loss, value_loss, mean_entropy, mean((ratio - 1) - log_ratio), far]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("count", [1, 7, 256, 1000])
def test_loss_metrics_and_gradients_have_the_bits_of_autograd(count, masked):
    generator = torch.Generator().manual_seed(count)

    def numbers():
        return torch.randn(count, generator=generator)

    valid, share = (numbers() > -0.5, torch.tensor(1 / 300)) if masked else (None, 1 / 300)
    # Ratios on both sides of the clipping range, and within.
    samples = Samples(0.3 * numbers() - 1.0, numbers(), share, valid)
    given = [0.3 * numbers() - 1.0, numbers().square(), numbers()]
    found = []
    for function in (surrogate, by_autograd):
        inputs = [values.clone().requires_grad_() for values in given]
        loss, metrics = function(*inputs, samples, WEIGHTS)
        (loss * 3.0).backward()
        found.append([loss.detach(), *(value.detach() for value in metrics), *(values.grad for values in inputs)])
    assert len(found[0]) == 1 + len(METRICS) + 3
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_an_entropy_without_gradient_gets_none():
    inputs = [torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True), torch.ones(2)]
    loss, metrics = surrogate(*inputs, Samples(torch.zeros(2), torch.ones(2), 0.5, None), Weights(0.2, 1.0, 0.0))
    loss.backward()
    # Ratio 1, advantage 1: the loss falls by the share of each log-probability; half the error counts.
    assert float(loss) == -0.5 and inputs[0].grad.tolist() == [-0.5, -0.5] and inputs[1].grad.tolist() == [0.25, 0.25]
    assert dict(zip(METRICS, metrics.tolist(), strict=True))["entropy"] == 1.0 and inputs[2].grad is None

"""Losses are shares of a global batch that add up, and networks that a loss only uses get no gradient."""

from dataclasses import fields, replace

import pytest
import torch

from lockstep.algorithms.tdmpc2.model.networks import Sizes, Spaces, TDMPC2Model
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.training.losses import Batch, PolicyLoss, WorldLoss

H, B, HIDDEN, MEMBERS = 3, 6, 24, 4


def model_of(tasks):
    sizes = Sizes(16, 2, HIDDEN, 16, MEMBERS, task=3 if tasks > 1 else 0)
    model = TDMPC2Model(sizes, Spaces(5, (2, 1)[:tasks], (500,) * tasks, terminates=tasks == 1), seed=3)
    with torch.no_grad():
        # Values and rewards are initialised to predict zero; the tests need other predictions.
        for answers in (model.world.values[-1], model.world.reward[-1], model.target[-1]):
            answers.weight.normal_(generator=torch.Generator().manual_seed(1)).mul_(0.3)
    return model


def batch_of(tasks):
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape):
        return torch.randn(*shape, generator=generator)

    return Batch(
        observation=numbers(H + 1, B, 5),
        action=numbers(H, B, 2).tanh(),
        reward=numbers(H, B),
        terminated=(torch.rand(H, B, generator=generator) < 0.3).float(),
        task=torch.tensor([0, 1, 1, 0, 1, 0]) if tasks > 1 else None,
        target_noise=numbers(H, B, 2),
        policy_noise=numbers(H + 1, B, 2),
        target_pair=torch.tensor([2, 0]),
        policy_pair=torch.tensor([3, 1]),
        values_kept=(torch.rand(MEMBERS, H * B, HIDDEN, generator=generator) < 0.8) / 0.8,
        policy_kept=(torch.rand(2, (H + 1) * B, HIDDEN, generator=generator) < 0.8) / 0.8,
        latents=torch.zeros(H + 1, B, 16),
        share=1 / B,
        first=0,
    )


def part_of(batch, chosen):
    """Some samples of a batch, with the same share each."""

    def cut(name, value):
        if name in ("values_kept", "policy_kept"):
            steps = H if name == "values_kept" else H + 1
            return value.unflatten(1, (steps, B))[:, :, chosen].flatten(1, 2)
        if name in ("target_pair", "policy_pair") or not isinstance(value, torch.Tensor):
            return value
        return value[chosen] if name == "task" else value[:, chosen].clone()

    return Batch(**{item.name: cut(item.name, getattr(batch, item.name)) for item in fields(Batch)})


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("kind", ["world", "policy"])
def test_shares_of_uneven_parts_add_up_to_the_loss_of_the_whole_batch(tasks, kind):
    model, whole = model_of(tasks), batch_of(tasks)
    discount = 0.9 if tasks == 1 else torch.tensor([0.9, 0.8])
    world, policy = (
        WorldLoss(model, TDMPC2Settings(entropy_coef=0.1), discount),
        PolicyLoss(model, TDMPC2Settings(entropy_coef=0.1)),
    )
    parts = [part_of(whole, slice(0, 2)), part_of(whole, slice(2, B))]
    for batch in (whole, *parts):
        world(batch)
    loss = world if kind == "world" else policy
    found = []
    for group in ([whole], parts):
        model.zero_grad()
        metrics = {}
        for batch in group:
            share, some = loss(batch)
            share.backward()
            metrics = {name: metrics.get(name, 0.0) + value for name, value in some.items()}
        found.append((metrics, {name: p.grad.clone() for name, p in loss.named_parameters()}))
    (metrics, gradients), (metrics_in_parts, gradients_in_parts) = found
    for name, value in metrics.items():
        torch.testing.assert_close(metrics_in_parts[name], value)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradients_in_parts[name], gradient, rtol=1e-4, atol=1e-7)


def test_a_loss_trains_its_own_networks_and_no_others():
    model, batch = model_of(2), batch_of(2)
    world, policy = WorldLoss(model, TDMPC2Settings(), torch.tensor([0.9, 0.8])), PolicyLoss(model, TDMPC2Settings())
    world(batch)[0].backward()
    trained = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if name.startswith("world.")}
    model.zero_grad()
    policy(batch)[0].backward()
    trained = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if name.startswith("policy.")}
    assert {name.partition(".")[0] for name, _ in world.named_parameters()} == {"world"}
    assert {name.partition(".")[0] for name, _ in policy.named_parameters()} == {"policy"}


def test_the_target_is_the_reward_plus_the_lower_of_two_discounted_values():
    model, batch = model_of(1), replace(batch_of(1), terminated=torch.zeros(H, B))
    batch.terminated[:, 0] = 1.0
    loss = WorldLoss(model, TDMPC2Settings(), 0.9)
    with torch.no_grad():
        latents, target = loss._targets(batch)
        action = model.policy.act(latents, None, None, batch.target_noise)
        logits = model.target(torch.cat((latents, action), -1).flatten(0, 1))
        values = model.bins.expected(logits).view(MEMBERS, H, B)
    torch.testing.assert_close(target[:, 0], batch.reward[:, 0])
    expected = batch.reward + 0.9 * torch.minimum(values[2], values[0])
    torch.testing.assert_close(target[:, 1:], expected[:, 1:])


def test_first_values_are_the_values_in_the_policy_loss():
    model, batch = model_of(1), batch_of(1)
    WorldLoss(model, TDMPC2Settings(), 0.9)(batch)
    loss = PolicyLoss(model, TDMPC2Settings(entropy_coef=0.0, rho=0.0))
    with torch.no_grad():
        # Without the later steps and the entropy, the loss is minus the mean first value over H + 1 steps.
        assert float(loss(batch)[0]) == pytest.approx(-float(loss.first_values(batch).mean()) / (H + 1), rel=1e-5)


def test_the_policy_loss_is_divided_by_the_value_scale():
    model, batch = model_of(1), batch_of(1)
    WorldLoss(model, TDMPC2Settings(), 0.9)(batch)
    loss = PolicyLoss(model, TDMPC2Settings(entropy_coef=0.0))
    one = float(loss(batch)[0].detach())
    model.value_scale.fill_(4.0)
    assert float(loss(batch)[0].detach()) == pytest.approx(one / 4)


def test_components_that_a_task_does_not_have_are_zero_and_add_no_entropy():
    model = model_of(2)
    latent, noise = torch.rand(3, 16), torch.randn(3, 2)
    task = torch.tensor([0, 1, 1])
    embedded, mask = model.world.embed(task), model.mask_of(task)
    choice = model.policy.choose(latent, embedded, mask, noise)
    assert choice.action[1:, 1].tolist() == [0.0, 0.0] and float(choice.action[0, 1].detach()) != 0
    other = model.policy.choose(latent, embedded, mask, noise + torch.tensor([0.0, 5.0]))
    torch.testing.assert_close(other.scaled_entropy[1:], choice.scaled_entropy[1:])


def test_task_embeddings_have_a_norm_of_at_most_one():
    model = model_of(2)
    with torch.no_grad():
        model.world.tasks.weight.copy_(torch.tensor([[3.0, 0.0, 4.0], [0.1, 0.2, 0.2]]))
    model.world.limit_embeddings()
    torch.testing.assert_close(
        model.world.tasks.weight.detach(), torch.tensor([[0.6, 0.0, 0.8], [0.1, 0.2, 0.2]]), rtol=0, atol=1e-6
    )

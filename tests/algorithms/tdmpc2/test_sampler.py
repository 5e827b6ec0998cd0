"""Batches hold real sequences: the point's dynamics show whether observations, actions and rewards belong together."""

import torch

from lockstep.algorithms.tdmpc2.training.losses import Batch


def filled(learner, update=0):
    """The batches of all cohorts for an update."""
    training = learner._training
    training._number.fill_(update)
    training._filled()
    return [batches[0] for batches in training._batches]


def check_dynamics(batch: Batch):
    """Every step of every sequence follows from the one before it."""
    place, speed = batch.observation.split(2, -1)
    expected_speed = 0.8 * speed[:-1] + 0.2 * batch.action
    torch.testing.assert_close(speed[1:], expected_speed)
    torch.testing.assert_close(place[1:], place[:-1] + expected_speed)
    torch.testing.assert_close(batch.reward, torch.exp(-place[1:].square().sum(-1)))


def test_sequences_follow_the_dynamics_up_to_the_end_of_an_episode(make_learner):
    learner = make_learner(ends=True, seed_steps=10_000)
    for _ in range(6):
        learner.step()
    ended = 0.0
    for update in range(20):
        (batch,) = filled(learner, update)
        check_dynamics(batch)
        # An episode has terminated exactly where the point is far away.
        far = (batch.observation[1:, :, :2].abs() > 2).any(-1)
        assert torch.equal(far, batch.terminated.bool())
        ended += float(batch.terminated.sum())
        assert not bool(batch.terminated[:-1].any()), "a sequence continues after a termination"
    assert ended > 0


def test_a_lanes_part_of_a_batch_does_not_depend_on_other_lanes(make_learner):
    together, apart = make_learner(dropout=0.3), make_learner(dropout=0.3, sync="exact")
    for learner in (together, apart):
        learner.step()
    (whole,), parts = filled(together, 5), filled(apart, 5)
    assert len(parts) == 8
    for name in ("observation", "action", "reward", "target_noise", "policy_noise"):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(part, name) for part in parts], 1)), name
    horizon, samples = whole.reward.shape
    for name, steps in (("values_kept", horizon), ("policy_kept", horizon + 1)):
        split = [getattr(part, name).unflatten(1, (steps, -1)) for part in parts]
        assert torch.equal(getattr(whole, name).unflatten(1, (steps, samples)), torch.cat(split, 2))
    assert all(torch.equal(whole.target_pair, part.target_pair) for part in parts)
    assert [part.first for part in parts] == [4 * lane for lane in range(8)]
    assert whole.share == parts[0].share == 1 / 32


def test_every_update_samples_other_sequences(make_learner):
    learner = make_learner()
    learner.step()
    one, other = ({k: v.clone() for k, v in vars(filled(learner, n)[0]).items() if k == "action"} for n in (3, 4))
    assert not torch.equal(one["action"], other["action"])


def test_sequences_carry_the_number_of_their_task(make_learner):
    learner = make_learner(tasks=2, task_dim=4)
    learner.step()
    (batch,) = filled(learner)
    # The second task flips the sign of the action.
    turned = torch.where(batch.task[:, None] == 1, -batch.action, batch.action)
    speed = batch.observation[..., 2:]
    torch.testing.assert_close(speed[1:], 0.8 * speed[:-1] + 0.2 * turned)
    assert set(batch.task.tolist()) == {0, 1}

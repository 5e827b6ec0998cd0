"""The learner in a world of one: schedules, the KL stop, accumulation, time limits."""

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.errors import RunFailed
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads.snake.workload import Snake


def make(sync="fast", **changes):
    config = Snake().preset("debug").replace(sync=sync, **changes)
    return Snake().build(config, World().with_lanes(config.effective_lanes, sync))


def weights(learner):
    return torch.cat([value.flatten() for value in learner.model.state_dict().values()])


def test_the_rate_warms_up_and_then_follows_its_schedule():
    learner = make(learning_rate=0.1, lr_schedule="linear", lr_warmup=512, total_timesteps=2560)
    assert learner.learning_rate() == pytest.approx(0.05)
    learner.steps = 1280
    assert learner.learning_rate() == pytest.approx(0.05)
    learner.steps = 2560
    assert learner.learning_rate() == 0.0


def test_a_kl_limit_ends_the_passes_early():
    assert make(target_kl=1e-9, n_epochs=4).step()[0]["train/epochs"].mean == 1
    assert make(target_kl=None, n_epochs=4).step()[0]["train/epochs"].mean == 4


def test_accumulated_parts_give_the_same_update_up_to_rounding():
    whole, parts = make(), make(grad_accum=4)
    whole.step(), parts.step()
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-5, atol=1e-6)


def test_every_sample_is_used_exactly_once_an_epoch():
    learner = make()
    order = learner._orders()[1]
    assert torch.equal(order.flatten().sort().values, torch.arange(256))
    # Each lane brings two of the sixteen environments, and the same number of samples to every minibatch.
    assert order.shape == (8, 4, 8)
    assert torch.equal(order[3].flatten() % 16 // 2, torch.full((32,), 3))


def test_both_modes_see_the_same_experience():
    fast, exact = make(), make(sync="exact")
    fast.step(), exact.step()
    assert torch.equal(exact._collector.rollout.reward, fast._collector.rollout.reward)
    torch.testing.assert_close(weights(exact), weights(fast), rtol=1e-4, atol=1e-5)


def test_a_cut_episode_is_worth_what_its_last_board_promises():
    learner = make(time_limit="truncation", max_steps=4)
    learner.step()
    rollout = learner._collector.rollout
    # Only some of the ends are cuts; an end by death promises nothing.
    assert bool((rollout.bootstrap != 0).any()) and not bool((rollout.bootstrap[~rollout.ended] != 0).any())


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    hashes = []
    for seed in (1, 1, 2):
        learner = make(seed=seed)
        learner.step()
        hashes.append(weights_hash(dict(learner.model.state_dict())))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_run_can_ask_to_stop_on_a_gradient_that_is_not_finite():
    learner = make(nonfinite="stop")
    next(learner.model.parameters()).register_hook(lambda gradient: gradient * float("inf"))
    before = weights(learner).clone()
    with pytest.raises(RunFailed, match="not finite"):
        learner.step()
    assert torch.equal(weights(learner), before)


def test_skipped_updates_are_counted():
    learner = make()
    next(learner.model.parameters()).register_hook(lambda gradient: gradient * float("nan"))
    report = learner.step()[0]
    assert report["train/skipped_updates"].mean == 8


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_learns_about_the_same(precision):
    reference, low = make(), make(precision=precision)
    for _ in range(3):
        reference.step(), low.step()
    assert torch.isfinite(weights(low)).all()
    assert float((weights(low) - weights(reference)).norm() / weights(reference).norm()) < 0.05


def test_evaluation_does_not_depend_on_how_episodes_are_shared():
    fast, exact = make(), make(sync="exact")
    exact.model.load_state_dict(fast.model.state_dict())
    one, other = fast.evaluate(20, seed=3), exact.evaluate(20, seed=3)
    assert one.returns == other.returns and one.lengths == other.lengths
    assert len(one.returns) == 20

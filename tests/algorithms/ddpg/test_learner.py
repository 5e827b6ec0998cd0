"""The learner on the minimal game: update counts, samples, replay buffer, resuming, and that it learns."""

import pytest
import torch

from lockstep.algorithms.ddpg import learner as learner_module
from lockstep.errors import RunFailed
from lockstep.rl.opponent_pool import OpponentPool
from lockstep.storage.checkpoint import Snapshot, weights_hash


def weights(learner):
    return torch.cat([value.flatten() for value in learner.model.state_dict().values()])


def skill(learner):
    evaluation = learner.evaluate(32, seed=1)
    return sum(evaluation.returns) / (2 * sum(evaluation.lengths))


@pytest.mark.parametrize("algo", ["ddpg", "bicnet", "maddpg"])
def test_it_learns_the_correct_actions(make_learner, algo):
    learner = make_learner(algo=algo)
    assert skill(learner) < 0.5
    for _ in range(20):
        learner.step()
    assert skill(learner) > 0.9


def test_a_round_has_the_gradient_updates_of_its_intervals(make_learner):
    learner = make_learner(n_steps=8, update_interval=4, updates_per_interval=3)
    report = learner.step()[0]
    assert report["train/gradient_updates"].mean == 6 and learner.gradient_updates == 6
    assert learner.steps == 128 and learner.updates == 1


def test_learning_waits_for_learning_starts_and_earlier_rounds_report_no_loss(make_learner):
    learner = make_learner(learning_starts=192)
    first, second = learner.step()[0], learner.step()[0]
    assert first["train/gradient_updates"].mean == 0 and "train/critic_loss" not in first
    # 16 boards: after 12 of 16 steps there are 192; the remaining five updates are those of steps 12 to 16.
    assert second["train/gradient_updates"].mean == 5
    assert {"train/critic_loss", "train/actor_loss", "train/grad_norm_actor", "train/grad_norm_critic"} <= set(second)


def test_episodes_that_end_at_different_times_are_all_counted(make_learner):
    learner = make_learner()
    report = learner.step()[0]
    # In 8 steps episodes of 3, 4, 5, 6 steps end 2, 2, 1, 1 times on each of four boards.
    assert report["rollout/length_mean"].count == 24
    assert report["rollout/length_mean"].sum == 4 * (2 * 3 + 2 * 4 + 5 + 6)
    assert report["matching/age_mean"].sum == report["rollout/length_mean"].sum


def test_epsilon_and_the_stage_depend_on_the_steps_over_all_boards(make_learner):
    learner = make_learner(epsilon=0.5, epsilon_speed=0.99)
    first, second = learner.step()[0], learner.step()[0]
    assert first["train/epsilon"].mean == 0.5
    assert second["train/epsilon"].mean == pytest.approx(0.5 * 0.99**128)
    assert learner._collector.env.prepared == [0, 128]
    assert [first["matching/level"].mean, second["matching/level"].mean] == [0.0, 1.0]


def test_all_agents_of_a_board_explore_in_the_same_steps(make_learner):
    learner = make_learner(remember="vector", epsilon=0.5, epsilon_speed=1.0)
    learner.step()
    vectors = learner._collector.memory.state(8)["action"]
    # A vector of the actor sums to 1; an exploring one does not.
    explores = (vectors.sum(-1) - 1).abs() > 1e-4
    assert torch.equal(explores[..., 0], explores[..., 1])
    assert 0.3 < float(explores.float().mean()) < 0.7


def test_the_replay_buffer_stores_each_step_in_its_lane_and_row(make_learner):
    learner = make_learner(buffer_size=16 * 20)
    for _ in range(4):
        learner.step()
    memory = learner._collector.memory
    kept = memory.state(32)
    done = kept["observation"][..., :4].argmax(-1) == kept["action"]
    assert torch.equal(done.float(), kept["reward"])
    # The last feature identifies the board: its position in lane and row.
    board = (kept["observation"][..., 0, 4] * 100).round().long()
    assert torch.equal(board, torch.arange(16).view(8, 1, 2).expand(8, 20, 2))


def test_fast_and_exact_mode_have_the_same_experience_and_nearly_the_same_weights(make_learner):
    fast, exact = make_learner(), make_learner(sync="exact")
    fast.step(), exact.step()
    fast_memory = fast._collector.memory.state(8)
    for name, whole in fast_memory.items():
        assert torch.equal(whole, exact._collector.memory.state(8)[name])
    torch.testing.assert_close(weights(exact), weights(fast), rtol=1e-4, atol=1e-5)


def test_target_networks_follow_by_tau(make_learner):
    learner = make_learner(tau=1.0)
    learner.step()
    for name in ("actor", "critic"):
        network, target = learner.model.get_submodule(name), learner.model.get_submodule(f"target_{name}")
        for one, other in zip(network.parameters(), target.parameters(), strict=True):
            assert torch.equal(one, other)
    slow = make_learner(tau=1e-6)
    before = next(slow.model.target_actor.parameters()).clone()
    slow.step()
    torch.testing.assert_close(next(slow.model.target_actor.parameters()), before, rtol=0, atol=1e-5)


def test_the_opponent_pool_is_updated_every_few_gradient_updates_and_saved(make_learner):
    learner = make_learner(pool=lambda actor: OpponentPool(actor, 2), pool_update_every=3)
    first = next(learner._problem.opponent_pool.networks[0].parameters()).clone()
    learner.step()  # 5 gradient updates of 8 steps: 64 / 16 = 4 steps fill a batch
    assert learner.gradient_updates == 5
    assert torch.equal(next(learner._problem.opponent_pool.networks[0].parameters()), first)
    assert not torch.equal(next(learner._problem.opponent_pool.networks[1].parameters()), first)
    stored = {name for name in learner.state().optimizer if name.startswith("past.")}
    assert len(stored) == 2 * len(list(learner.model.actor.parameters()))


def test_a_warm_start_keeps_its_weights_until_it_learns(make_learner):
    other = make_learner(seed=5)
    learner = make_learner(learning_starts=1024, total_timesteps=12800)
    learner.begin_with(other.model.state_dict())
    learner.step(), learner.step()
    assert learner.gradient_updates == 0
    assert torch.equal(weights(learner), weights(other))


@pytest.mark.parametrize("algo", ["ddpg", "bicnet", "maddpg"])
def test_a_resumed_learner_ends_with_bitwise_equal_weights(make_learner, algo):
    undisturbed = make_learner(algo=algo, pool=lambda actor: OpponentPool(actor, 2), pool_update_every=3)
    undisturbed.step()
    state = undisturbed.state()
    copied = Snapshot(
        {k: v.clone() for k, v in state.model.items()},
        {k: v.clone() for k, v in state.optimizer.items()},
        dict(state.state),
        {lane: {k: v.clone() for k, v in part.items()} for lane, part in state.lanes.items()},
    )
    undisturbed.step()
    resumed = make_learner(algo=algo, pool=lambda actor: OpponentPool(actor, 2), pool_update_every=3)
    resumed.load(copied)
    resumed.step()
    assert weights_hash(resumed.state().model) == weights_hash(undisturbed.state().model)
    assert weights_hash(resumed.state().optimizer) == weights_hash(undisturbed.state().optimizer)


def test_a_lanes_state_does_not_depend_on_the_cohorts(make_learner):
    learner, exact = make_learner(), make_learner(sync="exact")
    learner.step(), exact.step()
    one, other = learner.state().lanes, exact.state().lanes
    assert sorted(one) == sorted(other) == list(range(8))
    # Actions depend on the weights, which differ by rounding: only steps before the first gradient update must agree.
    assert torch.equal(one[5]["memory.observation"][:4], other[5]["memory.observation"][:4])
    assert {name: value.shape for name, value in one[5].items()} == {n: v.shape for n, v in other[5].items()}
    assert one[5]["env.clock"].tolist() == [8, 8]


def test_nonfinite_stop_ends_the_run_and_keeps_the_weights(make_learner):
    learner = make_learner(nonfinite="stop")
    before = {k: v.clone() for k, v in learner.model.actor.state_dict().items()}
    next(learner.model.actor.parameters()).register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(RunFailed, match=r"5 gradient step\(s\) were not finite"):
        learner.step()
    assert all(torch.equal(value, before[name]) for name, value in learner.model.actor.state_dict().items())


def test_skipped_actor_updates_are_counted_and_the_critic_still_learns(make_learner):
    learner = make_learner()
    before = next(learner.model.critic.parameters()).clone()
    next(learner.model.actor.parameters()).register_hook(lambda gradient: gradient * float("nan"))
    assert learner.step()[0]["train/skipped_updates"].mean == 5
    assert not torch.equal(next(learner.model.critic.parameters()), before)


def test_learning_rates_warm_up_and_then_follow_their_schedule(make_learner):
    learner = make_learner(a_lr=0.1, c_lr=0.2, lr_schedule="linear", lr_warmup=256, total_timesteps=1280)
    assert learner._set_rates() == pytest.approx({"learning_rate_actor": 0.05, "learning_rate_critic": 0.1})
    learner.steps = 640
    assert learner._set_rates() == pytest.approx({"learning_rate_actor": 0.05, "learning_rate_critic": 0.1})


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_stays_finite_and_close(make_learner, precision):
    reference, low = make_learner(), make_learner(precision=precision)
    # Without bf16 support, PyTorch disables oneDNN for the whole process at the first product; the context restores it.
    with torch.backends.mkldnn.flags(enabled=True):
        reference.step(), low.step()
    assert torch.isfinite(weights(low)).all()
    assert float((weights(low) - weights(reference)).norm() / weights(reference).norm()) < 0.05


class Recorder:
    """A fake accelerator: lists the functions to record, and runs them unrecorded."""

    records = True
    compiles = False

    def __init__(self, *_, **__):
        self.recorded = []

    def record(self, function):
        self.recorded.append(function)
        return function

    def compile(self, module):
        return module


def test_each_stage_is_recorded_once_and_recording_changes_no_result(make_learner, monkeypatch):
    plain = make_learner()
    monkeypatch.setattr(learner_module, "Accelerator", Recorder)
    recorded = make_learner()
    for _ in range(3):
        plain.step(), recorded.step()
    torch.testing.assert_close(weights(recorded), weights(plain), rtol=1e-5, atol=1e-6)
    steps = [one for one in recorded._acting.recorded if one.__name__ == "_step"]
    # The level changes after the first round.
    assert len(steps) == 2


def test_evaluation_does_not_depend_on_how_episodes_are_divided(make_learner):
    fast, exact = make_learner(), make_learner(sync="exact")
    assert fast.evaluate(20, seed=3).returns == exact.evaluate(20, seed=3).returns


def test_a_player_samples_each_agents_action_with_its_own_random_number(make_learner, matching):
    learner = make_learner()
    observation = matching(torch.arange(200), seed=1).reset()
    player = learner.player(seed=3)
    best, probabilities = player.act(observation)
    assert torch.equal(best, learner.model(observation)[0].argmax(-1))
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(200, 2))
    drawn, _ = player.act(observation, explore=True)
    # An untrained policy is nearly uniform: two agents that shared a random number would nearly always agree.
    assert drawn.shape == (200, 2)
    assert 0.1 < float((drawn[:, 0] == drawn[:, 1]).float().mean()) < 0.45

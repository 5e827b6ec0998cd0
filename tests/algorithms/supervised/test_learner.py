"""The supervised learner: epochs, learning rates, validation, early stopping and resuming."""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from lockstep.algorithms.supervised.algorithm import Supervised
from lockstep.algorithms.supervised.model import average_share
from lockstep.algorithms.supervised.patience import Patience
from lockstep.algorithms.supervised.problem import DataProblem
from lockstep.algorithms.supervised.settings import SupervisedSettings
from lockstep.config.config import Layout, NetworkSettings
from lockstep.distributed.world import World
from lockstep.errors import RunFailed, UserError
from lockstep.storage.checkpoint import weights_hash


def fingerprint(learner):
    return weights_hash(dict(learner.model.state_dict()))


def train(learner, updates):
    for _ in range(updates):
        learner.advance()
    return learner


def test_an_epoch_covers_every_sample_and_ends_with_an_evaluation(build):
    learner = build()
    steps = []
    for _ in range(7):
        learner.advance()
        steps.append((learner.steps, learner.evaluation_due))
    # 101 samples in batches of 16 are seven batches.
    assert steps[-1] == (101, True)
    assert not any(due for _, due in steps[:-1])
    assert all(12 <= b - a <= 16 for (a, _), (b, _) in pairwise(steps))
    train(learner, 14)
    assert learner.steps == learner.total_steps == 303 and learner.done()


def test_it_learns_the_sign_of_a_number(build):
    learner = build(epochs=12, learning_rate=0.1, patience=0)
    train(learner, 7 * 12)
    measured = learner.evaluate(10**9, 0).measured
    assert measured["samples"] == 26
    assert measured["accuracy"] > 0.95 and measured["log_loss"] < 0.2


def test_the_rate_warms_up_and_follows_its_schedule(build):
    learner = build(learning_rate=0.1, lr_schedule="cosine", lr_warmup=140)
    assert learner.learning_rate() == pytest.approx(0.1 * learner._counts[0] / 140)
    learner.steps = 152
    assert learner.learning_rate() == pytest.approx(0.05, rel=0.02)


def test_fast_and_exact_mode_agree_up_to_rounding(build):
    fast, exact = train(build(), 9), train(build(sync="exact"), 9)
    first = torch.cat([value.flatten() for value in fast.model.state_dict().values()])
    second = torch.cat([value.flatten() for value in exact.model.state_dict().values()])
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)
    assert fast.evaluate(10**9, 0).loss == pytest.approx(exact.evaluate(10**9, 0).loss, rel=1e-5)


@pytest.mark.parametrize("before", [3, 7, 10])
def test_a_run_resumes_in_the_middle_of_an_epoch(build, before):
    settings = {"ema_decay": 0.9, "lr_schedule": "plateau", "class_weights": True}
    undisturbed = train(build(**settings), 14)
    saved = train(build(**settings), before).state()
    resumed = build(**settings)
    resumed.load(saved)
    train(resumed, 14 - before)
    assert fingerprint(resumed) == fingerprint(undisturbed)
    assert resumed.state().state == undisturbed.state().state


def test_a_run_resumes_with_its_own_data_only(build):
    learner = train(build(data_digest="aa"), 1)
    saved, weights = learner.state(), fingerprint(learner)
    other = build(data_digest="bb")
    with pytest.raises(UserError, match=r"digest is bb, but was aa .* continues with the data it was started with"):
        other.load(saved)
    assert other.updates == 0 and fingerprint(other) != weights
    del saved.state["data_digest"]  # older checkpoints have no digest
    other.load(saved)
    assert other.updates == 1 and other.state().state["data_digest"] == "bb"


def test_early_stopping_counts_epochs_without_enough_improvement():
    settings = SupervisedSettings(patience=2, min_delta=0.1, min_epochs=5)
    patience, ends = Patience(), []
    for epoch, loss in enumerate([1.0, 0.95, 0.85, 0.84, float("nan"), 0.83], start=1):
        patience.note(loss, settings)
        ends.append(patience.over(epoch, settings))
    # 0.95 improves on 1.0 by less than min_delta, 0.85 by more; two epochs later, in the fifth, the run may end.
    assert ends == [False, False, False, False, True, True]
    assert patience.best == 0.85
    # A finished run can be resumed with more patience.
    assert not patience.over(6, replace(settings, patience=9))
    assert Patience.load(patience.state()) == patience
    assert Patience.load(Patience().state()) == Patience()


def test_a_plateau_halves_the_rate():
    settings = SupervisedSettings(lr_schedule="plateau", plateau_patience=2, patience=0)
    patience, factors = Patience(), []
    for loss in [1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.6]:
        patience.note(loss, settings)
        factors.append(patience.factor)
    assert factors == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert not patience.over(7, settings)


def test_a_run_without_improvement_ends_early(build):
    learner = build(epochs=50, patience=2, min_delta=10.0)
    while not learner.done():
        learner.advance()
    # The first epoch sets the best loss; two more do not improve on it.
    assert learner.steps == 3 * 101


def test_predictions_use_the_moving_average_of_the_trained_weights(build):
    learner = train(build(ema_decay=0.5), 1)
    # At the first update the average moves 1 - 1/10 of the way.
    assert average_share(0.5, 0) == pytest.approx(0.9) and average_share(0.5, 1000) == 0.5
    start = build(ema_decay=0.5).model.network.outer.bias
    trained, average = learner.model.network.outer.bias, learner.model.average.outer.bias
    torch.testing.assert_close(average, start + 0.9 * (trained - start))
    inputs = torch.randn(3, 2)
    assert torch.equal(learner.model(inputs)[0], learner.model.average(inputs, None).log_softmax(1))


def test_metrics_are_reported_at_log_points_only(build):
    learner, plain = build(log_every=3), build()
    reports = [learner.advance() for _ in range(7)]
    assert [bool(report[0]) for report in reports] == [False, False, True, False, False, True, True]
    losses = [plain.step()[0]["train/loss"].mean for _ in range(3)]
    assert reports[2][0]["train/loss"].mean == pytest.approx(sum(losses) / 3)
    assert reports[6][0]["train/epoch"].mean == 1.0


def test_a_limited_validation_takes_its_share_of_every_group(build):
    measured = build().evaluate(13, 0).measured
    # Half of nine, of fourteen and of three, each rounded up.
    assert measured["samples"] == 5 + 7 + 2


def test_a_gradient_that_is_not_finite_is_skipped_or_stops_the_run(build):
    for nonfinite in ("skip", "stop"):
        learner = build(nonfinite=nonfinite)
        before = fingerprint(learner)
        learner.model.network.inner.weight.register_hook(lambda g: g * float("nan"))
        if nonfinite == "stop":
            with pytest.raises(RunFailed, match="1 gradient step"):
                learner.advance()
        else:
            assert learner.advance()[0]["train/skipped_updates"].mean == 1
        assert fingerprint(learner) == before


def test_invalid_combinations_are_refused(configured):
    with pytest.raises(UserError, match="batch_size 4 is less than the run's 8 lanes; raise it to 8, or set --lanes 4"):
        configured(batch_size=4)
    assert configured(batch_size=4, lanes=4).effective_lanes == 4
    with pytest.raises(UserError, match="class_weight_power"):
        SupervisedSettings(class_weight_power=0.5)


def test_weak_scaling_grows_the_batch_and_the_rate(configured):
    grown = configured(scaling="weak", lr_scaling="sqrt", batch_size=64, learning_rate=1e-3).for_world(4)
    assert (grown.algorithm.batch_size, grown.algorithm.learning_rate) == (256, 2e-3)


def test_by_default_every_epoch_is_validated_on_all_samples(configured):
    assert (configured().run.eval_every, configured().run.eval_episodes) == (10**15, 10**9)
    assert SupervisedSettings(patience=0).watches(configured().run)
    assert not SupervisedSettings(patience=0).watches(configured(eval_every=0).run)
    # Patience and plateaus need validations even if the best weights are not kept.
    assert SupervisedSettings(patience=1).watches(configured(eval_every=0).run)


def test_a_problem_of_another_kind_is_refused(configured):
    with pytest.raises(UserError, match="algorithm supervised: needs a problem of kind data"):
        Supervised().build(configured(), World(), object())


class Dropping(nn.Module):
    """A network with torch's own dropout, which takes no noise."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, inputs, noise):
        return self.layers(inputs[:, :2])


def test_a_validation_in_a_run_is_the_one_of_eval_although_the_network_has_dropout(build):
    learner = train(build(network=Dropping()), 7)
    inside = learner.evaluate(10**9, 0).measured
    # As `lockstep eval` does it: another learner with these weights, in eval mode.
    loaded = build(network=Dropping())
    loaded.model.load_state_dict(learner.model.state_dict())
    loaded.model.eval()
    assert loaded.evaluate(10**9, 0).measured == inside
    learner.advance()
    assert learner.model.training


def test_dropout_of_torch_draws_the_same_however_samples_are_divided(build):
    torch.manual_seed(11)
    fast = train(build(network=Dropping()), 7)
    torch.manual_seed(12)
    exact = train(build(network=Dropping(), sync="exact"), 7)
    first = torch.cat([value.flatten() for value in fast.model.state_dict().values()])
    second = torch.cat([value.flatten() for value in exact.model.state_dict().values()])
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


def test_batch_norm_is_refused_before_anything_is_built(configured):
    @dataclass(frozen=True, kw_only=True)
    class Normed(NetworkSettings):
        def build(self, problem, config):
            return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    config = Layout(SupervisedSettings, network=Normed).config({})
    problem = DataProblem(name="none", train=None, validation=None)
    with pytest.raises(UserError, match=r"network: 1 is BatchNorm1d, .*; use nn.LayerNorm or nn.GroupNorm"):
        Supervised().build(config, World(), problem)

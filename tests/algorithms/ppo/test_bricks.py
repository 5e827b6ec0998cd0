"""What PPO can be put together from: kinds of actions, normalisers, dropout, networks of one's own."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from lockstep.algorithms.ppo.algorithm import PPO
from lockstep.algorithms.ppo.collector import collect
from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.config.config import Layout
from lockstep.distributed.world import World
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError
from lockstep.rl.network_settings import AutoSettings, FunctionSettings
from lockstep.rl.problem import Continuous, Discrete, EnvProblem, MultiDiscrete
from lockstep.storage.checkpoint import weights_hash

VALUES = {
    "n_envs": 16,
    "n_steps": 16,
    "sequence_length": 16,
    "batch_size": 128,
    "n_epochs": 4,
    "learning_rate": 1e-2,
    "ent_coef": 0.0,
    "gamma": 0.5,
    "total_timesteps": 10_000_000,
    "threads": 1,
    "device": "cpu",
}
SMALL = {"mlp_width": 16, "initial_log_std": -1.0}


class Levels:
    """Shows two numbers around 50, 40 or 60 each, and pays 1000 at most for answering -0.5 and 0.5 to them.

    An answer in whole numbers counts as its half: 0 for 40 and 1 for 60. Episodes last three steps.
    """

    def __init__(self, index, seed):
        self.index, self.count = index, len(index)
        self.time = torch.zeros_like(index)

    def _bits(self):
        return torch.stack(((self.index + self.time) % 2, (self.index // 2 + self.time // 2) % 2), dim=1)

    def _observation(self):
        return 40.0 + 20.0 * self._bits()

    def reset(self):
        self.time.zero_()
        return self._observation()

    def step(self, action):
        answer = action if action.is_floating_point() else action - 0.5
        assert answer.abs().max() <= 1.0
        reward = 1000.0 * (1.0 - (answer - (self._bits() - 0.5)).square().sum(1))
        self.time += 1
        ended = self.time % 3 == 0
        return Transition(self._observation(), reward, ended, torch.zeros_like(ended))

    def state(self):
        return {"time": self.time.clone()}

    def load(self, state):
        self.time.copy_(state["time"])
        return self._observation()


LEVELS = EnvProblem(name="levels", observation_shape=(2,), actions=Continuous(2), make_env=Levels)
CHOICES = replace(LEVELS, actions=MultiDiscrete((2, 2)))


def with_dropout(problem):
    return TwoHeads(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.25)))


def with_batch_norm(problem):
    return TwoHeads(nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32)))


class TwoHeads(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body, self.policy, self.value = body, nn.Linear(32, 4), nn.Linear(32, 1)
        self.modes = []

    def forward(self, observation):
        self.modes.append(self.training)
        features = self.body(observation / 50 - 1)
        return self.policy(features), self.value(features).squeeze(-1)


def make(world=None, problem=LEVELS, function=None, **changes):
    kind, name = (AutoSettings, "") if function is None else (FunctionSettings, f"{__file__}:{function}")
    layout = Layout(PPOSettings, network=kind, network_name=name)
    config = layout.config({**VALUES, **({} if function else SMALL), **changes})
    return PPO().build(config, (world or World()).with_lanes(config.effective_lanes, config.sync_on("cpu")), problem)


def hash_of(learner):
    return weights_hash(dict(learner.model.state_dict()))


NORMALISED = {"normalize_observation": True, "normalize_reward": True}


@pytest.mark.parametrize(
    ("problem", "changes"),
    [(LEVELS, {"squash": True}), (CHOICES, {}), (LEVELS, {"lstm_size": 16})],
)
def test_normalised_problems_of_every_kind_of_action_are_learned(problem, changes):
    learner = make(problem=problem, **NORMALISED, **changes)
    for _ in range(20):
        reports = learner.step()
    # Three steps of at most 1000 each; reports are in the units of the problem.
    assert learner.evaluate(16, 3).score() > 2850
    assert reports[0]["rollout/return_mean"].mean > 2000


def test_normalisers_hold_the_moments_of_all_that_was_seen():
    learner = make(**NORMALISED)
    learner.step()
    normaliser, rollout = learner.model.normaliser, learner._collector.rollout
    seen = rollout.observation.flatten(0, 1).double()
    torch.testing.assert_close(normaliser.mean, seen.mean(0))
    torch.testing.assert_close(normaliser.variance, seen.var(0, correction=0))
    assert normaliser.count.item() == 256
    # gamma 1/2, three steps an episode: the sums begin anew after each.
    sums, value = [], torch.zeros(16)
    for time in range(16):
        value = value * 0.5 + rollout.reward[time]
        sums.append(value.double())
        value = value * ~rollout.ended[time]
    deviation = torch.stack(sums).std(correction=0)
    torch.testing.assert_close(learner._reward_scale.factor, (1 / deviation).float())


def test_a_rollout_is_learned_from_with_the_moments_it_was_collected_with():
    learner = make(**NORMALISED)
    learner.step()
    collector = learner._collector
    collect(collector, learner.updates)
    again = learner.model(collector.rollout.observation.flatten(0, 1))[1]
    torch.testing.assert_close(again, collector.rollout.value.flatten(), rtol=1e-4, atol=1e-5)


def train(world, function, changes):
    """A short training; returns the hash of the weights and moments. Called by every rank."""
    learner = make(world, function=function, sync="exact", n_epochs=2, **changes)
    learner.step(), learner.step()
    return [hash_of(learner), learner.state().state]


@pytest.mark.parametrize(
    ("function", "changes"), [(None, {**NORMALISED, "squash": True}), ("with_dropout", {"normalize_reward": True})]
)
def test_all_of_it_gives_the_same_bits_on_any_number_of_ranks(ranks, function, changes):
    (alone,) = ranks.run(train, function, changes, ranks=1)
    for size in (2, 3):
        assert all(found == alone for found in ranks.run(train, function, changes, ranks=size))


def test_a_run_continues_from_its_state_to_the_same_bits():
    first, other = make(**NORMALISED), make(**NORMALISED)
    first.step()
    other.load(first.state())
    first.step(), other.step()
    assert hash_of(first) == hash_of(other) and first.state().state == other.state().state


def test_dropout_is_the_same_in_micro_batches_and_other_ones_in_other_epochs():
    whole, parts = make(function="with_dropout"), make(function="with_dropout", grad_accum=4)
    whole.step(), parts.step()
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    words = []
    for epoch in (0, 1):
        whole._draw_dropout(epoch)
        words.append(whole._batches[0][0].rollout["word"].clone())
    assert len(torch.cat(words).unique()) == 512


def test_acting_and_evaluating_are_in_eval_mode_and_learning_is_in_train_mode():
    learner = make(function="with_dropout", n_epochs=1)
    learner.step()
    learner.model.modes.clear()
    learner.step()
    # 16 steps and the value of the last observation; then two minibatches.
    assert learner.model.modes == [False] * 17 + [True] * 2
    learner.model.modes.clear()
    learner.evaluate(4, 1)
    learner.player(0).act(torch.zeros(1, 2))
    assert not any(learner.model.modes)


def test_batch_norm_is_refused_by_the_name_of_its_layer():
    with pytest.raises(UserError, match=r"network: body.1 is BatchNorm1d.*use nn.LayerNorm or nn.GroupNorm"):
        make(function="with_batch_norm")


def test_settings_that_do_not_suit_the_problem_are_refused():
    with pytest.raises(UserError, match="squash true: is for continuous actions, and those of levels are discrete"):
        make(problem=replace(LEVELS, actions=Discrete(2)), squash=True)
    with pytest.raises(UserError, match="does not normalise; set it to false, or choose --network auto"):
        make(function="with_dropout", normalize_observation=True)
    with pytest.raises(UserError, match="shows images, which are scaled anyway"):
        make(problem=replace(LEVELS, observation_shape=(3, 8, 8)), normalize_observation=True)


def test_a_teachers_actions_are_stored_as_samples_of_a_squashed_policy():
    teaching = replace(LEVELS, teacher=lambda env: env._bits() - 0.5)
    learner = make(problem=teaching, squash=True, pretrain_bc=100_000, **NORMALISED)
    for _ in range(10):
        learner.step()
    torch.testing.assert_close(learner._collector.rollout.action.tanh().abs(), torch.full((16, 16, 2), 0.5))
    assert learner.evaluate(16, 3).score() > 2850

"""Recurrent PPO on a task of pure memory: a bit is shown when an episode begins and asked for when it ends."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from lockstep.algorithms.ppo.collector import collect
from lockstep.algorithms.ppo.learner import PPOLearner
from lockstep.algorithms.ppo.losses import Minibatch, PPOLoss, Sequences
from lockstep.algorithms.ppo.settings import PPOSettings
from lockstep.compute import random
from lockstep.config.config import Layout, NetworkSettings
from lockstep.distributed.world import World
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError
from lockstep.rl.distributions import CategoricalActions
from lockstep.rl.problem import Discrete, EnvProblem, Forecast
from lockstep.rl.recurrent_policy import LSTMPolicy, start_recurrent
from lockstep.storage import checkpoint


@dataclass(frozen=True, kw_only=True)
class Remembering(NetworkSettings):
    """A network with a memory."""

    recurrent: ClassVar[bool] = True

    def build(self, problem, config):
        raise AssertionError("these tests build it themselves")


CONFIG = Layout(PPOSettings, network=Remembering).config(
    {
        "n_envs": 64,
        "n_steps": 16,
        "sequence_length": 8,
        "batch_size": 256,
        "n_epochs": 4,
        "learning_rate": 1e-2,
        "gamma": 0.9,
        "ent_coef": 0.0,
        "total_timesteps": 10_000_000,
        "threads": 1,
        "device": "cpu",
    }
)


class Recall:
    """Sees (the bit at the first step, else 0; whether it is asked for now). Episodes last 3 to 7 steps, as drawn."""

    observation_shape = (2,)
    action_count = 2

    def __init__(self, index, seed, cuts=False):
        self.index, self.seed, self.count, self.cuts = index, seed, len(index), cuts
        self.episode = torch.zeros_like(index)
        self.time = torch.zeros_like(index)

    def _draw(self, purpose):
        return random.uniform(self.seed, purpose, self.index, self.episode)

    def _length(self):
        return 3 + (self._draw("length") * 5).long()

    def _bit(self):
        return (self._draw("bit") < 0.5).long()

    def _observation(self):
        shown = torch.where(self.time == 0, 2.0 * self._bit() - 1.0, 0.0)
        return torch.stack((shown, (self.time == self._length() - 1).float()), dim=1)

    def reset(self):
        self.episode.zero_(), self.time.zero_()
        return self._observation()

    def step(self, action):
        over = self.time == self._length() - 1
        reward = torch.where(over & (action == self._bit()), 1.0, 0.0)
        self.time += 1
        final = self._observation() if self.cuts else None
        self.episode += over
        self.time[over] = 0
        nothing = torch.zeros_like(over)
        terminated, truncated = (nothing, over) if self.cuts else (over, nothing)
        return Transition(self._observation(), reward, terminated, truncated, final)

    def state(self):
        return {"episode": self.episode.clone(), "time": self.time.clone()}

    def load(self, state):
        self.episode.copy_(state["episode"]), self.time.copy_(state["time"])
        return self._observation()


def make(world=None, cuts=False, separate=False, **changes):
    config = CONFIG.replace(learning_rate_critic=2e-2 if separate else None, **changes)
    world = (world or World()).with_lanes(config.effective_lanes, config.sync_on("cpu"))
    network = LSTMPolicy(2, 2, 16, separate=separate, head_sizes=(16,))
    start_recurrent(network, network.actor, network.critic, torch.Generator().manual_seed(config.run.seed))
    problem = EnvProblem(
        name="recall",
        observation_shape=(2,),
        actions=Discrete(2),
        make_env=lambda index, seed: Recall(index, seed, cuts),
    )
    return PPOLearner(config, world, problem, network)


def share_recalled(learner, remembers=True):
    from lockstep.rl.evaluation import evaluate

    played = evaluate(
        World().with_lanes(8, "fast"), lambda i: Recall(i, 77), learner.policy(remembers), 400, 77, "recall"
    )
    return played.score()


@pytest.mark.parametrize("separate", [False, True])
def test_what_was_shown_at_the_start_is_known_at_the_end_and_without_memory_it_is_not(separate):
    learner = make(separate=separate)
    for _ in range(10):
        learner.step()
    assert share_recalled(learner) > 0.97
    # A guess is right half of the time: within four standard deviations of 400 episodes.
    assert abs(share_recalled(learner, remembers=False) - 0.5) < 0.1
    assert learner.evaluate(100, 5).score() > 0.97


@pytest.mark.parametrize(("length", "sync"), [(1, "fast"), (4, "fast"), (16, "fast"), (8, "exact")])
def test_learning_sees_what_acting_saw(length, sync):
    learner = make(sequence_length=length, sync=sync, grad_accum=2)
    for _ in range(2):
        learner.step()
    collect(learner._collector, learner.updates)
    order = learner._orders()[0]
    learner._choose(order, learner._advantage_moments(order), 1)
    for batches in learner._batches:
        for batch in batches:
            logits, value = batch.ask(learner.model)
            chosen = torch.log_softmax(logits, -1).gather(1, batch.read("action")[:, None]).squeeze(1)
            # Before the first gradient step every sample has the probability and the value that it had.
            torch.testing.assert_close(chosen, batch.read("log_probability"), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(value, batch.read("value"), rtol=1e-4, atol=1e-5)
            assert len(value) == 256 // 2 // len(learner._batches)


def test_every_sample_is_used_exactly_once_an_epoch():
    learner = make()
    order = learner._orders()[1]
    # 64 environments x 2 sequences: 16 of each lane, in 4 minibatches of 32 sequences.
    assert order.shape == (8, 4, 4)
    used = order.flatten()[:, None] + torch.arange(8) * 64
    assert torch.equal(used.flatten().sort().values, torch.arange(64 * 16))


def test_sequences_carry_their_samples_time_first():
    learner = make()
    learner.step()
    batch = learner._batches[0][0]
    time_of = torch.arange(16)[:, None].expand(16, 64).flatten()
    batch.rollout["time"], batch.rollout["env"] = time_of, torch.arange(64).repeat(16)
    times = batch.read("time").view(8, -1)
    assert torch.equal(times - times[0], torch.arange(8)[:, None].expand(8, 32))
    assert set(times[0].tolist()) <= {0, 8}
    envs = batch.read("env").view(8, -1)
    assert torch.equal(envs, envs[:1].expand(8, 32))


def test_a_cut_episode_is_valued_with_its_memory_and_the_next_begins_without():
    learner = make(cuts=True)
    learner.step()
    collector = learner._collector
    seen = []
    value, forget = collector._policy.value, collector._policy.forget
    collector._policy.value = lambda observation: seen.append(collector._policy.memory[0].clone()) or value(observation)
    collector._policy.forget = lambda ended: seen.append(ended.clone()) or forget(ended)
    collect(collector, 1)
    collector.estimate()
    for memory, ended in zip(seen[0:-1:2], seen[1:-1:2], strict=True):
        assert bool(memory[ended].any(1).all())
    assert bool(collector._policy.memory[0][seen[-2]].eq(0).all())
    rollout = collector.rollout
    assert bool((rollout.bootstrap[rollout.ended] != 0).all()) and not bool(rollout.bootstrap[~rollout.ended].any())


def test_accumulated_parts_give_the_same_update_up_to_rounding():
    whole, parts = make(), make(grad_accum=4)
    whole.step(), parts.step()
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_critics_rate_is_its_own():
    learner = make(separate=True)
    learner.step()
    assert [group["lr"] for group in learner._optimizer._adam.param_groups] == [1e-2, 2e-2]
    names = dict(learner.model.named_parameters())
    fast = {id(parameter) for parameter in learner._optimizer._adam.param_groups[1]["params"]}
    assert {name.split(".")[0] for name, value in names.items() if id(value) in fast} == {"critic", "critic_lstm"}


SMALL = {"n_envs": 8, "n_steps": 8, "batch_size": 64, "n_epochs": 1}


def train_and_save(world, folder):
    """Train, save, train on; returns the hash of the weights. Called by every rank."""
    learner = make(world, sync="exact", **SMALL)
    learner.step(), learner.step()
    own = world.with_lanes(8, "exact")
    checkpoint.save(folder, learner.state(), world=own, step=learner.steps, workload="recall", extra={})
    learner.step(), learner.step()
    return checkpoint.weights_hash(dict(learner.model.state_dict()))


def resume(world, path):
    """Go on from a checkpoint. Called by every rank."""
    learner = make(world, sync="exact", **SMALL)
    snapshot = checkpoint.load(path, world.with_lanes(8, "exact").lanes.mine)
    assert snapshot.lanes[world.with_lanes(8, "exact").lanes.mine[0]]["memory.1"].shape == (1, 16)
    learner.load(snapshot)
    learner.step(), learner.step()
    return checkpoint.weights_hash(dict(learner.model.state_dict()))


def test_memories_are_saved_with_their_lanes_for_any_number_of_ranks(ranks, tmp_path):
    undisturbed = ranks.run(train_and_save, str(tmp_path), ranks=2)
    (path,) = (tmp_path / "checkpoints").glob("step-*")
    assert set(ranks.run(resume, str(path), ranks=3)) == set(undisturbed)
    assert set(ranks.run(resume, str(path), ranks=1)) == set(undisturbed)


def train_with_seeds(world, seeds):
    """A short training for each seed; returns the hashes of the weights. Called by every rank."""
    hashes = []
    for seed in range(*seeds):
        learner = make(world, seed=seed, **SMALL)
        learner.step(), learner.step()
        hashes.append(checkpoint.weights_hash(dict(learner.model.state_dict())))
    return hashes


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_with_unequal_episode_ends_never_wait_for_each_other(ranks, size):
    hashes = ranks.run(train_with_seeds, (0, 20), ranks=size, timeout=120)
    assert all(one == hashes[0] for one in hashes) and len(set(hashes[0])) == 20


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_nor_with_two_hundred_seeds(ranks, size):
    hashes = ranks.run(train_with_seeds, (20, 220), ranks=size, timeout=550)
    assert all(one == hashes[0] for one in hashes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence_length": 5}, "sequence_length 5 does not divide n_steps 16; nearest: 4"),
        (
            {"batch_size": 32},
            "multiple of lanes x grad_accum x sequence_length = 8 x 1 x 8 = 64; nearest: 64",
        ),
    ],
)
def test_sequences_must_fill_roll_outs_and_batches(changes, message):
    with pytest.raises(UserError) as caught:
        CONFIG.replace(**changes)
    assert message in str(caught.value)


class Forecaster(torch.nn.Module):
    """Predicts 1 at every step."""

    def sequence(self, observation, memory, keep):
        steps, count = keep.shape
        return torch.zeros(steps, count, 2), torch.zeros(steps, count), torch.ones(steps, count, 1)


def test_forecasts_are_compared_with_the_next_step_of_the_same_episode():
    # Two environments, three steps, one sequence each; the first environment's episode ends after its first step.
    rollout = {
        "observation": torch.tensor([[5.0], [6.0], [2.0], [4.0], [1.0], [3.0]]),
        "ended": torch.tensor([True, False, False, False, False, False]),
        "action": torch.zeros(6, dtype=torch.int64),
        **{name: torch.zeros(6) for name in ("log_probability", "advantage", "target", "value")},
    }
    batch = Minibatch(rollout, torch.tensor([0, 1]), torch.zeros(2), 1 / 6, Sequences(3, 2, ()))
    loss = PPOLoss(Forecaster(), CategoricalActions(), 0.2, None, 0.0, 0.0, False, Forecast(0.5, lambda seen: seen))
    total, metrics = loss(batch)
    # Environment 0: only 1 -> 1 counts, no error. Environment 1: predicted 1, came 4 and 3: 9 + 4.
    assert metrics["forecast_loss"].item() == pytest.approx(13 / 6)
    assert total.item() == pytest.approx(0.5 * 13 / 6)

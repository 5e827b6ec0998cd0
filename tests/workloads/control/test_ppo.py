"""Control learned by PPO, without code for this combination."""

import pytest

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads.control.workload import Control


def text(**changes):
    """A short run on Gymnasium's pendulum, which is always installed."""
    small = {"task": "Pendulum-v1", "episode_length": 12, "n_steps": 8, "batch_size": 32, "n_envs": 8, "lanes": 4}
    config = Control().preset("debug", algorithm="ppo").replace(device="cpu", threads=1, **{**small, **changes})
    return to_yaml(Control().fit(config, ())[0])


def fingerprint(learner):
    return weights_hash(dict(learner.model.state_dict()))


def train(world, config_text, updates):
    """The hash of the weights after some updates. Called by every rank."""
    learner = open_learner(world, "control", config_text)
    for _ in range(updates):
        learner.step()
    return fingerprint(learner)


def test_the_configuration_has_the_settings_of_ppo_and_of_control():
    config = Control().preset("debug", algorithm="ppo")
    assert (config.run.algorithm, config.run.network) == ("ppo", "mlp")
    assert config.algorithm.n_envs == 8 and config.workload.episode_length == 20 and config.run.eval_every == 200


def test_a_resumed_run_continues_bitwise_identically():
    undisturbed, resumed = (open_learner(World(), "control", text()) for _ in range(2))
    first = fingerprint(undisturbed)
    for _ in range(2):
        reports = undisturbed.step()
    # Episodes have 12 steps and updates 8, so the first episodes end in the second update.
    assert reports[0]["rollout/length_mean"].minimum == reports[0]["rollout/length_mean"].maximum == 12
    snapshot = undisturbed.state()
    resumed.load(snapshot)
    undisturbed.step(), resumed.step()
    assert fingerprint(undisturbed) == fingerprint(resumed) != first
    evaluation = undisturbed.evaluate(3, seed=1)
    assert evaluation.lengths == [12] * 3 and len(set(evaluation.returns)) == 3


def test_exact_mode_gives_the_same_weights_on_any_number_of_ranks(ranks):
    config = text(sync="exact")
    assert len({*ranks.run(train, config, 2, ranks=1), *ranks.run(train, config, 2, ranks=3)}) == 1


@pytest.mark.slow
def test_returns_rise_during_training():
    pytest.importorskip("dm_control")
    changes = {"task": "cartpole-balance", "episode_length": 250, "n_steps": 250, "batch_size": 500, "n_epochs": 10}
    learner = open_learner(
        World(), "control", text(**changes, learning_rate=1e-3, ent_coef=0.0, total_timesteps=40_000)
    )
    earned = []
    while not learner.done():
        earned.append(learner.step()[0]["rollout/return_mean"].mean)
    # A step earns 2 at most; at the start the noise of the policy throws the pole over.
    assert len(earned) == 20 and sum(earned[-3:]) > sum(earned[:3]) + 3 * 20

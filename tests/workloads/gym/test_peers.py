"""PPO beside Stable-Baselines3's: from the same weights and the same rollout both take the same step."""

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="stable_baselines3 is not installed")

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.workloads import registry

ENVS, STEPS, EPOCHS = 4, 64, 3
# One batch an epoch: with smaller ones the two programs would shuffle differently.
BATCH = ENVS * STEPS
LAYERS = {
    "actor.0": "mlp_extractor.policy_net.0",
    "actor.2": "mlp_extractor.policy_net.2",
    "actor.4": "action_net",
    "critic.0": "mlp_extractor.value_net.0",
    "critic.2": "mlp_extractor.value_net.2",
    "critic.4": "value_net",
}


def ours():
    """A learner after two updates, in the middle of episodes that are truncated after 50 steps."""
    sizes = {"n_envs": ENVS, "n_steps": STEPS, "batch_size": BATCH, "n_epochs": EPOCHS, "total_timesteps": 100 * BATCH}
    run = {"device": "cpu", "threads": 1, "env_workers": 1, "max_episode_steps": 50}
    # The loss has half the squared error of the value, Stable-Baselines3's the whole.
    config = (
        registry.load("gym")
        .preset("base")
        .replace(env_id="Pendulum-v1", vf_coef=1.0, normalize_observation=True, normalize_reward=True, **sizes, **run)
    )
    learner = open_learner(World(), "gym", to_yaml(config))
    for _ in range(2):
        learner.step()
    return learner


def theirs(learner):
    """Their PPO with the learner's weights and Adam's moments."""
    envs = make_vec_env("Pendulum-v1", ENVS)
    sizes = {"n_steps": STEPS, "batch_size": BATCH, "n_epochs": EPOCHS}
    model = PPO("MlpPolicy", envs, learning_rate=3e-4, vf_coef=0.5, device="cpu", **sizes)
    model.set_logger(Logger(None, []))
    moments = learner._optimizer.state()
    for name, value in learner.model.named_parameters():
        parameter = named(model, name)
        parameter.data.copy_(value)
        kept = {kind: moments[f"{kind}.{name}"].clone() for kind in ("exp_avg", "exp_avg_sq", "step")}
        model.policy.optimizer.state[parameter] = kept
    return model


def named(model, name):
    """Their parameter for one of ours."""
    layer, _, kind = name.rpartition(".")
    return dict(model.policy.named_parameters())[f"{LAYERS[layer]}.{kind}" if layer else name]


def test_an_update_is_that_of_stable_baselines3():
    learner = ours()
    model, normaliser = theirs(learner), learner.model.normaliser
    before = {name: value.detach().clone() for name, value in learner.model.named_parameters()}
    mean, deviation = normaliser.mean.numpy().copy(), np.sqrt(normaliser.variance.numpy() + 1e-8)

    def normalised(observation):
        # As their VecNormalize does; the moments are those with which the rollout was made.
        return np.clip((observation.numpy() - mean) / deviation, -10, 10).astype(np.float32)

    learner.step()
    collector = learner._collector
    rollout, buffer = collector.rollout, model.rollout_buffer
    assert rollout.bootstrap.count_nonzero() == ENVS, "each environment's episode was cut off once"
    reward = (rollout.reward * learner._reward_scale.factor).clamp(-10, 10) + rollout.bootstrap
    begins = np.ones(ENVS)
    for t in range(STEPS):
        seen, action = normalised(rollout.observation[t]), rollout.action[t].numpy()
        buffer.add(seen, action, reward[t].numpy(), begins, rollout.value[t], rollout.log_probability[t])
        begins = rollout.ended[t].float().numpy()
    with torch.no_grad():
        last = model.policy.predict_values(torch.from_numpy(normalised(collector.observation)))
    buffer.compute_returns_and_advantage(last, begins)
    np.testing.assert_allclose(buffer.advantages, rollout.advantage.numpy(), atol=1e-5)
    np.testing.assert_allclose(buffer.returns, rollout.target.numpy(), atol=1e-5)
    model.train()
    weights = {name: value.detach() for name, value in learner.model.named_parameters()}
    # Adam moves weights by up to the learning rate, 3e-4, in every epoch; what is left is rounding.
    assert max(float((value - before[name]).abs().max()) for name, value in weights.items()) > 3e-4
    for name, value in weights.items():
        assert float((value - named(model, name).detach()).abs().max()) < 1e-6, name

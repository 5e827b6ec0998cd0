"""sb3-contrib's RecurrentPPO on the same accounts, with the same sizes."""

import pytest
import torch

from lockstep.errors import UserError
from lockstep.workloads.trading import peers
from lockstep.workloads.trading.workload import Trading


def test_recurrent_ppo_trades_the_same_market_with_the_same_sizes():
    pytest.importorskip("sb3_contrib")
    config = Trading().preset("debug")
    learner = peers.sb3_learner(config, "cpu")
    assert (learner.n_envs, learner.n_steps, learner.batch_size, learner.n_epochs) == (16, 8, 64, 2)
    assert learner.policy.lstm_actor.input_size == 430 and learner.policy.lstm_actor.hidden_size == 32
    assert learner.policy.lstm_critic is not None
    before = learner.policy.action_net.weight.clone()
    assert peers.train_with_sb3(config, 4, "cpu") == 4 * 128
    assert learner.num_timesteps == 4 * 128
    assert not torch.equal(before, learner.policy.action_net.weight)
    assert len(learner.ep_info_buffer or []) == 0


def test_the_peer_refuses_a_network_without_memory():
    pytest.importorskip("sb3_contrib")
    with pytest.raises(UserError, match="network mlp has none; use --network lstm"):
        peers.train_with_sb3(Trading().preset("debug", network="mlp"), 1, "cpu")

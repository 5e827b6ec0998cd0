"""Environments that begin new episodes after a resume: nothing of the lost ones is counted or learned with them."""

from pathlib import Path

import pytest

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.reporting.metrics import reduce
from lockstep.workloads import registry

HERE = Path(__file__).parent
RECURRENT = {"lstm_size": 8, "batch_size": 128}
TINY_WORLD_MODEL = {
    "num_envs": 4, "n_steps": 32, "seed_steps": 64, "pretrain_updates": 1, "updates_per_step": 0.05, "batch_size": 16,
    "buffer_size": 2000, "steps": 4000, "enc_dim": 16, "mlp_dim": 16, "latent_dim": 16, "num_q": 2, "mpc": False,
}  # fmt: skip


def config(algorithm, source, **changes):
    chosen = registry.load("gym").preset("debug", algorithm=algorithm)
    return chosen.replace(
        env_id=f"{HERE / source}", resume_by="restart", env_workers=1, threads=1, sync="fast", **changes
    )


def resumed_in_mid_episode(settings):
    """A learner after one round, and another that goes on from its state."""
    world, text = World(), to_yaml(settings)
    first = open_learner(world, "gym", text)
    first.step()
    later = open_learner(world, "gym", text)
    later.load(first.state())
    return world, first, later


@pytest.mark.parametrize(("algorithm", "changes"), [("ppo", RECURRENT), ("tdmpc2", TINY_WORLD_MODEL)])
def test_the_first_episode_after_a_restart_is_counted_from_its_own_start(algorithm, changes):
    world, _, later = resumed_in_mid_episode(config(algorithm, "gym_envs.py:FiftySteps", **changes))
    # Rounds of 32 steps: the lost episodes had 32 steps, and the new ones end after 50, in the second round.
    rounds = [reduce(later.step(), world) for _ in range(2)]
    assert rounds[0]["rollout/length_mean"].count == 0
    assert rounds[1]["rollout/length_mean"].mean == 50 and rounds[1]["rollout/return_mean"].mean == 50


def test_a_new_episode_does_not_begin_with_the_lost_ones_recurrent_state():
    _, first, later = resumed_in_mid_episode(config("ppo", "gym_envs.py:FiftySteps", **RECURRENT))
    before, after = (learner.state().lanes[0]["memory.0"] for learner in (first, later))
    assert before.abs().max() > 0 and after.abs().max() == 0


def test_no_sequence_of_steps_reaches_from_a_lost_episode_into_a_new_one():
    _, first, later = resumed_in_mid_episode(config("tdmpc2", "gym_envs.py:FiftySteps", **TINY_WORLD_MODEL))
    before, after = (learner.state().lanes[0]["memory.next_age"] for learner in (first, later))
    assert (before == 32).all() and (after == 0).all()


def test_what_followed_a_teams_last_step_is_not_the_new_episodes_first_observation():
    pytest.importorskip("pettingzoo")
    team = config("maddpg", "relay.py:Steady", n_steps=16)
    world, first, later = resumed_in_mid_episode(team)
    before, after = (learner.state().lanes[0]["memory.cut"] for learner in (first, later))
    # Episodes of 10 steps: the tenth row is an end, the sixteenth is where the lost episodes break off.
    assert before.flatten().nonzero().flatten().tolist() == [9]
    assert after.flatten().nonzero().flatten().tolist() == [9, 15]
    # The new ones begin with the 17th row: 10 steps later they end for the first time.
    assert reduce(later.step(), world)["rollout/length_mean"].mean == 10

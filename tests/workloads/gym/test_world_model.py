"""TD-MPC2 on an environment from outside: one model on any number of ranks, a resume to the same bits, actions."""

import gymnasium
import numpy as np
import pytest

import lockstep
from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads import registry

SETTINGS = {
    "env_id": "Pendulum-v1", "max_episode_steps": 50, "sync": "exact", "threads": 1, "device": "cpu", "eval_every": 0,
}  # fmt: skip
UPDATES = 3
"""Rounds of 10 steps in each of 4 environments; learning begins with the second one."""


@pytest.mark.slow
def test_one_and_two_ranks_train_the_same_model(ranks, tmp_path):
    text = to_yaml(registry.load("gym").preset("debug", algorithm="tdmpc2").replace(**SETTINGS))
    answers = []
    for size in (1, 2):
        (tmp_path / str(size)).mkdir()
        arguments = ("gym", text, UPDATES, str(tmp_path / str(size)))
        answers.append(ranks.run("lockstep.cli.short_runs:train_briefly", *arguments, ranks=size)[0])
    assert answers[0]["sha256"] == answers[1]["sha256"]
    assert answers[0]["metrics"]["train/gradient_updates"] > 0


def test_a_resumed_run_ends_in_the_same_bits_and_acts_within_the_bounds(tmp_path, capsys):
    settings = SETTINGS | {"preset": "debug", "algorithm": "tdmpc2", "runs_dir": tmp_path, "quiet": True}
    whole = lockstep.train("gym", max_updates=UPDATES, **settings)
    # After 20 steps an episode is still going on.
    lockstep.train("gym", max_updates=2, run_name="stopped", **settings)
    resumed = lockstep.train("gym", max_updates=UPDATES, run_name="stopped", **settings)
    assert weights_hash(whole.weights()) == weights_hash(resumed.weights())
    env = gymnasium.make("Pendulum-v1")
    policy, (observation, _) = lockstep.load(resumed), env.reset(seed=1)
    assert env.action_space.contains(policy.act(observation))
    assert policy.act(np.stack([observation] * 3)).shape == (3, 1)
    assert main(["eval", str(resumed.path), "--episodes", "1", "--json"]) == 0
    assert '"length_mean": 50.0' in capsys.readouterr().out

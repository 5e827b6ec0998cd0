import os

import pytest

from lockstep.launch import rank_process
from lockstep.run import requested_run
from lockstep.run.requested_run import RequestedRun
from lockstep.workloads import registry


def wanted():
    snake = registry.load("snake").preset("debug")
    return RequestedRun(snake.replace(gamma=0.97, autotune=True), snake.replace(gamma=0.97, n_envs=64), ("a note",))


@pytest.fixture
def rank_of_ours(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(rank_process.LAUNCHER_VARIABLE, "1")


def test_a_rank_receives_what_its_launcher_resolved(rank_of_ours):
    with requested_run.handed_over(wanted()):
        assert requested_run.received(registry.load("snake").read_config) == wanted()
    assert requested_run.VARIABLE not in os.environ


def test_a_process_that_is_no_rank_of_our_launcher_reads_its_own_words(rank_of_ours, monkeypatch):
    assert requested_run.received(registry.load("snake").read_config) is None
    with requested_run.handed_over(wanted()):
        monkeypatch.delenv(rank_process.LAUNCHER_VARIABLE)
        assert requested_run.received(registry.load("snake").read_config) is None


def test_a_name_is_given_to_both_configurations():
    named = wanted().named("one")
    assert (named.asked.run.run_name, named.config.run.run_name) == ("one", "one")
    assert named.config.algorithm.n_envs == 64

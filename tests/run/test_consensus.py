"""What ranks were given, compared: one line names the first rank that differs and the first thing in which it does."""

from pathlib import Path

import pytest
import torch

from lockstep.config.sources import to_yaml
from lockstep.distributed.nccl import Carrier
from lockstep.distributed.pool import RankError
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.run import consensus, session
from lockstep.run.consensus import Fact
from lockstep.storage.run_directory import RunDirectory
from lockstep.workloads import registry

SAME_SETTINGS = "all ranks of a run need the same settings; start them with the same command"


def snake(**settings):
    return registry.load("snake").preset("debug").replace(**settings)


def stated(workload="snake", world=None, **settings):
    return consensus.facts_of(workload, snake(**settings), world or World())


def test_ranks_that_were_given_the_same_do_not_differ():
    assert consensus.difference([stated(), stated(), stated()]) is None


def test_the_first_rank_that_differs_and_its_first_setting_are_named_with_both_values():
    facts = [stated(), stated(), stated(gamma=0.5, ent_coef=0.9), stated(ent_coef=0.2)]
    first = next(fact.name for fact in stated() if fact.name in ("gamma", "ent_coef"))
    mine, theirs = snake().values()[first], {"gamma": 0.5, "ent_coef": 0.9}[first]
    assert consensus.difference(facts) == f"rank 2 was given {first} {theirs}, rank 0 {mine}: {SAME_SETTINGS}"


def test_a_difference_in_one_bit_of_a_number_is_one():
    assert consensus.difference([stated(gamma=0.99), stated(gamma=0.9900000000000001)]) == (
        f"rank 1 was given gamma 0.9900000000000001, rank 0 0.99: {SAME_SETTINGS}"
    )


def test_modes_lanes_and_workloads_are_compared():
    assert "rank 1 was given sync exact, rank 0 auto" in consensus.difference([stated(), stated(sync="exact")])
    assert "rank 1 was given lanes 4, rank 0 8" in consensus.difference([stated(lanes=8), stated(lanes=4)])
    assert "rank 1 was given workload trading, rank 0 snake" in consensus.difference([stated(), stated("trading")])


def test_another_version_is_named_before_the_settings_that_may_come_of_it(monkeypatch):
    ours, version = stated(), torch.__version__
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert consensus.difference([ours, stated(gamma=0.5)]) == (
        f"rank 1 has torch 2.99.0, rank 0 {version}: all ranks of a run need the same versions; install "
        "one of the two everywhere"
    )
    monkeypatch.setattr(consensus, "__version__", "9.9.9")
    assert consensus.difference([ours, stated()]).startswith("rank 1 has Lockstep 9.9.9, rank 0 ")


def test_devices_and_the_versions_of_nccl_are_compared():
    gpu = World(device=torch.device("cuda"), carrier=Carrier("nccl", version="2.27.5"))
    newer = World(device=torch.device("cuda"), carrier=Carrier("nccl", version="2.30.7"))
    assert "rank 1 computes on device cpu, rank 0 cuda" in consensus.difference([stated(world=gpu), stated()])
    assert "rank 1 has NCCL 2.30.7, rank 0 2.27.5" in consensus.difference([stated(world=gpu), stated(world=newer)])


def test_what_belongs_to_a_machine_may_differ():
    other = {"runs_dir": "/mnt/runs", "device": "cpu", "threads": 3, "timeout": 60.0}
    assert consensus.difference([stated(), stated(**other)]) is None
    paths = registry.load("cricket").preset("debug")
    assert "data" not in paths.shared_settings()


def test_in_exact_the_threads_belong_to_the_experiment():
    facts = [stated(sync="exact", threads=1), stated(sync="exact", threads=2)]
    assert consensus.difference(facts) == f"rank 1 was given threads 2, rank 0 1: {SAME_SETTINGS}"


def test_other_data_is_refused_by_its_digest():
    assert consensus.difference([consensus.data_facts("ab"), consensus.data_facts("ab")]) is None
    assert consensus.difference([consensus.data_facts("ab"), consensus.data_facts("cd")]) == (
        "rank 1 reads data with digest cd, rank 0 ab: all ranks of a run need the same data; copy it to every machine"
    )
    assert "rank 1 reads data with digest none" in consensus.difference(
        [consensus.data_facts("ab"), consensus.data_facts("")]
    )


def test_one_rank_agrees_with_itself():
    config = snake(gamma=0.9)
    assert consensus.settle(World(), "snake", config, config) == config


def raise_on_all(world, values):
    try:
        consensus.compare(world, [Fact("was given", "gamma", values[world.rank])])
    except UserError as error:
        return str(error)
    return None


def test_all_ranks_end_with_the_same_line(ranks):
    told = ranks.run(raise_on_all, [0.99, 0.99, 0.5], ranks=3)
    assert told == [f"rank 2 was given gamma 0.5, rank 0 0.99: {SAME_SETTINGS}"] * 3
    assert ranks.run(raise_on_all, [0.5, 0.5, 0.5], ranks=3) == [None] * 3


def settle_sizes(world, sizes):
    asked = snake(autotune=True)
    fitted = asked.replace(n_envs=sizes[world.rank], runs_dir=f"/runs-{world.rank}")
    return to_yaml(consensus.settle(world, "snake", asked, fitted))


def test_sizes_that_unlike_machines_would_choose_are_chosen_by_rank_0_for_all(ranks):
    first, second = ranks.run(settle_sizes, [64, 128], ranks=2)
    assert "n_envs: 64\n" in first and "runs_dir: /runs-0\n" in first
    assert second == first.replace("/runs-0", "/runs-1"), "only what belongs to a machine stays its own"


def train_on_other_data(world, folder):
    class Learner:
        data_digest = f"digest-{world.rank}"

    session.train(RunDirectory(Path(folder) / "run"), "snake", snake(), world, lambda *_: Learner(), [])


def test_ranks_with_different_data_take_no_step_and_leave_no_run(ranks, tmp_path):
    with pytest.raises(RankError, match=r"UserError: rank 1 reads data with digest digest-1, rank 0 digest-0"):
        ranks.run(train_on_other_data, str(tmp_path), ranks=2)
    assert list(tmp_path.iterdir()) == []

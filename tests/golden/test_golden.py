"""What must not move: weights and metrics after 20 updates in exact mode, recorded once, on 1 and on 3 ranks.

A change of structure shows here that it changed nothing that a run computes. A change of arithmetic is recorded anew:

    python tests/golden/test_golden.py        writes golden.json; say in the commit why the numbers moved

Hashes hold for one kind of processor and one build of torch; elsewhere the tests are skipped.
"""

import json
import platform
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.pool import RankPool
from lockstep.reporting.metrics import reduce
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads import registry

FILE = Path(__file__).with_name("golden.json")
UPDATES = 20
HERE = f"{platform.machine()}, torch {torch.__version__}"
CASES = {
    **{name: (name, {}) for name in registry.names()},
    "snake with frame stacks": ("snake", {"frame_stack": 4, "policy_arch": "deep", "distance_reward_scale": 0.1}),
    "snake with cloning": ("snake", {"pretrain_bc": 5 * 256}),
    "snakes3v3 with bicnet": ("snakes3v3", {"algo": "bicnet", "observation": "guide30", "reward": "guide"}),
    "trading with two LSTMs": ("trading", {"lstms": "two", "sequence_length": 8, "n_epochs": 3}),
    "trading with clstm": ("trading", {"network": "clstm", "hidden_size": 16}),
    "control with mt30": (
        "control",
        {"task": "mt30", "num_envs": 30, "lanes": 3, "batch_size": 18, "seed_steps": 120, "steps": 3000},
    ),
    "control from data": ("control", {"data_dir": "episodes"}),
    "cricket with the whole graph": ("cricket", {"drop_relations": "", "model": "full", "members": 2}),
}
"""What is trained: the debug preset of a workload, and what differs from it."""
QUICK = tuple(registry.names())


def train(world, workload, text):
    """Train for some updates; returns the hash of the weights and the last metrics. Called by every rank."""
    learner = open_learner(world, workload, text)
    last = {}
    for _ in range(UPDATES):
        if learner.done():
            break
        last |= {tag: stat.mean for tag, stat in reduce(learner.advance(), world).items() if stat.count}
    steady = {tag: value for tag, value in last.items() if not tag.startswith("time/")}
    return {"sha256": weights_hash(dict(learner.model.state_dict())), "updates": learner.updates, "metrics": steady}


def configuration(case, folder):
    """The YAML text of a case."""
    workload, changes = CASES[case]
    chosen = registry.load(workload)
    if "data_dir" in changes:
        changes = changes | {"data_dir": str(record_episodes(chosen, folder))}
    fixed = {"sync": "exact", "threads": 1, "device": "cpu", "log_every": 1}
    config = chosen.preset("debug", network=changes.get("network", ""))
    return workload, to_yaml(config.replace(**fixed, **changes))


def record_episodes(workload, folder):
    """Episodes of random actions, to learn from."""
    place = Path(folder) / "episodes"
    workload.record_episodes(workload.preset("debug"), "random", 16, 7, place)
    return place


def measured(pool, case, ranks, folder):
    """What every rank answers, which must be the same."""
    answers = pool.run(train, *configuration(case, folder), ranks=ranks, timeout=550)
    assert all(answer["sha256"] == answers[0]["sha256"] for answer in answers)
    return answers[0]


def check(pool, case, ranks, folder):
    known = json.loads(FILE.read_text())
    if HERE not in known:
        pytest.skip(f"recorded for {', '.join(known)}, and this is {HERE}")
    assert measured(pool, case, ranks, folder) == known[HERE][case]


@pytest.mark.parametrize("case", QUICK)
def test_a_debug_run_ends_in_the_recorded_weights_on_three_ranks(ranks, case, tmp_path):
    check(ranks, case, 3, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ranks_used", [1, 3])
@pytest.mark.parametrize("case", [case for case in CASES if case not in QUICK])
def test_a_larger_run_ends_in_the_recorded_weights(ranks, case, ranks_used, tmp_path):
    check(ranks, case, ranks_used, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", QUICK)
def test_a_debug_run_ends_in_the_recorded_weights_on_one_rank(ranks, case, tmp_path):
    check(ranks, case, 1, tmp_path)


def main():
    """Record all cases, on one rank."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    found = known[HERE] = known.get(HERE, {})
    wanted = sys.argv[1:] or list(CASES)
    with RankPool(1) as pool:
        for case in wanted:
            with tempfile.TemporaryDirectory() as folder:
                found[case] = measured(pool, case, 1, folder)
            print(case, found[case]["sha256"][:16], found[case]["updates"], flush=True)
            FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

"""Where a run starts, for every workload: an earlier checkpoint, a branch of another run, the weights of a model."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from lockstep.config.sources import to_yaml
from lockstep.run import session
from lockstep.run.starting_point import StepBack, step_back
from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.checkpoint_retention import steps_on_disk
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.weights import load_weights
from lockstep.workloads import registry

UPDATES = 2


def text_of(workload, **changes):
    settings = {"threads": 1, "device": "cpu", "checkpoint_every": 1, "keep": 0, "eval_every": 0}
    settings |= {"max_updates": UPDATES}
    return to_yaml(registry.load(workload).preset("debug").replace(**settings | changes))


def conduct(world, workload, text, path, back=None):
    """Train a run to its end, like the command. Called by every rank."""
    chosen = registry.load(workload)
    config, run = chosen.read_config(text), RunDirectory(Path(path))
    learner = session.train(
        run,
        chosen.target,
        config,
        world,
        chosen.build,
        [],
        step_back=StepBack(**back) if back else None,
        reader=chosen,
    )
    return {"sha256": weights_hash(dict(learner.model.state_dict())), "updates": learner.updates}


@pytest.fixture(params=registry.names())
def workload(request):
    return request.param


def outcome(ranks, size, workload, text, path, back=None):
    answers = ranks.run(conduct, workload, text, str(path), back and asdict(back), ranks=size)
    assert len({answer["sha256"] for answer in answers}) == 1
    return answers[0]["sha256"]


@pytest.mark.parametrize(("sync", "first_on", "then_on"), [("fast", 2, 2), ("exact", 2, 1)])
def test_going_back_and_branching_end_in_the_undisturbed_runs_bits(ranks, tmp_path, workload, sync, first_on, then_on):
    text = text_of(workload, sync=sync)
    undisturbed = outcome(ranks, first_on, workload, text, tmp_path / "run")
    first, *later = steps_on_disk(tmp_path / "run")
    assert len(later) == UPDATES - 1

    branch = text_of(workload, sync=sync, branch_from=str(first))
    assert outcome(ranks, then_on, workload, branch, tmp_path / "branch") == undisturbed
    # The branch holds the checkpoint that it started from: it does not need the other run any more.
    assert [path.name for path in steps_on_disk(tmp_path / "branch")] == [path.name for path in (first, *later)]

    back = step_back(RunDirectory(tmp_path / "run"), first.name)
    assert outcome(ranks, then_on, workload, text, tmp_path / "run", back) == undisturbed
    (aside,) = (tmp_path / "run" / "aside").iterdir()
    assert {path.name for path in (aside / "checkpoints").iterdir()} == {path.name for path in later}
    assert (aside / "final").is_dir() and (aside / "metrics.jsonl").is_file()
    steps = [row["step"] for row in RunDirectory(tmp_path / "run").log_points()]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("sync", ["fast", "exact"])
def test_a_warm_start_is_a_new_run_with_the_old_weights(ranks, tmp_path, workload, sync):
    old = text_of(workload, seed=7, sync=sync, max_updates=1)
    model = outcome(ranks, 1, workload, old, tmp_path / "old")
    text = text_of(workload, sync=sync, load_model=str(tmp_path / "old"), max_updates=1, lr_warmup=10**9)
    answers = {size: outcome(ranks, size, workload, text, tmp_path / f"new-{size}") for size in (1, 2)}
    assert len(set(answers.values())) == 1 or sync == "fast"
    # A learning rate of next to nothing: what the first update leaves behind is what it started from.
    stored, loaded = (load_weights(tmp_path / name)[0] for name in ("old", "new-2"))
    assert model == weights_hash(stored)
    trained = [name for name, value in stored.items() if value.is_floating_point()]
    assert trained and max(float((stored[n] - loaded[n]).abs().max()) for n in trained) < 1e-2


def test_a_restart_after_going_back_does_not_go_back_again(ranks, tmp_path):
    text = text_of("snake", max_updates=3)
    outcome(ranks, 1, "snake", text, tmp_path / "run")
    first, second, _ = steps_on_disk(tmp_path / "run")
    back = step_back(RunDirectory(tmp_path / "run"), first.name)
    outcome(ranks, 1, "snake", text_of("snake", max_updates=2), tmp_path / "run", back)
    assert [path.name for path in steps_on_disk(tmp_path / "run")] == [first.name, second.name]
    # As after a crash: the launcher starts the ranks again with what it was told.
    outcome(ranks, 1, "snake", text, tmp_path / "run", back)
    assert len(steps_on_disk(tmp_path / "run")) == 3
    assert len(list((tmp_path / "run" / "aside").iterdir())) == 1


def test_a_model_that_one_rank_cannot_read_stops_all_of_them(ranks, tmp_path):
    torch.save({"other": torch.zeros(2)}, tmp_path / "model.pth")
    text = text_of("snake", load_model=str(tmp_path / "model.pth"))
    with pytest.raises(Exception, match="none of its weights fit this network") as caught:
        ranks.run(conduct, "snake", text, str(tmp_path / "run"), ranks=2)
    assert caught.value.kind == "UserError"

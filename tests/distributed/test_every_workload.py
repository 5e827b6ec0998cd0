"""What every workload promises, whichever they are: one model on any number of ranks, and an exact way back."""

import json

import pytest
import torch

from lockstep.cli.proof import Proof
from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed import replicas
from lockstep.distributed.pool import RankError
from lockstep.distributed.world import World
from lockstep.storage import checkpoint
from lockstep.workloads import registry

UPDATES = 4


def config_text(workload, **changes):
    return to_yaml(registry.load(workload).preset("debug").replace(threads=1, device="cpu", **changes))


@pytest.fixture(params=registry.names())
def workload(request):
    return request.param


def briefly(ranks, size, workload, text, folder, updates=UPDATES):
    place = folder / f"{size}-{updates}-{abs(hash(text)) % 1000}"
    place.mkdir(exist_ok=True)
    arguments = (workload, text, updates, str(place))
    return ranks.run("lockstep.cli.short_runs:train_briefly", *arguments, ranks=size)[0], place


def test_fast_mode_on_two_ranks_is_one_rank_up_to_rounding(ranks, workload, tmp_path):
    chosen = registry.load(workload)
    config = chosen.preset("debug").replace(device="cpu")
    proof = Proof(ranks, chosen, config, UPDATES, tmp_path).fast([1, 2])
    assert all(row.holds for row in proof.rows), proof
    # The yardstick is rounding: some units in the last place of fp32, not what a mistake would hide behind.
    assert proof.yardstick.weights < 1e-4 and proof.yardstick.optimizer < 1e-4


# Three ranks are compared with the recorded run of one in tests/golden.
@pytest.mark.parametrize(
    ("sizes", "updates"), [((1, 2, 4), 2), pytest.param((1, 2, 3, 4), UPDATES, marks=pytest.mark.slow)]
)
def test_exact_mode_gives_the_same_bits_on_any_number_of_ranks(ranks, workload, tmp_path, sizes, updates):
    text = config_text(workload, sync="exact")
    answers = [briefly(ranks, size, workload, text, tmp_path, updates)[0] for size in sizes]
    assert len({answer["sha256"] for answer in answers}) == 1
    # The reports of the ranks are added up in lane order too, so even the metrics agree to the last bit.
    assert len({json.dumps(answer["metrics"]) for answer in answers}) == 1


def train_and_save(world, workload, text, folder, before, after):
    """Train, save, train on; returns the final hash. Called by every rank."""
    learner = open_learner(world, workload, text)
    own = world.with_lanes(registry.load(workload).read_config(text).effective_lanes, "fast")
    for _ in range(before):
        learner.step()
    checkpoint.save(folder, learner.state(), world=own, step=learner.steps, workload=workload, extra={})
    for _ in range(after):
        learner.step()
    return checkpoint.weights_hash(dict(learner.model.state_dict()))


def load_and_train(world, workload, text, path, updates):
    """Take up a checkpoint and train on; returns the final hash. Called by every rank."""
    learner = open_learner(world, workload, text)
    own = world.with_lanes(registry.load(workload).read_config(text).effective_lanes, "fast")
    learner.load(checkpoint.load(path, own.lanes.mine))
    for _ in range(updates):
        learner.step()
    return checkpoint.weights_hash(dict(learner.model.state_dict()))


@pytest.mark.parametrize(
    ("sync", "saved_on", "resumed_on"),
    [("fast", 2, 2), pytest.param("exact", 4, 2, marks=pytest.mark.slow), ("exact", 1, 3)],
)
def test_a_resumed_run_ends_in_the_undisturbed_runs_bits(ranks, workload, tmp_path, sync, saved_on, resumed_on):
    text = config_text(workload, sync=sync)
    undisturbed = ranks.run(train_and_save, workload, text, str(tmp_path), 2, 2, ranks=saved_on)
    (path,) = (tmp_path / "checkpoints").glob("step-*")
    resumed = ranks.run(load_and_train, workload, text, str(path), 2, ranks=resumed_on)
    assert set(resumed) == set(undisturbed)


def train_past_the_wrapper(world, workload, text):
    """The mistake of three well-known programs: the loss is computed past DDP, so nothing averages the gradients."""
    learner = open_learner(world, workload, text)
    learner.step()
    for replica in find_replicas(learner):
        if hasattr(replica._module, "module"):
            replica._module = replica._module.module
    for _ in range(2):
        learner.step()
    world.check_replicas(checkpoint.weights_hash(dict(learner.model.state_dict())), "the test")


def find_replicas(learner):
    """Those that the learner or one of its parts holds."""
    parts = [learner, *(part for part in vars(learner).values() if type(part).__module__.startswith("lockstep."))]
    held = [value for part in parts for value in getattr(part, "__dict__", {}).values()]
    found = [value for value in held if isinstance(value, replicas.DDPReplica)]
    assert found
    return found


def test_a_loss_computed_past_the_wrapper_is_caught(ranks, workload):
    with pytest.raises(RankError, match=r"replicas diverged.*rank\(s\) 1") as caught:
        ranks.run(train_past_the_wrapper, workload, config_text(workload), ranks=2)
    assert caught.value.kind == "RunFailed"


def test_model_files_carry_plain_names(workload):
    text = config_text(workload)
    learner = open_learner(World(), workload, text)
    names = list(learner.state().model)
    assert names and not any("module." in name or "_orig_mod" in name for name in names)


def test_a_non_finite_gradient_is_refused_by_all_ranks(ranks, workload):
    for poisoned in (0, 1):
        answers = ranks.run(train_with_poison, workload, config_text(workload), poisoned, ranks=2)
        assert answers[0]["sha256"] == answers[1]["sha256"]
        assert all(answer["finite"] for answer in answers)


def train_with_poison(world, workload, text, poisoned):
    """Poison the weights' gradient on one rank for one update. Called by every rank."""
    learner = open_learner(world, workload, text)
    learner.step()
    parameter = next(learner.model.parameters())
    handle = parameter.register_hook(lambda g: g * float("nan") if world.rank == poisoned else g)
    learner.step()
    handle.remove()
    learner.step()
    weights = dict(learner.model.state_dict())
    finite = all(bool(torch.isfinite(value).all()) for value in weights.values())
    return {"sha256": checkpoint.weights_hash(weights), "finite": finite}

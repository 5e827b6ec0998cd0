"""On a GPU: compiled and recorded training equals eager training up to rounding, and nothing waits for the device."""

import pytest
import torch

from lockstep.distributed.world import World

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def compiled_anew():
    """Reset the compiler for every learner: torch stops compiling after a few variants of a function."""
    torch._dynamo.reset()


@pytest.mark.parametrize("changes", [{}, {"ends": True}, {"tasks": 2, "task_dim": 4}, {"mpc": False}, {"sync_freq": 2}])
def test_recorded_training_equals_eager_training_up_to_rounding(make_learner, changes):
    torch.set_float32_matmul_precision("highest")
    plain = make_learner(World(device=GPU), compile="none", **changes)
    recorded = make_learner(World(device=GPU), compile="auto", **changes)
    for _ in range(3):
        plain.step(), recorded.step()
    assert plain.gradient_updates == recorded.gradient_updates > 8
    for name, value in plain.model.state_dict().items():
        # Adam turns the rounding of a gradient near zero into a step of its full size: one weight in 500 is 2e-3 off.
        torch.testing.assert_close(recorded.model.state_dict()[name], value, rtol=1e-2, atol=4e-3)


def test_a_recorded_run_is_reproducible_and_resumes_bitwise_identically(make_learner):
    one, other = (make_learner(World(device=GPU)) for _ in range(2))
    for learner in (one, other):
        learner.step(), learner.step()
    snapshot = one.state()
    for part in (snapshot.model, snapshot.optimizer, *snapshot.lanes.values()):
        part.update({name: value.detach().cpu().clone() for name, value in part.items()})
    resumed = make_learner(World(device=GPU))
    resumed.load(snapshot)
    for learner in (one, other, resumed):
        learner.step()
    for learner in (other, resumed):
        for name, value in one.model.state_dict().items():
            assert torch.equal(learner.model.state_dict()[name], value), name


def test_an_update_and_a_plan_never_wait_for_the_device(make_learner):
    learner = make_learner(World(device=GPU))
    for _ in range(3):
        learner.step()
    actor = learner._collectors[0]._actor
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(3):
            learner._training.step()
            actor.decide(number)
    finally:
        torch.cuda.set_sync_debug_mode("default")

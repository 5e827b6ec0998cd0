"""Meta-World itself, where it is installed: mt80's tasks open, one of them trains and resumes to the same bits."""

import numpy as np
import pytest

pytest.importorskip("metaworld")

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads.control.metaworld_tasks import MetaWorldSimulation
from lockstep.workloads.control.names import MT50
from lockstep.workloads.control.workload import Control


@pytest.mark.slow
@pytest.mark.parametrize("task", MT50)
def test_every_task_of_mt80_opens_and_steps(task):
    simulation = MetaWorldSimulation(task)
    assert simulation.reset(1).shape == (39,)
    assert np.isfinite(simulation.step(np.ones(4, np.float32)).observation).all()


def test_a_scripted_hand_reaches_its_goal():
    from metaworld.policies import SawyerReachV3Policy

    simulation, policy = MetaWorldSimulation("mw-reach"), SawyerReachV3Policy()
    seen, successes = simulation.reset(1), []
    for _ in range(100):
        action = np.clip(policy.get_action(seen.astype(np.float64)), -1, 1).astype(np.float32)
        done = simulation.step(action)
        seen = done.observation
        successes.append(done.success)
    assert max(successes) == 1.0


def test_a_film_shows_the_floor_below_the_table():
    simulation = MetaWorldSimulation("mw-reach")
    simulation.reset(1)
    try:
        frame = simulation.render(128, 160).astype(float)
    except (ImportError, AttributeError, RuntimeError) as error:
        pytest.skip(f"no OpenGL here: {error}")
    # Above the horizon everything is of one grey; below are tiles, the table's legs and the arm's pedestal.
    assert frame[:10].std() < 5 < frame[-10:].std()


def test_a_task_trains_and_resumes_to_the_same_bits():
    config = Control().preset("debug").replace(task="mw-reach", num_envs=2, lanes=2, seed_steps=20, threads=1)
    whole, half, rest = (open_learner(World(), "control", to_yaml(config)) for _ in range(3))
    for _ in range(4):
        whole.step()
    for _ in range(2):
        half.step()
    rest.load(half.state())
    for _ in range(2):
        rest.step()
    assert whole.gradient_updates == rest.gradient_updates > 0
    assert weights_hash(dict(whole.model.state_dict())) == weights_hash(dict(rest.model.state_dict()))

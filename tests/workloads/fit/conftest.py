"""Learners of anybody's objects, without a run directory."""

import pytest

from lockstep.distributed.world import World
from lockstep.launch import given
from lockstep.workloads import registry


def build(model, train, val, world=None, metrics=None, loss="cross_entropy", **settings):
    """The learner that `lockstep.fit` would build on this rank."""
    things = {"model": model, "train_data": train, "val_data": val}
    settings |= {name: given.give(thing, f"{name}-of-a-test") for name, thing in things.items()}
    settings["loss"] = loss if isinstance(loss, str) else given.give(loss, "loss-of-a-test")
    settings["metrics"] = ",".join(f"{label}={given.give(f, label)}" for label, f in (metrics or {}).items())
    values = {"batch_size": 16, "epochs": 3, "lanes": 4, "lr_schedule": "constant", "patience": 0, "device": "cpu"}
    workload = registry.load("fit")
    config = workload.config(**values | settings)
    world = (world or World()).with_lanes(config.effective_lanes, config.sync_on("cpu"))
    return workload.build(config, world)


@pytest.fixture(name="build")
def fixture_build():
    return build

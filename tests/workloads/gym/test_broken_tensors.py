"""Every fault of a tensor environment ends in one line with its number or name and what to do."""

import pytest
import torch

from lockstep.errors import RunFailed, UserError
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.tensor import tensor_problem


class Still:
    """E environments in which nothing happens."""

    observation_shape, action_count = (2,), 3

    def __init__(self, index, seed):
        self.count = len(index)

    def reset(self):
        return torch.zeros(self.count, 2)

    def step(self, action):
        never = torch.zeros(self.count, dtype=torch.bool)
        return self.reset(), torch.zeros(self.count), never, never


class FailingReset(Still):
    def reset(self):
        raise KeyError("board")


class FailingStep(Still):
    def step(self, action):
        raise RuntimeError("the table broke\nin two")


class Exits(Still):
    def step(self, action):
        raise SystemExit(3)


class FailingLibrary(Still):
    def step(self, action):
        return torch.nn.Linear(5, 1)(torch.zeros(3, 2))


class FailingState(Still):
    def state(self):
        raise OSError("the disk is full")

    def load(self, state):
        raise ValueError("saved by another version")


class NanReward(Still):
    def step(self, action):
        seen, reward, *rest = super().step(action)
        reward[1] = float("nan")
        return seen, reward, *rest


class NoLicence(Still):
    def __init__(self, index, seed):
        raise ValueError("no licence")


class ThreeValues(Still):
    def step(self, action):
        return super().step(action)[:3]


class Narrow(Still):
    def step(self, action):
        return torch.zeros(self.count, 1), *super().step(action)[1:]


FAULTS = {
    "FailingReset": (RunFailed, r"environments 4 to 6: failed in reset \(KeyError: 'board', .*test_broken_tensors.py:"),
    "FailingStep": (
        RunFailed,
        r"environments 4 to 6: failed in step \(RuntimeError: the table broke, .*tensors.py:",
    ),
    "Exits": (RunFailed, r"environments 4 to 6: failed in step \(SystemExit: 3, .*then `lockstep resume`"),
    "FailingLibrary": (RunFailed, r"failed in step \(RuntimeError: mat1 .*test_broken_tensors.py:\d+\);"),
    "NanReward": (RunFailed, "environment 5: its reward is not a finite number"),
    "NoLicence": (UserError, r"NoLicence: cannot be created \(ValueError: no licence, .*test_broken_tensors.py:"),
    "ThreeValues": (UserError, "ThreeValues: `step` returned tuple; allowed: a Transition, or a tuple of 4 or 5"),
    "Narrow": (UserError, r"observation has shape \(3, 1\); expected is a tensor of shape \(3, 2\)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_that_says_where(name):
    kind, message = FAULTS[name]
    with pytest.raises(kind, match=message) as caught:
        problem = tensor_problem(GymSettings(env_id=f"{__file__}:{name}"), torch.device("cpu"))
        env = problem.environments(torch.arange(4, 7), 1)
        env.reset()
        env.step(torch.zeros(3, dtype=torch.int64))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["state", "load"])
def test_a_fault_in_saving_or_restoring_names_the_environments(method):
    problem = tensor_problem(GymSettings(env_id=f"{__file__}:FailingState"), torch.device("cpu"))
    env = problem.environments(torch.arange(4, 7), 1)
    with pytest.raises(RunFailed, match=rf"environments 4 to 6: failed in {method} \(.*test_broken_tensors.py:\d+\);"):
        env.state() if method == "state" else env.load({})

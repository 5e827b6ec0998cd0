"""Several batches of environments behave as one."""

import pytest
import torch

from lockstep.envs.split_env import SplitEnv, in_cohorts, of_each_batch
from lockstep.envs.vector_env import Transition


class Counter:
    """Counts up from its number by the action; ends at 10, and says how large its batch is."""

    observation_shape = (1,)

    def __init__(self, index):
        self._index, self._value = index, index.clone()
        self.count = len(index)

    def reset(self):
        self._value = self._index.clone()
        return self._value[:, None].clone()

    def step(self, action):
        self._value += action
        ended = self._value >= 10
        final = self._value[:, None].clone()
        self._value = torch.where(ended, self._index, self._value)
        size = torch.full_like(self._value, self.count)
        observation = self._value[:, None].clone()
        return Transition(observation, final[:, 0].float(), ended, torch.zeros_like(ended), final, {"size": size})

    def state(self):
        return {"value": self._value}

    def load(self, state):
        self._value = state["value"].clone()
        return self._value[:, None].clone()


def test_parts_are_stepped_by_themselves_and_joined_in_order():
    env = in_cohorts(Counter, torch.arange(6), 3, together=False, split=SplitEnv)
    assert isinstance(env, SplitEnv) and env.count == 6 and env.observation_shape == (1,)
    assert env.reset().flatten().tolist() == [0, 1, 2, 3, 4, 5]
    transition = env.step(torch.tensor([1, 2, 3, 4, 5, 6]))
    assert transition.observation.flatten().tolist() == [1, 3, 5, 7, 9, 5]
    assert transition.reward.tolist() == [1, 3, 5, 7, 9, 11]
    assert transition.terminated.tolist() == [False] * 5 + [True]
    assert transition.final_observation.flatten().tolist() == [1, 3, 5, 7, 9, 11]
    assert transition.info["size"].tolist() == [2] * 6 and transition.valid is None


def test_a_state_is_loaded_by_any_division_into_parts():
    split, whole = (in_cohorts(Counter, torch.arange(4), cohorts, together=False, split=SplitEnv) for cohorts in (2, 1))
    split.step(torch.tensor([1, 2, 3, 4]))
    assert isinstance(whole, Counter)
    assert whole.load(split.state()).flatten().tolist() == [1, 3, 5, 7]
    assert split.load(whole.state()).flatten().tolist() == [1, 3, 5, 7]


def test_environments_that_may_be_together_are_one_batch():
    assert isinstance(in_cohorts(Counter, torch.arange(4), 2, together=True, split=SplitEnv), Counter)


class Silent(Counter):
    """Leaves out what says nothing: the last observation and facts, where no episode ended."""

    def step(self, action):
        transition = super().step(action)
        if not transition.terminated.any():
            transition.final_observation, transition.info = None, {}
        return transition


@pytest.mark.parametrize("first", [[9, 0], [0, 8]])
def test_what_one_part_leaves_out_the_others_keep(first):
    env = in_cohorts(Silent, torch.tensor([0, 1]), 2, together=False, split=SplitEnv)
    transition = env.step(torch.tensor(first) + 1)
    values = torch.tensor([0, 1]) + torch.tensor(first) + 1
    assert transition.final_observation.flatten().tolist() == values.tolist()
    assert transition.info["size"].tolist() == [float(value >= 10) for value in values]


def test_a_function_of_an_environment_is_asked_of_every_part():
    split, whole = (in_cohorts(Counter, torch.arange(4), cohorts, together=False, split=SplitEnv) for cohorts in (2, 1))
    for env in (split, whole):
        assert of_each_batch(env, lambda part: part._index * 2).tolist() == [0, 2, 4, 6]

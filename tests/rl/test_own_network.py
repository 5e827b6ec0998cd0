"""Networks made by a user's function: found by name, the same on every rank, refused in one line."""

import pytest
import torch
from torch import nn

from lockstep.errors import UserError
from lockstep.rl.own_network import check_outputs, network_from
from lockstep.rl.problem import Continuous, Discrete, EnvProblem
from lockstep.workloads.snake.workload import Snake

PROBLEM = EnvProblem(name="toy", observation_shape=(2,), actions=Discrete(3), make_env=None)
NO_FUNCTION = 3


class Heads(nn.Module):
    def __init__(self, outputs=3):
        super().__init__()
        self.policy, self.value = nn.Linear(2, outputs), nn.Linear(2, 1)

    def forward(self, observation):
        return self.policy(observation), self.value(observation).squeeze(-1)


class Remembering(Heads):
    def first_memory(self, count, device):
        return (torch.zeros(count, 1),)

    def forward(self, observation, memory):
        return *super().forward(observation), memory


def heads(problem):
    return Heads(problem.actions.count)


def remembering(problem):
    return Remembering()


def fails(problem):
    raise ValueError("no such thing\nand more")


def no_module(problem):
    return lambda observation: observation


def named(function):
    return f"{__file__}:{function}"


def test_the_first_weights_depend_on_the_seed_alone_and_nothing_else_is_drawn_from():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again = (network_from(named("heads"), PROBLEM, 1, False) for _ in range(2))
    other = network_from(named("heads"), PROBLEM, 2, False)
    assert torch.equal(first.policy.weight, again.policy.weight)
    assert not torch.equal(first.policy.weight, other.policy.weight)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("function", "recurrent", "told"),
    [
        ("missing", False, "has no missing"),
        ("NO_FUNCTION", False, "is not a function; allowed: function"),
        ("fails", False, r"fails for toy \(ValueError: 'no such thing', .*test_own_network.py:\d+\)$"),
        ("no_module", False, "returned function; allowed: function"),
        ("remembering", False, "has a memory; set --recurrent true"),
        ("heads", True, "has no first_memory; set --recurrent false"),
    ],
)
def test_what_makes_no_network_is_refused_in_one_line(function, recurrent, told):
    with pytest.raises(UserError, match=told) as error:
        network_from(named(function), PROBLEM, 1, recurrent)
    assert "\n" not in str(error.value)


def test_wrong_shapes_are_told_with_the_right_ones():
    check_outputs("mine", Heads(), torch.zeros(2, 2), PROBLEM)
    check_outputs("mine", Remembering(), torch.zeros(2, 2), PROBLEM)
    with pytest.raises(UserError, match=r"\(2, 4\), \(2,\); needed: outputs \(2, 3\) and values \(2,\)"):
        check_outputs("mine", Heads(4), torch.zeros(2, 2), PROBLEM)
    with pytest.raises(UserError, match=r"\(2, 1\); needed: outputs \(2, 3\)"):
        check_outputs("mine", nn.Linear(2, 1), torch.zeros(2, 2), PROBLEM)
    with pytest.raises(UserError, match=r"fails on observations \(2, 5\) float32 \(RuntimeError: .*network.py:\d+\)"):
        check_outputs("mine", Heads(), torch.zeros(2, 5), PROBLEM)
    # Continuous actions need means and logarithms of deviations.
    continuous = EnvProblem(name="toy", observation_shape=(2,), actions=Continuous(2), make_env=None)
    check_outputs("mine", Heads(4), torch.zeros(2, 2), continuous)


def test_a_workload_takes_such_a_name_and_stores_it_as_it_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = Snake().preset("debug", network="./net.py:make")
    assert config.run.network == f"{tmp_path}/net.py:make" and not config.network.recurrent
    assert Snake().preset("debug", network="nets:make").run.network == "nets:make"
    with pytest.raises(UserError, match="unknown network for snake with ppo"):
        Snake().preset("debug", network="nets")

"""DDPG for an agent alone: the axis of agents is training's own business."""

import pytest
import torch

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.envs.spaces import Discrete, MultiDiscrete, Part
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError
from lockstep.rl.problem import EnvProblem
from lockstep.rl.team_of_one import TeamOfOne, as_team
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads import registry


class Counting:
    """Two environments; the first is cut off in every step, and rewards are the actions."""

    count, observation_shape = 2, (1,)

    def reset(self):
        return torch.zeros(2, 1)

    def step(self, action):
        ended = torch.tensor([True, False])
        final = torch.tensor([[5.0], [1.0]])
        return Transition(torch.tensor([[0.0], [1.0]]), action.float(), ~ended & ended, ended, final)

    def state(self):
        return {"x": torch.ones(2)}

    def load(self, state):
        return state["x"][:, None]


def test_every_tensor_gets_an_axis_of_one_agent():
    env = TeamOfOne(Counting())
    assert env.observation_shape == (1, 1) and env.reset().shape == (2, 1, 1)
    done = env.step(torch.tensor([[3], [4]]))
    assert done.reward.tolist() == [[3.0], [4.0]] and done.truncated.tolist() == [[True], [False]]
    assert done.final_observation.tolist() == [[[5.0]], [[1.0]]] and done.valid.tolist() == [[True], [True]]
    assert env.load(env.state()).shape == (2, 1, 1)


def test_an_environment_that_never_truncates_needs_no_last_observation():
    class Endless(Counting):
        def step(self, action):
            done = super().step(action)
            return Transition(done.observation, done.reward, done.terminated, done.terminated)

    assert TeamOfOne(Endless()).step(torch.tensor([[3], [4]])).final_observation.shape == (2, 1, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": MultiDiscrete((2, 3))}, "has several discrete actions at once"),
        ({"parts": (Part("view", (3, 4, 4), "image"),)}, r"its observations have a part view \(image\)"),
    ],
)
def test_spaces_that_ddpg_does_not_take_are_refused(changes, message):
    given = {"name": "gym", "observation_shape": (4,), "actions": Discrete(2), "make_env": None}
    with pytest.raises(UserError, match=message):
        as_team(EnvProblem(**{**given, **changes}))


def config(env_id, algorithm="ddpg", **changes):
    return registry.load("gym").preset("debug", algorithm=algorithm).replace(env_id=env_id, device="cpu", **changes)


def hash_after(world, text, updates):
    """Train, save half-way and go on as a new learner. Called by every rank."""
    learner = open_learner(world, "gym", text)
    for _ in range(updates // 2):
        learner.step()
    resumed = open_learner(world, "gym", text)
    resumed.load(learner.state())
    for _ in range(updates - updates // 2):
        resumed.step()
    return weights_hash(dict(resumed.model.state_dict()))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_ddpg_learns_one_agent_with_the_same_bits_on_any_number_of_ranks(ranks, env_id):
    text = to_yaml(registry.load("gym").fit(config(env_id, sync="exact", threads=1, lanes=4), ())[0])
    hashes = {ranks.run(hash_after, text, 4, ranks=count)[0] for count in (1, 2)}
    assert len(hashes) == 1


@pytest.mark.parametrize(("env_id", "shape"), [("CartPole-v1", (4,)), ("Pendulum-v1", (3,))])
def test_a_trained_model_acts_on_plain_observations(env_id, shape):
    learner = open_learner(World(), "gym", to_yaml(config(env_id)))
    learner.step()
    assert learner.observation_shape == shape
    player = learner.player(seed=1)
    for explore in (False, True):
        action, _ = player.act(torch.zeros(5, *shape), explore=explore)
        assert action.shape == ((5,) if env_id == "CartPole-v1" else (5, 1))
    assert len(learner.evaluate(4, seed=3).returns) == 4
    program = learner.program()
    assert program.inputs["observation"].shape[1:] == shape


@pytest.mark.slow
def test_ddpg_swings_the_pendulum_up():
    chosen = (
        registry.load("gym")
        .preset("base", algorithm="ddpg")
        .replace(
            env_id="Pendulum-v1", device="cpu", threads=1, env_workers=1, total_timesteps=14_400, n_envs=4, n_steps=100,
            update_interval=1, batch_size=128, hidden_size=128, gamma=0.98, epsilon=0.3, epsilon_speed=0.9998,
            n_step=1, memory_format="fp32",
        )
    )  # fmt: skip
    learner = open_learner(World(), "gym", to_yaml(chosen))
    while not learner.done():
        learner.step()
    assert sum(learner.evaluate(20, seed=3).returns) / 20 > -200

"""Tasks as a batch: numbering, seeds, time limits, restoring, several tasks at once."""

import pytest
import torch

pytest.importorskip("dm_control")

from lockstep.envs import hosting
from lockstep.errors import UserError
from lockstep.workloads.control.env import make_env, task_facts
from lockstep.workloads.control.settings import ControlSettings

CPU = torch.device("cpu")


def choice(task="pendulum-swingup", episode_length=0, env_workers=1):
    return ControlSettings(task=task, episode_length=episode_length, env_workers=env_workers)


def envs(*index, seed=1, **settings):
    return make_env(choice(**settings), torch.tensor(index), seed, CPU)


def actions(env, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand((steps, env.count, env.action_dim), generator=generator) * 2 - 1


def same(one, other):
    names = ("observation", "reward", "terminated", "truncated", "final_observation")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    pairs += [(one.info[name], other.info[name]) for name in one.info]
    return one.info.keys() == other.info.keys() and all(torch.equal(a, b) for a, b in pairs)


def test_the_sizes_and_lengths_of_a_task():
    facts = task_facts(choice("walker-walk"))
    assert (facts.obs_dim, facts.action_dim, facts.episode_length, facts.multitask) == (24, 6, 500, False)
    assert not facts.episodic
    assert task_facts(choice("walker-walk", episode_length=7)).episode_length == 7


def test_an_unknown_task_is_refused():
    with pytest.raises(UserError, match="dog-run"):
        task_facts(choice("dog-rum"))


def test_every_environment_and_every_episode_starts_differently():
    env = envs(0, 1, 2, episode_length=3)
    starts = [env.reset()]
    for action in actions(env, 6):
        transition = env.step(action)
        if transition.truncated.all():
            starts.append(transition.observation)
    assert len(starts) == 3
    assert len({tuple(row.tolist()) for start in starts for row in start}) == 9


def test_an_environment_depends_on_its_number_and_not_on_its_batch():
    together, second = envs(4, 5, episode_length=4), envs(5, episode_length=4)
    assert torch.equal(together.reset()[1:], second.reset())
    for action in actions(together, 9):
        both, alone = together.step(action), second.step(action[1:])
        assert torch.equal(both.observation[1:], alone.observation)
        assert torch.equal(both.reward[1:], alone.reward)


def test_another_seed_gives_other_episodes():
    assert not torch.equal(envs(0, seed=1).reset(), envs(0, seed=2).reset())


def test_an_episode_is_truncated_at_its_length_with_its_final_observation():
    env = envs(0, 1, episode_length=3)
    env.reset()
    acts = actions(env, 4)
    for action in acts[:2]:
        transition = env.step(action)
        assert not transition.truncated.any()
        assert torch.equal(transition.final_observation, transition.observation)
    transition = env.step(acts[2])
    assert transition.truncated.all() and not transition.terminated.any()
    assert not torch.equal(transition.final_observation, transition.observation)
    # The last number of a pendulum's observation is its speed: it starts at rest.
    assert (transition.observation[:, 2] == 0).all() and (transition.final_observation[:, 2] != 0).all()
    assert not env.step(acts[3]).truncated.any()


@pytest.mark.parametrize("task", ["cheetah-run", "Pendulum-v1"])
def test_a_restored_state_continues_bitwise_identically(task):
    env = envs(0, 3, task=task, episode_length=9)
    env.reset()
    acts = actions(env, 26)
    for action in acts[:13]:
        env.step(action)
    state = {name: value.clone() for name, value in env.state().items()}
    assert all(len(value) == 2 for value in state.values())
    fresh = envs(0, 3, task=task, episode_length=9)
    observation = fresh.load(state)
    assert torch.equal(observation, env.load(state))
    assert all(torch.equal(value, fresh.state()[name]) for name, value in state.items())
    for action in acts[13:]:
        assert same(env.step(action), fresh.step(action))


def test_states_can_be_split_and_joined_along_environments():
    env = envs(0, 1, 2)
    env.reset()
    env.step(actions(env, 1)[0])
    state, act = env.state(), actions(env, 1, seed=3)[0]
    part = envs(1, 2)
    part.load({name: value[1:] for name, value in state.items()})
    assert torch.equal(env.step(act).observation[1:], part.step(act[1:]).observation)


def test_the_size_of_a_state_does_not_depend_on_the_step_of_the_episode():
    env = envs(0, task="Pendulum-v1", episode_length=5)
    env.reset()
    before = env.state()["simulation"].shape
    env.step(actions(env, 1)[0])
    assert env.state()["simulation"].shape == before == (1, 1 + 5)


class TestManyTasks:
    """mt30, cut down to two short episodes."""

    def test_its_facts_are_those_of_the_largest_task(self):
        facts = task_facts(choice("mt30"))
        assert (facts.obs_dim, facts.action_dim, len(facts.tasks), facts.multitask) == (24, 6, 30, True)

    def test_environments_take_the_tasks_in_turn_and_are_filled_up_with_zeros(self):
        # Numbers 7, 8, 33 and 4: pendulum (3 numbers, 1 action), cartpole (5, 1), cheetah (17, 6), reacher (6, 2).
        env = envs(7, 8, 33, 4, task="mt30")
        assert env.task.tolist() == [7, 8, 3, 4]
        assert [env.facts.tasks[i].split("-")[0] for i in env.task] == ["pendulum", "cartpole", "cheetah", "reacher"]
        assert env.action_mask.sum(1).tolist() == [1, 1, 6, 2]
        assert env.action_mask[3].tolist() == [1, 1, 0, 0, 0, 0]
        observation = env.reset()
        assert observation.shape == (4, 24)
        for row, size in zip(observation, (3, 5, 17, 6), strict=True):
            assert (row[size:] == 0).all()

    def test_actions_that_a_task_does_not_have_change_nothing(self):
        one, other = envs(7, task="mt30"), envs(7, task="mt30")
        one.reset()
        other.reset()
        action = actions(one, 1)[0]
        changed = action.clone()
        changed[:, 1:] = 1.0
        assert torch.equal(one.step(action).observation, other.step(changed).observation)

    def test_an_episode_tells_its_task_and_its_normalised_score(self):
        env = envs(8, 7, task="mt30", episode_length=3)
        env.reset()
        steps = [env.step(action) for action in actions(env, 3)]
        info = steps[-1].info
        assert info["task"].tolist() == [8, 7] and "success" not in info, "no task of mt30 has a goal"
        total = sum(step.reward.double() for step in steps)
        assert info["score"].tolist() == pytest.approx((total / 10).tolist())
        assert float(info["score"][0]) > 0

    def test_states_have_one_size_whatever_the_task(self):
        small, large = envs(7, task="mt30"), envs(3, task="mt30")
        small.reset()
        large.reset()
        state = {n: torch.cat((a, b)) for (n, a), b in zip(small.state().items(), large.state().values(), strict=True)}
        both = envs(7, 3, task="mt30")
        both.load(state)
        action = actions(both, 1)[0]
        found = both.step(action).observation
        assert torch.equal(found[:1], small.step(action[:1]).observation)
        assert torch.equal(found[1:], large.step(action[1:]).observation)


def test_tables_of_states_keep_each_one_s_length():
    states = [torch.arange(3).double().numpy(), torch.arange(1).double().numpy()]
    table = hosting.packed(states, at_least=4)
    assert table.tolist() == [[3, 0, 1, 2, 0], [1, 0, 0, 0, 0]]
    assert [state.tolist() for state in hosting.unpacked(table)] == [[0, 1, 2], [0]]

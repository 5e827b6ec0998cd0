"""Any simulation as a batch of environments: numbering, limits, ends, and the way back."""

import torch

from lockstep.compute import random


def test_an_episode_is_known_by_its_number_whoever_plays_it(points):
    together, alone = points(4), points(1, first=2)
    assert torch.equal(together.reset()[2:3], alone.reset())
    assert len(set(together.reset()[:, 0].tolist())) == 4
    assert torch.equal(together.episode, torch.ones(4, dtype=torch.int64))


def test_an_episode_ends_by_the_rules_or_by_its_limit_and_the_next_one_begins(points):
    env = points(2, length=3)
    env.reset()
    far, near = env._host._simulations
    far.place, near.place = 1.3, 0.0
    # From 1.3 by 0.25 a step: 1.55 is beyond 1.5 at once, and the other's time is up after three steps.
    done = env.step(torch.tensor([[1.0], [0.0]]))
    assert done.terminated.tolist() == [True, False] and done.final_observation[0, 0] == torch.tensor(1.55)
    assert abs(float(done.observation[0, 0])) <= 1 and env.episode.tolist() == [1, 0]
    for expected in ([False, False], [False, True]):
        done = env.step(torch.zeros(2, 1))
        assert done.truncated.tolist() == expected
    assert env.steps.tolist() == [2, 0] and env.episode.tolist() == [1, 1]
    assert done.final_observation[1].tolist() == [0.0, 0.0] != done.observation[1].tolist()


def test_a_state_is_taken_up_to_the_same_numbers(points):
    env, later = points(3), points(3)
    env.reset()
    for _ in range(7):
        env.step(torch.full((3, 1), 0.3))
    assert torch.equal(later.load(env.state()), torch.from_numpy(env._observation))
    one, other = (each.step(torch.full((3, 1), -0.7)) for each in (env, later))
    assert torch.equal(one.observation, other.observation) and torch.equal(one.truncated, other.truncated)


def test_a_transition_moves_to_another_device_as_a_whole(points):
    env = points(2)
    env.reset()
    done = env.step(torch.zeros(2, 1))
    assert done.to(torch.device("cpu")) is done
    moved = done.to(torch.device("meta"))
    assert {part.device.type for part in (moved.observation, moved.reward, moved.final_observation)} == {"meta"}


def test_every_episode_has_the_seed_of_its_own_number_however_many_are_drawn_at_once(points):
    # Episodes of one step and of three: the environments' episode numbers drift apart, beyond what is drawn at once.
    env = points(2, length=1)
    env._limits[1] = 3
    env.reset()
    for _ in range(60):
        env.step(torch.zeros(2, 1))
    assert env.episode.tolist() == [60, 20]
    for number in range(2):
        words = random.random_words(1, "episode", torch.tensor(number), env.episode[number] + 1)[0]
        assert env._next_seeds[number] == int(words)

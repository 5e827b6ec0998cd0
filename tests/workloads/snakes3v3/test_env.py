"""The team environment: who moves which snakes, the rewards, and which opponent plays on which board."""

import pytest
import torch
from torch import nn

from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P
from lockstep.workloads.snakes3v3.opponents.opposition import Opposition, Schedule, past_actor
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS
from lockstep.workloads.snakes3v3.training.env import SnakesTeamEnv

CPU = torch.device("cpu")
UP, DOWN, LEFT, RIGHT = range(4)


def make(boards=4, team=0, rules=SNAKES_3V3, opponent="random", reward="raw", past=(), lanes=1, first=0, **changes):
    rivals = [players for number, players in enumerate(rules.teams) if number != team]
    past_actors = [past_actor(network, lanes, CPU) for network in past]
    opposition = Opposition(Schedule(opponent), rivals, "jidi26", past_actors)
    return SnakesTeamEnv(
        rules,
        torch.arange(first, first + boards),
        seed=3,
        device=CPU,
        team=team,
        observation="jidi26",
        opposition=opposition,
        reward=reward,
        **changes,
    )


def moves(env, action):
    """The actions of all players in one step of the environment."""
    made = []
    step = env.game.step
    env.game.step = lambda everyone: made.append(everyone) or step(everyone)
    env.step(action)
    env.game.step = step
    return made[0]


def play(env, steps):
    """Play random moves from a fixed seed; returns the transitions."""
    generator = torch.Generator().manual_seed(1)
    agents = env.observation_shape[0]
    return [env.step(torch.randint(4, (env.count, agents), generator=generator)) for _ in range(steps)]


class Always(nn.Module):
    """A network that always chooses the same direction."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def forward(self, observation):
        return nn.functional.one_hot(torch.full(observation.shape[:2], self.way), 4).float()


@pytest.mark.parametrize(("team", "own", "others"), [(0, [0, 1, 2], [3, 4, 5]), (1, [3, 4, 5], [0, 1, 2])])
def test_each_side_moves_its_own_snakes(team, own, others):
    env = make(team=team, opponent="greedy")
    env.reset()
    expected = OPPONENTS["greedy"](env.game, others)
    made = moves(env, torch.tensor([[UP, LEFT, RIGHT]] * 4))
    assert torch.equal(made[:, own], torch.tensor([[UP, LEFT, RIGHT]] * 4))
    assert torch.equal(made[:, others], expected)


def test_in_the_five_player_game_each_rival_plays_for_itself():
    env = make(rules=SNAKES_5P, opponent="greedy")
    assert env.reset().shape == (4, 1, 26)
    expected = torch.cat([OPPONENTS["greedy"](env.game, [player]) for player in (1, 2, 3, 4)], 1)
    assert torch.equal(moves(env, torch.full((4, 1), UP))[:, 1:], expected)


def test_raw_rewards_sum_to_the_score():
    env = make(boards=8)
    env.reset()
    *before, last = play(env, 200)
    assert not any(bool(done.terminated.any()) for done in before) and bool(last.terminated.all())
    paid = sum(done.reward for done in (*before, last))
    for number in (1, 2, 3):
        assert torch.equal(last.info[f"snake_{number}"], paid[:, number - 1])
    assert torch.equal(last.info["score"], paid.sum(1))
    assert torch.equal(last.info["total"], paid.sum(1))
    lead = last.info["score"] - last.info["rival_score"]
    assert torch.equal(last.info["won"], (lead > 0).float()) and torch.equal(last.info["lost"], (lead < 0).float())


def test_death_penalty_is_subtracted_for_every_death():
    free, dear = make(boards=8), make(boards=8, death_penalty=0.5)
    free.reset(), dear.reset()
    difference = sum(a.reward - b.reward for a, b in zip(play(free, 50), play(dear, 50), strict=True))
    deaths = difference / 0.5
    assert torch.equal(deaths, deaths.round()) and float(deaths.sum()) > 10


def test_in_evaluation_rewards_sum_to_the_lead_over_the_rival():
    env = make(boards=8, reward=None)
    env.reset()
    transitions = play(env, 200)
    assert transitions[0].reward.shape == (8,)
    total = sum(done.reward for done in transitions)
    assert torch.equal(total, transitions[-1].info["score"] - transitions[-1].info["rival_score"])
    assert not any(name.startswith("snake_") for name in transitions[-1].info)


def test_after_the_end_the_next_game_is_observed_with_its_sums_at_zero():
    env = make(boards=2)
    env.reset()
    last = play(env, 200)[-1]
    assert env.game.time.tolist() == [1, 1]
    assert torch.equal(last.observation, env._observe())
    assert torch.equal(
        env.step(torch.zeros(2, 3, dtype=torch.int64)).info["score"], env.game.score[:, :3].sum(1).float()
    )
    assert not bool(env.state()["earned"].abs().gt(3).any())


def test_a_loaded_environment_continues_identically():
    env, other = make(boards=3), make(boards=3)
    env.reset(), other.reset()
    play(env, 30)
    kept = {name: value.clone() for name, value in env.state().items()}
    assert torch.equal(other.load(kept), env._observe())
    for one, two in zip(play(env, 180), play(other, 180), strict=True):
        assert torch.equal(one.reward, two.reward) and torch.equal(one.observation, two.observation)
        assert all(torch.equal(one.info[name], two.info[name]) for name in one.info)


def test_boards_alternate_between_the_scripted_opponent_and_past_actors():
    env = make(boards=9, opponent="greedy", past=[Always(UP), Always(RIGHT)])
    env.reset()
    scripted = OPPONENTS["greedy"](env.game, [3, 4, 5])
    made = moves(env, torch.zeros(9, 3, dtype=torch.int64))[:, 3:]
    for board in range(9):
        expected = [scripted[board].tolist(), [UP] * 3, [RIGHT] * 3][board % 3]
        assert made[board].tolist() == expected


def test_a_boards_opponent_does_not_depend_on_the_other_boards():
    whole, part = make(boards=8, past=[Always(UP)]), make(boards=4, first=4, past=[Always(UP)])
    whole.reset(), part.reset()
    action = torch.zeros(8, 3, dtype=torch.int64)
    assert torch.equal(moves(whole, action)[4:], moves(part, action[4:]))


def test_past_actors_play_a_lane_as_if_it_were_alone():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(26, 128), nn.ReLU(), nn.Linear(128, 4))
    whole, alone = make(boards=64, past=[network], lanes=8), make(boards=8, first=24, past=[network])
    action = torch.zeros((64, 3), dtype=torch.int64)
    for round_ in range(3):
        whole.prepare(round_)
        alone.prepare(round_)
        for _ in range(5):
            assert torch.equal(moves(whole, action)[24:32], moves(alone, action[:8]))

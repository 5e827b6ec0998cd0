import pytest
import torch

from lockstep.workloads.snakes3v3.competition.position import Position, set_up
from lockstep.workloads.snakes3v3.engine.game import GameStep, SnakesGame
from lockstep.workloads.snakes3v3.engine.rules import SNAKES_3V3, SNAKES_5P
from lockstep.workloads.snakes3v3.training.rewards import (
    AHEAD,
    BEHIND,
    EVEN,
    LOST,
    REWARDS,
    WON,
    bean_distance,
    final,
    guide,
    jidi,
    lead,
    standing,
)

HEADS = torch.tensor([[[0, 0], [5, 5], [9, 19]]])
BEANS = torch.tensor([[[3, 4], [-1, -1], [9, 17], [-1, -1], [-1, -1]]])
"""5 from the first head, 2 from the third; the second head is nearer to (3, 4)."""
RAW = torch.tensor([[1.0, 0.0, -4.0]])


def test_the_standing_of_a_team():
    own, rival = torch.tensor([3, 3, 3, 1, 1]), torch.tensor([3, 1, 1, 3, 3])
    ended = torch.tensor([True, True, False, True, False])
    assert standing(own, rival, ended).tolist() == [EVEN, WON, AHEAD, LOST, BEHIND]
    assert (EVEN, WON, LOST, AHEAD, BEHIND) == (0, 1, 2, 3, 4)


def test_distances_ignore_the_torus_and_missing_beans():
    assert bean_distance(HEADS, BEANS)[0].tolist() == pytest.approx([5.0, 5**0.5, 2.0])
    assert bean_distance(HEADS, torch.full((1, 5, 2), -1)).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(("status", "worth"), [(EVEN, 0), (WON, 50), (LOST, -25), (AHEAD, 10), (BEHIND, -5)])
def test_the_competitions_reward(status, worth):
    expected = [worth + 20, worth - 5**0.5, worth - 2 - 10]
    assert jidi(RAW, HEADS, BEANS, torch.tensor([status]))[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("status", "worth"), [(EVEN, 0), (WON, 100), (LOST, -100), (AHEAD, 30), (BEHIND, -30)])
def test_the_guides_reward_for_survival_and_death(status, worth):
    dead = torch.tensor([[False, False, True]])
    expected = [worth + 30 + 0.1, worth + 0.1, worth - 50]
    assert guide(RAW, dead, torch.tensor([status]))[0].tolist() == pytest.approx(expected)


def test_the_guides_reward_counts_a_death_with_a_raw_reward_of_zero():
    reward = guide(torch.zeros(1, 3), torch.tensor([[True, False, False]]), torch.tensor([EVEN]))
    assert reward[0].tolist() == pytest.approx([-50, 0.1, 0.1])


def test_the_later_reward_adds_terms_for_distance_and_survival():
    expected = [20 + 0.1 + 0.05, -(5**0.5) + 0.1 / (5**0.5 + 1) + 0.1, -2 - 10 + 0.1 / 3]
    assert final(RAW, HEADS, BEANS, torch.tensor([EVEN]))[0].tolist() == pytest.approx(expected)


def test_the_lead_reward_sums_to_the_change_of_the_teams_lead():
    enemies = torch.tensor([[1.0, 1.0, -2.0]])
    assert lead(RAW, enemies).sum() == RAW.sum() - enemies.sum()
    assert lead(RAW, torch.tensor([[3.0, 0.0, 0.0]])).tolist() == [[0.0, -1.0, -5.0]]


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize("rules", [SNAKES_3V3, SNAKES_5P], ids=["3v3", "5p"])
def test_every_reward_works_for_any_team(name, rules):
    game = SnakesGame(rules, torch.arange(6), 1, torch.device("cpu"))
    game.reset()
    done = game.step(torch.zeros(6, rules.players, dtype=torch.int64))
    for team in rules.teams:
        reward = REWARDS[name](game, done, team)
        assert reward.shape == (6, len(team)) and reward.dtype == torch.float32 and reward.isfinite().all()


def test_the_standing_follows_from_the_scores_of_the_game():
    game = SnakesGame(SNAKES_3V3, torch.arange(1), 1, torch.device("cpu"))
    snakes = [[[row, 5], [row, 6], [row, 7]] for row in range(0, 10, 2)] + [[[9, 5], [9, 6], [9, 7]]]
    snakes[1].append([2, 8])
    set_up(game, [Position(snakes, [2] * 6, [[0, 0], [2, 0], [4, 0], [6, 0], [8, 0]])])
    no_event = GameStep(torch.zeros(1, 6), torch.zeros(1, 6, dtype=torch.bool), torch.tensor([False]))
    assert REWARDS["jidi"](game, no_event, (0, 1, 2)).tolist() == [[5.0, 5.0, 5.0]], "10 for the lead, 5 to the bean"
    assert REWARDS["jidi"](game, no_event, (3, 4, 5))[0, :2].tolist() == [-10.0, -10.0]
    over = GameStep(no_event.reward, no_event.dead, torch.tensor([True]))
    assert REWARDS["guide"](game, over, (3, 4, 5))[0].tolist() == pytest.approx([-99.9] * 3)

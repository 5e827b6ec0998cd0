"""Which opponent plays when, worked out by hand for a run of 1,000 games of 200 steps."""

import pytest

from lockstep.workloads.snakes3v3.opponents.opposition import LADDER, Schedule


def at(game, strategy="curriculum", opponent="schedule", **changes):
    return Schedule(opponent, strategy, 200, 1000, **changes).after(game * 200)


@pytest.mark.parametrize(
    ("game", "name", "level"),
    [
        (0, "random", 0),
        (99, "random", 0),
        (100, "level1", 1),
        (299, "level1", 1),
        (300, "level2", 2),
        (600, "level3", 3),
        (850, "level4", 4),
        (1000, "level4", 4),
    ],
)
def test_the_curriculum_changes_level_at_its_stages(game, name, level):
    assert at(game) == (name, {"difficulty": float(level)})


def test_games_are_counted_by_the_steps_of_all_boards_together():
    schedule = Schedule("schedule", "curriculum", 200, 1000)
    assert schedule.after(100 * 200 - 1)[0] == "random"
    assert schedule.after(100 * 200)[0] == "level1"


def test_the_measured_schedule_ends_with_the_strongest_opponent():
    names = [at(game, "measured")[0] for game in (0, 100, 300, 600, 850)]
    assert names == ["random", "level1", "level3", "level4", "level2"]


@pytest.mark.parametrize(("strategy", "levels"), [("linear", [0, 1, 2, 3, 4]), ("exponential", [0, 0, 1, 2, 4])])
def test_the_linear_and_the_exponential_schedule(strategy, levels):
    assert [LADDER.index(at(game, strategy)[0]) for game in (0, 250, 500, 750, 1000)] == levels


def test_evasive_opponents_start_at_evasion_from():
    assert at(399, evasion_from=400) == ("level2", {"difficulty": 2.0, "evasion": 0.0})
    assert at(400, evasion_from=400) == ("evasive", {"difficulty": 2.0, "evasion": 1.0})


@pytest.mark.parametrize(
    ("opponent", "report"), [("greedy", {"difficulty": 2.0}), ("evasive", {}), ("level3", {"difficulty": 3.0})]
)
def test_a_named_opponent_plays_the_whole_run(opponent, report):
    assert at(0, opponent=opponent) == at(999, opponent=opponent) == (opponent, report)

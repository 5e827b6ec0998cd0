from lockstep.workloads.snakes3v3.console import guide_lines

METRICS = {
    "snakes3v3/total_mean": 45.0,
    "snakes3v3/snake_1_mean": 15.5,
    "snakes3v3/snake_2_mean": 14.5,
    "snakes3v3/snake_3_mean": 15.0,
    "snakes3v3/difficulty": 0.0,
    "train/epsilon": 0.5,
    "train/actor_loss": 0.1234,
    "train/critic_loss": 0.4561,
}


def test_a_log_point_has_the_guides_format():
    assert guide_lines(1, METRICS) == [
        "[Episode 00001] total_reward: 45.00 epsilon: 0.50 [v3.0] difficulty: 0",
        "        snake_1: 15.50 snake_2: 14.50 snake_3: 15.00",
        "        a_loss 0.123 c_loss 0.456",
    ]


def test_evasion_is_shown_while_it_is_on():
    assert guide_lines(7, METRICS | {"snakes3v3/evasion": 1.0})[0].endswith("difficulty: 0 [v3.1] evasion:ON")
    assert guide_lines(7, METRICS | {"snakes3v3/evasion": 0.0})[0].endswith("difficulty: 0")


def test_there_are_no_lines_before_a_game_has_ended():
    assert guide_lines(0, {"train/epsilon": 0.5, "train/actor_loss": 0.1, "train/critic_loss": 0.2}) == []


def test_a_single_snake_is_listed_alone():
    alone = {tag: value for tag, value in METRICS.items() if tag[-6:] not in ("2_mean", "3_mean")}
    assert guide_lines(1, alone)[1] == "        snake_1: 15.50"

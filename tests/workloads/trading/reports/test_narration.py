"""Progress lines in the guide's format, from log points written by hand."""

from types import SimpleNamespace

import pytest
import torch

from lockstep.reporting.display import Narrated
from lockstep.workloads.trading.reports.narration import Narrator, narrator
from lockstep.workloads.trading.workload import Trading

CONFIG = Trading().preset("debug").replace(episode_length=20, total_timesteps=20_000)


def log_point(episodes=1, reward=45.23, profit=234.56, closed=20.0, won=13.0, still_open=3.0, steps=234.0, **more):
    return {
        "rollout/episodes": episodes,
        "rollout/return_mean": reward,
        "rollout/length_mean": steps,
        "trading/profit_mean": profit,
        "trading/closed_trades_mean": closed,
        "trading/winning_trades_mean": won,
        "trading/open_positions_mean": still_open,
        **more,
    }


def test_an_episode_is_reported_in_the_guides_format():
    one, four = Narrator(CONFIG, 1, on_gpus=True), Narrator(CONFIG, 4, on_gpus=True)
    expected = "Episode 100/1000 - Reward: 45.23, Return: $234.56, Win Rate: 65.0% (20 closed, 3 open), Steps: 234"
    for tell, suffix in ((one, ""), (four, " | GPUs: 4")):
        tell(0, log_point(episodes=99))
        assert tell(0, log_point()) == [expected + suffix]


def test_ranks_without_gpus_are_called_ranks():
    world = SimpleNamespace(size=2, device=torch.device("cpu"))
    assert narrator(CONFIG, world)(0, log_point())[0].endswith(" | Ranks: 2")


def test_a_profit_without_closed_positions_is_called_unrealized():
    (line,) = Narrator(CONFIG, 1, False)(0, log_point(profit=-50.0, closed=0.0, won=0.0, still_open=2.0))
    assert "Return: -$50.00 (unrealized from 2 open positions), Win Rate: 0.0% (0 closed trades)" in line


def test_every_tenth_line_is_followed_by_averages_over_the_last_hundred_episodes():
    tell = Narrator(CONFIG, 1, False)
    tell(0, log_point(episodes=50, profit=1_000_000.0))
    for _ in range(8):
        assert len(tell(0, log_point(episodes=20, profit=100.0))) == 1
    # 30 episodes at 300 and the 80 before them at 100: the oldest are counted no longer.
    line, averages = tell(0, log_point(episodes=30, profit=300.0, closed=10.0, won=9.0))
    assert line.startswith("Episode 240/1000")
    assert averages.startswith("Last 110 episodes - Return: $154.55, Win Rate: ")
    # (80 x 13 + 30 x 9) / (80 x 20 + 30 x 10)
    assert "Win Rate: 68.9%, best average so far: $154.55" in averages


def test_updates_and_evaluations_have_their_own_lines():
    tell = Narrator(CONFIG, 1, False)
    losses = {"train/policy_loss": -0.01234, "train/value_loss": 0.56789}
    assert tell(3 * CONFIG.algorithm.rollout_size, losses) == ["Update 3 - Critic Loss: 0.5679, Actor Loss: -0.0123"]
    first, worse = ({"eval/return_mean": r, "eval/trading_profit_mean": 1e4 * r} for r in (0.5, 0.25))
    assert tell(0, first) == ["Evaluation - Reward: 0.50, Return: $5,000.00 (the best so far)"]
    assert tell(0, worse) == ["Evaluation - Reward: 0.25, Return: $2,500.00 (best so far: 0.50)"]


def test_a_log_point_without_episodes_has_no_episode_line():
    assert Narrator(CONFIG, 1, False)(0, {"rollout/episodes": 0, "time/global_fps": 5.0}) == []


def test_counting_episodes_continues_after_a_resume():
    printed = []
    display = SimpleNamespace(
        say=printed.append, progress=lambda step, metrics: printed.append("bar"), close=lambda: None
    )
    past = [{"step": 128, **log_point(episodes=41)}, {"step": 256, **log_point(episodes=1)}]
    narrated = Narrated(display, Narrator(CONFIG, 1, False), past)
    assert printed == []
    narrated.progress(384, log_point())
    assert printed[0].startswith("Episode 43/1000") and printed[1] == "bar"


@pytest.mark.parametrize(("mean", "shown"), [(20.0, "20"), (3.9, "3.9"), (4.04, "4")])
def test_whole_means_have_no_decimal(mean, shown):
    (line,) = Narrator(CONFIG, 1, False)(0, log_point(closed=mean))
    assert f"({shown} closed" in line

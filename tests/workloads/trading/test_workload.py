"""Trading as a workload: the guide's words, what goes together, real prices on some lanes, ranks that end unequally."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lockstep.config.sources import from_yaml, resolve, to_yaml
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.rl.rollout import Episodes
from lockstep.storage import checkpoint
from lockstep.workloads.trading import workload
from lockstep.workloads.trading.build import apart, build_learner
from lockstep.workloads.trading.config import TradingConfig

DEBUG = workload.debug()


def test_the_guides_command_line_is_understood():
    words = (
        "--episodes 1000 --learning-rate-actor 1e-3 --learning-rate-critic 2e-3 --gamma 0.98 --epsilon 0.1 "
        "--update-interval 512 --checkpoint-interval 500 --no-data-load"
    )
    config = resolve(replace(DEBUG, n_envs=16), overrides=words.split()).config
    assert config.total_timesteps == 1000 * 20 and config.checkpoint_every == 500 * 20
    assert (config.learning_rate, config.learning_rate_critic) == (1e-3, 2e-3)
    assert (config.gamma, config.clip_range) == (0.98, 0.1)
    # 512 steps over all accounts are 32 of each of the 16.
    assert (config.n_steps, config.rollout_size) == (32, 512)
    assert config.planned_episodes == 1000
    assert from_yaml(to_yaml(config), TradingConfig) == config
    # Once translated, the guide's words stand in nobody's way.
    assert replace(config, total_timesteps=5120).total_timesteps == 5120


def test_the_guides_rates_are_the_default():
    assert (TradingConfig().learning_rate, TradingConfig().learning_rate_critic) == (3e-4, 1e-3)
    scaled = replace(DEBUG, learning_rate_critic=1e-3, scaling="weak", lr_scaling="linear").for_world(2)
    assert scaled.learning_rate_critic == 2e-3 and scaled.n_envs == 32


def test_without_loading_data_everything_about_it_is_forgotten():
    config = TradingConfig(data="there/is/no.csv", symbols="SPY", start_date="2020-01-01", no_data_load=True)
    assert (config.data, config.symbols, config.start_date) == ("", "", "")
    assert workload.fit(config, ()) == (config, [])


def test_files_of_bars_are_found_from_any_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert TradingConfig(data="a.csv, b/c.csv").data == f"{tmp_path / 'a.csv'},{tmp_path / 'b' / 'c.csv'}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"update_interval": 100}, "update_interval 100 is no multiple of n_envs 16; nearest: 96 or 112"),
        ({"network": "clstm", "hidden_size": 60}, "hidden_size 60: network clstm needs a multiple of its 8 heads"),
        ({"network": "clstm", "lstms": "two"}, "lstms two: network clstm has one cascade for both"),
        ({"sequence_length": 3}, "sequence_length 3 does not divide n_steps 8; nearest: 2"),
        ({"data": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_what_does_not_go_together_is_told_in_one_line(fields, message):
    with pytest.raises(UserError) as caught:
        workload.fit(replace(DEBUG, **fields), ())
    assert message in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("fields", [{"lstms": "two"}, {"network": "clstm", "aux_coef": 0.1}, {"aux_coef": 0.1}])
def test_every_network_learns(fields):
    config = replace(DEBUG, total_timesteps=1024, **fields)
    learner = build_learner(config, World().with_lanes(8, "fast"))
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    (report,) = learner.step()
    assert all(not torch.equal(before[name], value) for name, value in learner.model.state_dict().items())
    assert ("train/forecast_loss" in report) == bool(config.aux_coef)


BARS = Path(__file__).parents[3] / "../shared/data/market/us_index_daily.csv.gz"


@pytest.mark.skipif(not BARS.exists(), reason="the daily bars are not there")
def test_real_prices_on_some_lanes_are_reported_apart():
    config = replace(DEBUG, data=str(BARS), historical_lanes="0-3", end_date="2010-12-31", start_date="2005-01-01")
    _, (note,) = workload.fit(config, ())
    assert "bars, 2005-01-03 to 2010-12-31, those from 20" in note
    learner = build_learner(config, World().with_lanes(8, "fast"))
    (report,) = learner.step()
    real, simulated = (report[f"trading/{kind}_profit_mean"].count for kind in ("historical", "simulated"))
    assert real and simulated and real + simulated == report["trading/profit_mean"].count
    assert report["trading/historical_mean"].mean == pytest.approx(real / (real + simulated))
    # An evaluation is on real prices alone.
    assert set(learner.evaluate(4, 1).extra["trading_historical"]) == {1.0}


def test_episodes_are_told_apart_by_where_they_traded():
    info = {"historical": torch.tensor([1.0, 0.0, 1.0]), "profit": torch.tensor([1.0, 2.0, 3.0])}
    told = apart(Episodes(torch.tensor([4.0, 5.0, 6.0]), torch.ones(3), info | {"sharpe": torch.zeros(3)}))
    assert told["historical_reward"].tolist() == [4.0, 6.0] and told["simulated_profit"].tolist() == [2.0]


UNEQUAL = replace(
    DEBUG,
    # Accounts are closed as soon as they have lost a little: some ranks see many ends, others few.
    bankruptcy=0.99,
    position_size=0.2,
    hidden_size=8,
    n_steps=4,
    n_epochs=1,
    device="cpu",
    threads=1,
)


def train_with_seeds(world, text, seeds):
    """A short training for each seed; returns hashes and how many episodes ended here. Called by every rank."""
    found = []
    for seed in seeds:
        config = replace(from_yaml(text, TradingConfig), seed=seed)
        learner = build_learner(config, world.with_lanes(config.effective_lanes, "fast"))
        ended = sum(learner.step()[0]["rollout/return_mean"].count for _ in range(3))
        found.append([checkpoint.weights_hash(dict(learner.model.state_dict())), ended])
    return found


def check_seeds(ranks, size, seeds, timeout):
    answers = ranks.run(train_with_seeds, to_yaml(UNEQUAL), list(seeds), ranks=size, timeout=timeout)
    unequal = 0
    for results in zip(*answers, strict=True):
        assert len({sha for sha, _ in results}) == 1
        unequal += len({ended for _, ended in results}) > 1
    return unequal


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_whose_accounts_end_at_different_times_go_on_together(ranks, size):
    assert check_seeds(ranks, size, range(1, 4), timeout=120) == 3


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_no_seed_of_two_hundred_makes_ranks_wait_for_each_other(ranks, size):
    assert check_seeds(ranks, size, range(200), timeout=500) > 150

"""Trading as a workload: the guide's flags, contradictory settings, real prices on some lanes, unequal episodes."""

from pathlib import Path

import pytest
import torch

from lockstep.config.sources import resolve, to_yaml
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.rl.rollout import Episodes
from lockstep.storage import checkpoint
from lockstep.workloads.trading.problem import results_by_price_source
from lockstep.workloads.trading.workload import Trading

TRADING = Trading()
DEBUG = TRADING.preset("debug")


def learner_of(config, world=None):
    return TRADING.build(config, (world or World()).with_lanes(config.effective_lanes, config.sync_on("cpu")))


def test_the_guides_flags_are_accepted():
    flags = (
        "--episodes 1000 --learning-rate-actor 1e-3 --learning-rate-critic 2e-3 --gamma 0.98 --epsilon 0.1 "
        "--update-interval 512 --checkpoint-interval 500 --no-data-load"
    )
    config = resolve(DEBUG, overrides=flags.split()).config
    settings = config.algorithm
    assert settings.total_timesteps == 1000 * 20 and config.run.checkpoint_every == 500 * 20
    assert (settings.learning_rate, settings.learning_rate_critic) == (1e-3, 2e-3)
    assert (settings.gamma, settings.clip_range) == (0.98, 0.1)
    # 512 steps over all accounts are 32 of each of the 16.
    assert (settings.n_steps, settings.rollout_size) == (32, 512)
    assert TRADING.read_config(to_yaml(config)) == config
    # Once translated, the guide's settings do not overrule later ones.
    later = config.replace(total_timesteps=5120, n_steps=8, checkpoint_every=7)
    assert (later.length, later.algorithm.n_steps, later.run.checkpoint_every) == (5120, 8, 7)


def test_the_guides_rates_are_the_default():
    settings = TRADING.config().algorithm
    assert (settings.learning_rate, settings.learning_rate_critic) == (3e-4, 1e-3)
    scaled = DEBUG.replace(learning_rate_critic=1e-3, scaling="weak", lr_scaling="linear").for_world(2).algorithm
    assert scaled.learning_rate_critic == 2e-3 and scaled.n_envs == 32


def test_no_data_load_resets_all_settings_of_the_data():
    config = TRADING.config(data="there/is/no.csv", symbols="SPY", start_date="2020-01-01", no_data_load=True)
    settings = config.workload
    assert (settings.data, settings.symbols, settings.start_date, settings.no_data_load) == ("", "", "", False)
    assert TRADING.fit(config, ()) == (config, [])
    # What is forgotten need not make sense.
    assert TRADING.config(symbols="SPY", historical_lanes="0-3", no_data_load=True) == TRADING.config()


def test_files_of_bars_are_found_from_any_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert TRADING.config(data="a.csv, b/c.csv").workload.data == f"{tmp_path / 'a.csv'},{tmp_path / 'b' / 'c.csv'}"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("update_interval=100", "update_interval 100: must be a multiple of n_envs 16; nearest: 96 or 112"),
        ("network=clstm hidden_size=60", "hidden_size 60: must be a multiple of the 8 heads of network clstm"),
        ("network=clstm lstms=two", "network clstm has one cascade for both; leave it out or use --network lstm"),
        ("attention_window=8", "network lstm has no attention; leave it out or use --network clstm"),
        ("network=gru", "gru: unknown network for trading with ppo; known: lstm, clstm, auto, mlp"),
        ("sequence_length=3", "sequence_length 3 does not divide n_steps 8; nearest: 2"),
        ("data=nowhere.csv", "nowhere.csv"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_in_one_line(flags, message):
    with pytest.raises(UserError) as caught:
        TRADING.fit(TRADING.resolve("debug", overrides=flags.split()).config, ())
    assert message in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("network", "fields"),
    [("lstm", {"lstms": "two"}), ("lstm", {"aux_coef": 0.1}), ("clstm", {"aux_coef": 0.1}), ("mlp", {})],
)
def test_every_network_learns(network, fields):
    learner = learner_of(TRADING.preset("debug", network=network).replace(total_timesteps=1024, **fields))
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    (report,) = learner.step()
    assert all(not torch.equal(before[name], value) for name, value in learner.model.state_dict().items())
    assert ("train/forecast_loss" in report) == ("aux_coef" in fields)


def test_the_guides_preset_has_its_network():
    config = TRADING.preset("guide")
    assert config.run.network == "clstm" and config.network.recurrent
    assert TRADING.preset("guide", network="lstm").network.lstms == "shared"


def test_a_network_without_memory_learns_from_single_steps():
    config = TRADING.preset("debug", network="mlp")
    # 16 accounts x 8 steps in 8 lanes: a batch of 8 need not hold whole sequences of 4.
    assert not config.network.recurrent and config.replace(batch_size=8).algorithm.sequence_steps(config) == 1
    assert "hidden_size" not in config.values()


def train_and_save(world, text, folder):
    """Train, save and continue; returns the hash of the weights. Called by every rank."""
    config = TRADING.read_config(text)
    learner = learner_of(config, world)
    learner.step()
    own = world.with_lanes(config.effective_lanes, config.sync_on("cpu"))
    checkpoint.save(folder, learner.state(), world=own, step=learner.steps, workload="trading", extra={})
    learner.step()
    return checkpoint.weights_hash(dict(learner.model.state_dict()))


def resume(world, text, path):
    """Continue from a checkpoint. Called by every rank."""
    config = TRADING.read_config(text)
    learner = learner_of(config, world)
    learner.load(checkpoint.load(path, world.with_lanes(config.effective_lanes, config.sync_on("cpu")).lanes.mine))
    learner.step()
    return checkpoint.weights_hash(dict(learner.model.state_dict()))


@pytest.mark.parametrize("network", ["lstm", "mlp"])
def test_a_run_ends_in_the_same_bits_on_any_number_of_ranks_even_when_resumed(ranks, network, tmp_path):
    config = TRADING.preset("debug", network=network).replace(sync="exact", device="cpu", threads=1, n_epochs=1)
    undisturbed = ranks.run(train_and_save, to_yaml(config), str(tmp_path), ranks=2)
    (path,) = (tmp_path / "checkpoints").glob("step-*")
    for size in (1, 3):
        assert set(ranks.run(resume, to_yaml(config), str(path), ranks=size)) == set(undisturbed)


BARS = Path(__file__).parents[3] / "../shared/data/market/us_index_daily.csv.gz"


@pytest.mark.skipif(not BARS.exists(), reason="the daily bars are not there")
def test_real_and_simulated_prices_are_reported_separately():
    config = DEBUG.replace(data=str(BARS), historical_lanes="0-3", end_date="2010-12-31", start_date="2005-01-01")
    _, (note,) = TRADING.fit(config, ())
    assert "bars, 2005-01-03 to 2010-12-31; those from 20" in note
    learner = learner_of(config)
    (report,) = learner.step()
    real, simulated = (report[f"trading/{kind}_profit_mean"].count for kind in ("historical", "simulated"))
    assert real and simulated and real + simulated == report["trading/profit_mean"].count
    assert report["trading/historical_mean"].mean == pytest.approx(real / (real + simulated))
    # An evaluation is on real prices alone.
    assert set(learner.evaluate(4, 1).extra["trading_historical"]) == {1.0}


def test_results_are_grouped_by_price_source():
    info = {"historical": torch.tensor([1.0, 0.0, 1.0]), "profit": torch.tensor([1.0, 2.0, 3.0])}
    results = results_by_price_source(
        Episodes(torch.tensor([4.0, 5.0, 6.0]), torch.ones(3), info | {"sharpe": torch.zeros(3)}, torch.arange(3))
    )
    assert results["historical_reward"].tolist() == [4.0, 6.0] and results["simulated_profit"].tolist() == [2.0]


UNEQUAL = DEBUG.replace(
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
    """Train briefly with each seed; returns hashes and the episodes that ended on this rank. Called by every rank."""
    found = []
    for seed in seeds:
        learner = learner_of(TRADING.read_config(text).replace(seed=seed), world)
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
def test_ranks_whose_accounts_end_at_different_times_stay_in_step(ranks, size):
    assert check_seeds(ranks, size, range(1, 4), timeout=120) == 3


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_never_deadlock_on_any_of_two_hundred_seeds(ranks, size):
    assert check_seeds(ranks, size, range(200), timeout=500) > 150

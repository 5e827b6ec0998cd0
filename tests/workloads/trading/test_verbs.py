"""A stored trading policy: evaluated with its report, played as a blotter, and used from Python with its memory."""

import json
import shutil
from datetime import date, timedelta

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import lockstep
from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.weights import save_weights
from lockstep.workloads.trading.workload import Trading

CONFIG = Trading().preset("debug").replace(episode_length=20, hidden_size=8, device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose network prefers some actions to others, made without training."""
    directory = RunDirectory.named(tmp_path_factory.mktemp("runs"), "demo")
    directory.prepare()
    text = to_yaml(CONFIG)
    directory.write_config(text, "trading")
    model = Trading().build(CONFIG, World().with_lanes(8, "fast")).model
    with torch.no_grad():
        model.actor[-1].weight *= 300.0
    weights = dict(model.state_dict())
    save_weights(directory.path / "final", weights, config_text=text, workload="trading", step=128, extra={})
    return directory.path


def test_an_evaluation_prints_the_comparison(run, capsys):
    assert main(["eval", str(run), "--episodes", "2", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "memory cleared" in printed and "share of the profit of the oracle" in printed
    assert (run / "equity.png").is_file()
    stored = json.loads((run / "evaluation.json").read_text())
    trained = stored["comparison"]["simulated"]["trained"]
    assert trained["profit"] == pytest.approx(stored["trading_profit_mean"], abs=0.01)
    assert trained["sharpe"] == pytest.approx(stored["trading_sharpe_mean"], abs=0.01)


def test_no_report_skips_the_comparison(run, capsys, tmp_path):
    assert main(["eval", str(run), "--episodes", "2", "--no-report", "--output", str(tmp_path / "r.json")]) == 0
    assert "oracle" not in capsys.readouterr().out
    assert "comparison" not in json.loads((tmp_path / "r.json").read_text())


def test_an_exported_lstm_is_pytorchs(run, tmp_path):
    """A thousand actions by `nn.LSTMCell` and plain layers from the file alone, and by Lockstep from the same file."""
    file = tmp_path / "policy.safetensors"
    assert main(["export", str(run), "--output", str(file), "--device", "cpu"]) == 0
    with safe_open(file, "pt") as stored:
        assert "nn.LSTMCell" in stored.metadata()["lstm"]
        weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - not a dictionary
    cell = nn.LSTMCell(430, 8)
    cell.load_state_dict({name: weights[f"lstm.{name}"] for name in cell.state_dict()})
    actor = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 11))
    actor.load_state_dict({name: weights[f"actor.{name}"] for name in actor.state_dict()})
    players, state = [lockstep.load(run, device="cpu"), lockstep.load(file, device="cpu")], None
    generator, found, expected = torch.Generator().manual_seed(5), [], []
    for _ in range(100):
        observation = torch.randn(10, 430, generator=generator)
        with torch.no_grad():
            state = cell(observation, state)
            found.append(actor(state[0]).argmax(1))
        expected.append([torch.as_tensor(player.act(observation.numpy())) for player in players])
    assert len(set(torch.cat(found).tolist())) > 3
    for number in range(2):
        assert torch.equal(torch.cat(found), torch.cat([actions[number] for actions in expected]))


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    """Files of daily bars: of SPY for 200 days, and of SPY, QQQ and the short NEW."""
    folder = tmp_path_factory.mktemp("bars")
    for name, lengths in {"one": {"SPY": 200}, "three": {"SPY": 200, "QQQ": 300, "NEW": 90}}.items():
        lines = ["date,symbol,open,high,low,close,volume"]
        for symbol, length in lengths.items():
            for number in range(length):
                price = 100 + number % 7
                lines.append(f"{date(2015, 1, 1) + timedelta(days=number)},{symbol},{price},{price},{price},{price},10")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def past(bars, tmp_path_factory):
    """A run that was trained for one update on SPY, up to 2015-06-09."""
    folder = tmp_path_factory.mktemp("past")
    flags = ["--data", str(bars / "one.csv"), "--episode-length", "20", "--hidden-size", "8", "--max-updates", "1"]
    flags += ["--runs-dir", str(folder), "--run-name", "past", "--device", "cpu", "--checkpoint-every", "128"]
    assert main(["train", "trading", "--preset", "debug", *flags]) == 0
    return folder / "past"


def test_the_banner_names_symbols_that_are_too_short_and_the_days_of_all(bars):
    config = Trading().preset("debug").replace(data=str(bars / "three.csv"), episode_length=50)
    _, lines = Trading().fit(config, ())
    # NEW has 90 bars, 60 of them look-back; SPY has no 50 days from 2015-08-29 on. QQQ, the longest, is not the last.
    kept = "those from 2015-08-29 on are kept from training"
    assert lines == [
        f"data         NEW, QQQ, SPY: 590 bars, 2015-01-01 to 2015-10-27; {kept}",
        "data         train: only 2 of 3 symbols, QQQ, SPY; too few days for an episode of 50: NEW",
        "data         validation: only 1 of 3 symbols, QQQ; too few days for an episode of 50: NEW, SPY",
    ]


def test_a_policy_is_evaluated_on_days_it_was_not_trained_on(past, capsys):
    results = {}
    for policy in ("trained", "always_call"):
        asked = ["--episodes", "3", "--policy", policy, "--json", "--device", "cpu"]
        assert main(["eval", str(past), *asked]) == 0
        results[policy] = json.loads(capsys.readouterr().out)
    assert results["trained"]["on"] == "days from 2015-06-10 to 2015-07-19, none of them trained on"
    assert results["always_call"]["on"] == "days from 2015-06-10 to 2015-07-19"
    unseen = results["trained"]["comparison"]["validation_days"]
    assert unseen["about"]["first_day"] == "2015-06-10" and unseen["about"]["last_day"] == "2015-07-19"
    assert "buy_and_hold_at_equal_risk" in unseen
    for policy, found in results.items():
        assert unseen[policy]["profit"] == pytest.approx(found["trading_profit_mean"], abs=0.01)


def test_stored_weights_remember_the_days_they_were_trained_on(past, bars, tmp_path, capsys):
    """With another split, half of the days that are kept now were trained on then: the record decides."""
    exported = tmp_path / "policy.safetensors"
    assert main(["export", str(past), "--output", str(exported), "--device", "cpu"]) == 0
    flags = ["--workload", "trading", "--preset", "debug", "--data", str(bars / "one.csv"), "--hidden-size", "8"]
    flags += ["--episode-length", "20", "--validation-part", "0.4", "--episodes", "2", "--device", "cpu"]
    for model in (past / "final", exported):
        capsys.readouterr()
        assert main(["eval", str(model), *flags, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["on"]
        assert found == "days from 2015-05-01 to 2015-07-19, 40 of 80 of them trained on"
    assert main(["play", str(past), "--device", "cpu"]) == 0
    assert "Episode 1 of SPY, days from 2015-0" in (printed := capsys.readouterr().out)
    assert "none of them trained on: 100,000.00 dollars" in printed


STYLES = {
    "SPY.csv": ("Date,Open,High,Low,Close,Adj Close,Volume", "{day},{p},{p},{p},{p},{p},10"),
    "spy.us.txt": ("<TICKER>,<PER>,<DATE>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>", "SPY,D,{day:%Y%m%d},{p},{p},{p},{p},10"),
    "bars.csv": ("symbol,timestamp,open,high,low,close,volume", "SPY,{day}T05:00:00Z,{p},{p},{p},{p},10"),
}


@pytest.mark.parametrize("name", STYLES)
def test_what_yahoo_stooq_and_alpaca_write_trains_with_one_command(name, tmp_path, capsys):
    header, line = STYLES[name]
    days = [line.format(day=date(2015, 1, 1) + timedelta(days=number), p=100 + number % 7) for number in range(200)]
    (tmp_path / name).write_text("\n".join([header, *days]) + "\n")
    flags = ["--data", str(tmp_path / name), "--hidden-size", "8", "--max-updates", "1", "--device", "cpu"]
    assert main(["train", "trading", "--preset", "debug", "--runs-dir", str(tmp_path), *flags]) == 0
    printed = capsys.readouterr().out
    assert "SPY: 200 bars, 2015-01-01 to 2015-07-19" in printed
    assert f"{name}: date = " in printed


@pytest.fixture(scope="module")
def newer(bars):
    """Newer files: SPY from 2015-01-01 and from 2015-05-01 to 2015-10-27, and one without SPY."""
    for name, symbol, first in (("all", "SPY", 0), ("late", "SPY", 120), ("other", "IWM", 0)):
        lines = ["Date,Open,High,Low,Close,Volume"]
        for number in range(first, 300):
            price = 100 + number % 7
            lines.append(f"{date(2015, 1, 1) + timedelta(days=number)},{price},{price},{price},{price},10")
        (bars / name).mkdir()
        (bars / name / f"{symbol}.csv").write_text("\n".join(lines) + "\n")
    return bars


@pytest.mark.parametrize(
    "model, data, on",
    [
        # 60 bars of look-back: the first day of the late file that can be traded is 2015-06-30.
        ("past", "all", "days from 2015-06-10 to 2015-10-27, none of them trained on"),
        ("past", "late", "days from 2015-06-30 to 2015-10-27, none of them trained on"),
        # Trained on simulated prices only: it trades every symbol, on all days.
        ("run", "other", "days from 2015-03-02 to 2015-10-27, none of them trained on"),
    ],
)
def test_a_policy_is_judged_on_newer_data(request, newer, tmp_path, capsys, model, data, on):
    path, asked = request.getfixturevalue(model), ["--data", str(newer / data), "--device", "cpu"]
    assert main(["eval", str(path), *asked, "--episodes", "3", "--json", "--output", str(tmp_path / "r.json")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["on"] == on
    unseen = found["comparison"]["validation_days"]
    assert unseen["about"]["last_day"] == "2015-10-27"
    assert unseen["trained"]["profit"] == pytest.approx(found["trading_profit_mean"], abs=0.01)
    # Days before those that are unseen are compared, too, where the file has them.
    assert ("training_days" in found["comparison"]) == (data == "all")
    assert main(["play", str(path), *asked]) == 0
    symbol = "IWM" if data == "other" else "SPY"
    assert f"Episode 1 of {symbol}, days from 2015-" in (printed := capsys.readouterr().out)
    assert "none of them trained on: 100,000.00 dollars" in printed


def test_newer_data_needs_the_symbols_that_a_policy_knows(past, newer, capsys):
    assert main(["eval", str(past), "--data", str(newer / "other"), "--device", "cpu"]) == 2
    assert (error := capsys.readouterr().err).count("\n") == 1 and "symbols SPY: not in" in error


@pytest.mark.parametrize(
    "changes, words",
    [
        (["--end-date", "2015-06-30"], "days '2015-01-01 to 2015-07-19', not '2015-01-01 to 2015-06-30'"),
        (["--symbols", "QQQ", "--data", "three.csv"], "symbols SPY, not QQQ"),
        (["--validation-part", "0.1"], "trained to 2015-06-09, not 2015-06-29"),
        (["--historical-lanes", "0-3"], "historical lanes all, not 0-3"),
        (["--data", "moved.csv"], ""),
    ],
)
def test_a_run_is_resumed_with_the_data_it_was_started_with(past, bars, tmp_path, capsys, monkeypatch, changes, words):
    shutil.copytree(past, tmp_path / "past")
    (bars / "moved.csv").write_text((bars / "one.csv").read_text())
    monkeypatch.chdir(bars)
    code = main(["resume", str(tmp_path / "past"), "--max-updates", "2", "--device", "cpu", *changes])
    error = capsys.readouterr().err
    assert code == (2 if words else 0), error
    if words:
        assert error.count("\n") == 1 and words in error and "start a new run" in error


def test_play_prints_a_blotter(run, capsys):
    assert main(["play", str(run), "--episodes", "2", "--seed", "2025", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("account $") == 2 and "2 episodes, mean return" in printed
    # The same episodes as an evaluation's.
    policy = ["eval", str(run), "--episodes", "2", "--no-report", "--json", "--device", "cpu"]
    assert main(policy) == 0
    returns = json.loads(capsys.readouterr().out)["return_mean"]
    assert f"mean return {returns:.2f}" in printed


def test_a_policy_keeps_its_memory_until_forget_is_called(run):
    policy = lockstep.load(run)
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(2, 4, 430)).astype(np.float32)
    fresh = policy.probabilities(second)
    assert np.array_equal(policy.probabilities(second), fresh)
    policy.act(first)
    later = policy.probabilities(second)
    assert not np.allclose(later, fresh)
    policy.forget(np.array([True, False, False, True]))
    mixed = policy.probabilities(second)
    np.testing.assert_allclose(mixed[[0, 3]], fresh[[0, 3]], rtol=1e-5)
    np.testing.assert_allclose(mixed[[1, 2]], later[[1, 2]], rtol=1e-5)
    policy.forget()
    np.testing.assert_allclose(policy.probabilities(second), fresh, rtol=1e-5)

"""A paper account from day to day: the same as one evaluation, no day twice, and a file that is not trusted."""

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.cli import model as models
from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.weights import save_weights
from lockstep.workloads.capabilities import TradeRequest
from lockstep.workloads.trading.paper.trader import trade
from lockstep.workloads.trading.workload import Trading

TRAINED, DAYS = 200, 100
FIRST = date(2015, 1, 1)
RECORD = {"symbols": "SPY", "trained_from": str(FIRST), "trained_to": str(FIRST + timedelta(days=TRAINED - 1))}


def bars(folder, count, scale=1.0, first=0):
    """A file of the first days of a random walk; the market is open every day."""
    closes = 100 * np.exp(0.02 * np.random.default_rng(7).standard_normal(TRAINED + DAYS + 1).cumsum())
    lines = ["Date,Open,High,Low,Close,Volume"]
    for number in range(first, count):
        close = float(closes[number]) * scale
        lines.append(f"{FIRST + timedelta(days=number)},{close!r},{close * 1.01!r},{close * 0.99!r},{close!r},{number}")
    path = folder / "SPY.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that knows the first 200 days, and whose network prefers some actions to others."""
    folder = tmp_path_factory.mktemp("runs")
    config = (
        Trading().preset("debug").replace(episode_length=DAYS, hidden_size=8, device="cpu", data=bars(folder, TRAINED))
    )
    directory = RunDirectory.named(folder, "demo")
    directory.prepare()
    text = to_yaml(config)
    directory.write_config(text, "trading")
    model = Trading().build(config, World().with_lanes(8, "fast")).model
    with torch.no_grad():
        # Large weights, so that the actions depend on the observation and on the memory.
        for weight in model.parameters():
            weight *= 4.0
        model.actor[-1].weight *= 100.0
    weights = dict(model.state_dict())
    save_weights(
        directory.path / "final", weights, config_text=text, workload="trading", step=1, extra={"data": RECORD}
    )
    return directory.path


@pytest.fixture(scope="module")
def request_for(run, tmp_path_factory):
    """Makes a request with the first days of the data; the model is loaded once."""
    folder = tmp_path_factory.mktemp("bars")
    options = models.ModelOptions(device="cpu")
    subject = models.find(str(run), options, [], bars(folder, TRAINED + DAYS))
    learner = models.load(subject, "cpu").learner

    def made(account, days, **changes):
        bars(folder, TRAINED + days, **changes)
        return TradeRequest(subject.config, learner, account, trained_on=RECORD)

    return made


@pytest.fixture(scope="module")
def kept(request_for, tmp_path_factory):
    """The account's file, and copies of it after days 40 and 100; the first day is the last that was trained on."""
    folder, sessions = tmp_path_factory.mktemp("accounts"), []
    path = folder / "paper.json"
    for day in range(1, DAYS + 2):
        sessions.append(trade(request_for(path, day)))
        if day == 41:
            (folder / "day-40.json").write_text(path.read_text())
    return path, sessions


def refusal(request):
    before = request.account.read_text()
    with pytest.raises(UserError) as refused:
        trade(request)
    assert request.account.read_text() == before
    assert "\n" not in str(refused.value) and "\x1b" not in str(refused.value)
    return str(refused.value)


def test_a_hundred_days_one_by_one_are_one_evaluation(run, kept, tmp_path, capsys):
    path, sessions = kept
    data = bars(tmp_path, TRAINED + DAYS + 1)
    assert main(["eval", str(run), "--data", data, "--episodes", "1", "--no-report", "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    today = sessions[-1].decisions[-1]
    assert found["length_mean"] == DAYS and found["on"].endswith("none of them trained on")
    # An evaluation reports float32.
    assert today.value == pytest.approx(found["trading_value_mean"], rel=1e-6)
    assert sessions[-1].profit == pytest.approx(found["trading_profit_mean"], rel=1e-5)
    account = json.loads(path.read_text())["account"]
    assert account["value"] == today.value
    assert account["tally"][0] == found["trading_closed_trades_mean"] > 5
    assert len({session.decisions[-1].action for session in sessions}) > 3


def test_days_that_were_missed_are_made_up_for(kept, request_for, tmp_path):
    """From day 40 to day 100 at once: the same file as day by day."""
    path, sessions = kept
    copy = tmp_path / "paper.json"
    copy.write_text((path.parent / "day-40.json").read_text())
    session = trade(request_for(copy, DAYS + 1))
    assert copy.read_text() == path.read_text()
    assert [decision.day for decision in session.decisions] == [s.decisions[-1].day for s in sessions[41:]]
    assert "missed" in session.table()


def test_a_day_is_not_decided_on_twice(kept, request_for):
    path, _ = kept
    assert "has decided on 2015-10-28 already, and the newest day of SPY in the data is 2015-10-28" in refusal(
        request_for(path, DAYS + 1)
    )
    assert "the newest day of SPY in the data is 2015-10-20" in refusal(request_for(path, DAYS - 7))


def test_a_split_changes_the_positions_and_not_what_they_are_worth(kept, request_for, tmp_path):
    path, sessions = kept
    copy = tmp_path / "paper.json"
    copy.write_text((path.parent / "day-40.json").read_text())
    session = trade(request_for(copy, 42, scale=0.5))
    assert "it has been adjusted, and so were the positions" in session.table()
    before, after = sessions[41].decisions[-1], session.decisions[-1]
    assert before.positions > 0 and before.price == pytest.approx(2 * after.price)
    # The commission is for contracts, of which there are twice as many; nothing else differs.
    assert after.value == pytest.approx(before.value, rel=1e-3)


def test_what_is_printed_says_what_to_do_and_why(run, tmp_path, capsys):
    data, account = bars(tmp_path, TRAINED + 3), tmp_path / "paper.json"
    asked = ["trade", str(run), "--data", data, "--account", str(account), "--device", "cpu"]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["data", "day", "account", "action", "policy", "reason", "kept"]
    assert (
        "2015-07-22, SPY at" in lines[1]
        and "100,000.00 dollars" in lines[2]
        and "without the options chain" in lines[5]
    )
    assert main(asked) == 2
    assert (error := capsys.readouterr().err).count("\n") == 1 and "has decided on 2015-07-22 already" in error
    bars(tmp_path, TRAINED + 4)
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["days"][0]["day"] == "2015-07-23"
    assert sum(found["days"][0]["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)


def test_a_decision_fits_the_terminal_and_loses_no_word(run, tmp_path, terminal, capsys):
    data = bars(tmp_path, TRAINED + 3)
    shown = {}
    for name, width in (("pipe", None), ("narrow", 80), ("wide", 200)):
        screen = terminal(width) if width else None
        asked = ["trade", str(run), "--data", data, "--account", str(tmp_path / name), "--device", "cpu"]
        assert main(asked) == 0
        shown[name] = screen.words() if screen else capsys.readouterr().out.split()
        assert screen is None or screen.too_wide(width) == []
    # The last word is the account's path.
    assert shown["narrow"][:-1] == shown["wide"][:-1] == shown["pipe"][:-1]


def test_a_day_that_was_trained_on_says_so(request_for, tmp_path):
    assert "; the policy was trained on this day" in trade(request_for(tmp_path / "paper.json", 0)).table()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--account", "paper.json"], "--data is missing"),
        (["--data", "SPY.csv"], "--account is missing"),
        (["--data", "SPY.csv", "--account", "none/paper.json"], "the directory none does not exist"),
        (["--data", "SPY.csv", "--account", "n" * 500], "has a name longer than 255 bytes"),
        (["--data", "SPY.csv", "--account", "paper.json", "--symbol", "QQQ"], "--symbol QQQ: not among the symbols"),
    ],
)
def test_a_wrong_command_is_one_line(run, tmp_path, monkeypatch, capsys, words, message):
    bars(tmp_path, TRAINED)
    monkeypatch.chdir(tmp_path)
    assert main(["trade", str(run), "--device", "cpu", *words]) == 2
    assert (error := capsys.readouterr().err).count("\n") == 1 and message in error


def changed(**changes):
    return lambda content: json.dumps({**content, **changes})


def with_account(**changes):
    return lambda content: json.dumps({**content, "account": {**content["account"], **changes}})


@pytest.mark.parametrize(
    "forged, message",
    [
        (lambda _: "", "is not JSON (Expecting value"),
        (lambda _: "[" * 100_000, "nested deeper"),
        (lambda _: "[1]", "is no paper account"),
        (changed(format="\x1b[31m"), "is no paper account"),
        (changed(version=2), "has version 2, this version of Lockstep reads 1"),
        (changed(day="soon"), "Invalid isoformat"),
        (changed(symbol=5), "symbol is 5, which is no text"),
        (changed(close=float("nan")), "close is nan, which is no price"),
        (changed(close=10**400), "which is no price"),
        (changed(action="buy_everything"), "action is buy_everything; allowed: hold"),
        (changed(bankrupt=1), "bankrupt is 1"),
        (changed(bankrupt=True), "went bankrupt on"),
        (changed(model="other"), "was begun by another model"),
        (changed(day="2014-05-01"), "give data that goes back further"),
        (changed(account={}), "account does not have the parts"),
        (changed(memory={"memory.0": [0.0]}), "memory does not have the parts"),
        (with_account(cash="much"), "cash has much, which is out of range"),
        (with_account(cash=1e300), "cash has 1e+300, which is out of range"),
        (with_account(cash=float("inf")), "cash has inf, which is out of range"),
        (with_account(cash=-(10**400)), "which is out of range"),
        (with_account(open=[True]), "open has not the shape"),
        (with_account(open=[1] * 5), "open has 1, which is out of range"),
        (with_account(steps=-1), "steps has -1, which is out of range"),
        (with_account(strike=[[0.0] * 4] * 5), "strike has 0.0, which is out of range"),
    ],
)
def test_a_file_that_is_no_account_is_refused_in_one_line(kept, request_for, tmp_path, forged, message):
    path, _ = kept
    copy = Path(tmp_path / "paper.json")
    copy.write_text(forged(json.loads((path.parent / "day-40.json").read_text())))
    assert message in refusal(request_for(copy, 42))


def test_another_symbol_than_the_accounts_is_refused(kept, request_for):
    path, _ = kept
    assert "trades SPY; leave this out" in refusal(replace(request_for(path, DAYS + 1), symbol="QQQ"))

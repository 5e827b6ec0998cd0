"""Recorded chains in every verb: trained on any number of ranks, resumed, evaluated, played and traded on paper."""

import json
import runpy
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from lockstep.cli import model as models
from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.errors import UserError
from lockstep.workloads.capabilities import TradeRequest
from lockstep.workloads.trading.market.history import load_history
from lockstep.workloads.trading.market.settings import MarketSettings
from lockstep.workloads.trading.paper.trader import trade
from lockstep.workloads.trading.workload import Trading

EXAMPLE = Path(__file__).parents[3] / "examples" / "option_chains.py"
FIRST, COUNT = date(2015, 1, 1), 200
SMALL = {"episode_length": 20, "hidden_size": 8, "device": "cpu"}


def files(folder, count=COUNT, adjusted=1.0):
    """Bars and quotes of the first days; the market is open every day, and options expire every ten days.

    `adjusted`: what the prices of the bars are multiplied by.
    """
    closes = 100 * np.exp(0.01 * np.random.default_rng(7).standard_normal(COUNT).cumsum())
    bars, quotes = ["Date,Open,High,Low,Close,Volume"], ["date,symbol,expiry,strike,type,bid,ask"]
    for number in range(count):
        day, close = FIRST + timedelta(days=number), round(float(closes[number]), 2)
        bars.append(f"{day}," + f"{close * adjusted}," * 4 + "1000")
        for tens in range(1, 6):
            end = number // 10 * 10 + 10 * tens
            for strike in np.unique(np.round(close * np.array([0.9, 0.95, 1.0, 1.05, 1.1]))):
                for kind, value in (("C", close - strike), ("P", strike - close)):
                    mid = round(max(value, 0.0) + 2.0 * np.exp(-(((strike - close) / 8) ** 2)), 2)
                    expiry = FIRST + timedelta(days=end)
                    quotes.append(f"{day},SPY,{expiry},{strike},{kind},{mid:.2f},{mid + 0.1:.2f}")
    (folder / "SPY.csv").write_text("\n".join(bars) + "\n")
    (folder / "chains.csv").write_text("\n".join(quotes) + "\n")
    return {"data": str(folder / "SPY.csv"), "chains": str(folder / "chains.csv")}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was trained for one update on the first 150 days."""
    folder = tmp_path_factory.mktemp("run")
    flags = [f"--{name}={value}" for name, value in files(folder, 150).items()]
    flags += ["--episode-length=20", "--hidden-size=8", "--max-updates=1", "--checkpoint-every=128", "--device=cpu"]
    assert main(["train", "trading", "--preset", "debug", *flags, f"--runs-dir={folder}", "--run-name=demo"]) == 0
    return folder / "demo"


def test_exact_mode_on_chains_gives_the_same_bits_on_one_and_two_ranks(ranks, tmp_path):
    text = to_yaml(Trading().preset("debug").replace(**SMALL, **files(tmp_path), threads=1, sync="exact"))
    answers = []
    for size in (1, 2):
        place = tmp_path / str(size)
        place.mkdir()
        arguments = ("trading", text, 3, str(place))
        answers.append(ranks.run("lockstep.cli.short_runs:train_briefly", *arguments, ranks=size)[0]["sha256"])
    assert answers[0] == answers[1]


def test_a_run_goes_on_with_its_chains_alone(run, tmp_path, capsys):
    other = files(tmp_path, 150)["chains"]
    resumed = ["resume", str(run), "--max-updates", "2", "--device", "cpu"]
    lines = Path(other).read_text().splitlines()
    Path(other).write_text("\n".join(lines[:-1]) + "\n")
    assert main([*resumed, "--chains", other]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "was trained on data with chains" in error
    assert main(resumed) == 0


def test_newer_chains_are_evaluated_and_played_and_what_is_odd_is_told(run, tmp_path, capsys):
    newer = [word for name, value in files(tmp_path).items() for word in (f"--{name}", value)]
    asked = ["--device", "cpu", "--episodes", "1"]
    values = {}
    for name, words in {"recorded": newer, "model": newer[:2]}.items():
        result = tmp_path / f"{name}.json"
        assert main(["eval", str(run), *words, *asked, "--no-report", "--json", "--output", str(result)]) == 0
        values[name] = json.loads(capsys.readouterr().out)["trading_costs_mean"]
    # The recorded spread is ten cents; the model's is another one.
    assert values["recorded"] != values["model"]
    assert main(["play", str(run), *newer, *asked]) == 0
    told = capsys.readouterr()
    assert "Episode 1 of SPY, days from 2015-0" in told.out and "none of them trained on" in told.out
    assert "data         SPY: 200 bars" in told.err and "chains: " in told.err


def test_notes_on_other_data_are_those_of_training(run, tmp_path, capsys):
    data = files(tmp_path)["data"]
    lines = Path(data).read_text().splitlines()
    # A week is missing, and the price is halved from one day to the next.
    halved = [",".join([line.split(",")[0], *(str(float(x) / 2) for x in line.split(",")[1:])]) for line in lines[180:]]
    Path(data).write_text("\n".join([*lines[:160], *lines[168:180], *halved]) + "\n")
    for verb in ("eval", "play"):
        words = ["--no-report"] if verb == "eval" else []
        assert main([verb, str(run), "--data", data, "--episodes", "1", "--device", "cpu", *words]) == 0
        told = capsys.readouterr().err
        assert "missing days: SPY none between 2015-06-08 and 2015-06-17" in told
        assert "look like splits" in told
    assert main(["eval", str(run), "--data", data, "--episodes", "1", "--device", "cpu", "--quiet", "--no-report"]) == 0
    assert "missing days" not in capsys.readouterr().err


def test_days_one_by_one_on_chains_are_one_evaluation(run, tmp_path, capsys):
    """Twenty days after those of the training; the run knows the first 120."""
    first = 150
    named = files(tmp_path, first)
    subject = models.find(str(run), models.ModelOptions(device="cpu"), [], named["data"], chains=named["chains"])
    learner = models.load(subject, "cpu").learner
    account = tmp_path / "paper.json"
    for count in range(first, first + 21):
        files(tmp_path, count)
        days = trade(TradeRequest(subject.config, learner, account))
    history = load_history(MarketSettings(**named))
    assert history.chains is not None and len(history.day) == first + 20
    # The same days by the same environment, in one go.
    config = subject.config.replace(validation_from=str(FIRST + timedelta(days=first - 1)))
    judged = Trading().judge(config, learner, models.place_of(subject, "cpu"))(1, 2025)
    assert days.decisions[-1].value == pytest.approx(judged.extra["trading_value"][0], rel=1e-6)


def test_bars_that_have_been_adjusted_since_are_refused(run, tmp_path):
    named = files(tmp_path, 150)
    subject = models.find(str(run), models.ModelOptions(device="cpu"), [], named["data"], chains=named["chains"])
    request = TradeRequest(subject.config, models.load(subject, "cpu").learner, tmp_path / "paper.json")
    trade(request)
    before = request.account.read_text()
    files(tmp_path, 151, adjusted=0.99)
    with pytest.raises(
        UserError, match=r"the price of 2015-05-30 is .* now and was .*; give bars that are not adjusted"
    ):
        trade(request)
    assert request.account.read_text() == before
    # A price that was corrected by a cent is no adjustment, and changes no contract.
    files(tmp_path, 151, adjusted=1.0001)
    assert not trade(request).notes


def test_the_example_of_chains_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["option_chains.py", str(tmp_path)])
    example = runpy.run_path(str(EXAMPLE))
    example["main"].__globals__["DAYS"] = 110
    example["main"]()
    flags = ["--data", str(tmp_path / "SPY.csv"), "--chains", str(tmp_path / "chains.csv"), "--device", "cpu"]
    flags += ["--hidden-size", "8", "--max-updates", "1", "--validation-part", "0", "--runs-dir", str(tmp_path)]
    assert main(["train", "trading", "--preset", "debug", *flags]) == 0
    printed = capsys.readouterr().out
    assert "crossed" in printed and "date = quote_date" in printed


def test_chains_are_for_trading_alone(tmp_path, capsys):
    flags = ["--chains", str(tmp_path), "--policy", "random", "--preset", "debug"]
    assert main(["eval", "snake", *flags]) == 2
    assert capsys.readouterr().err.count("\n") == 1

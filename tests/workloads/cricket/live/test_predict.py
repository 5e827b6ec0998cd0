"""`lockstep predict` with a run of the simulated league: text, JSON, files of every ball, following, and refusals."""

import io
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import lockstep
from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.weights import save_weights
from lockstep.workloads.cricket.columns import OUTCOMES
from lockstep.workloads.cricket.workload import Cricket


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The path of an untrained run, which predicts the outcomes' frequencies and a little more."""
    config = (
        Cricket()
        .preset("debug")
        .replace(cache_dir=str(tmp_path_factory.mktemp("cache")), threads=1, device="cpu", drop_relations="ball")
    )
    learner = Cricket().build(config, World().with_lanes(config.effective_lanes, "fast"))
    found = RunDirectory.named(tmp_path_factory.mktemp("runs"), "demo")
    found.prepare()
    text = to_yaml(config.replace(run_name="demo"))
    found.write_config(text, "cricket")
    weights = dict(learner.model.state_dict())
    save_weights(found.path / "final", weights, config_text=text, workload="cricket", step=1, extra={})
    return str(found.path)


@pytest.fixture
def match(tmp_path, match_file):
    """A match file in the middle of its second innings."""
    document = json.loads(match_file(3))
    document["info"]["dates"] = ["2030-01-01"]
    document["innings"][1]["overs"] = document["innings"][1]["overs"][:2]
    path = tmp_path / "now.json"
    path.write_text(json.dumps(document))
    return path


def test_predict_prints_the_next_ball_and_what_moved_it(run, match, capsys):
    assert main(["predict", run, str(match), "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Reds v Blues (2030-01-01, Park)"
    # Every over of the file has runs 3, 4, 0, 1, 2, 3: 13 each; the reds made 65, so 66 win.
    assert lines[1] == "Blues 26/0 after 2.0, 40 needed from 108 balls"
    assert lines[2].startswith("next: ") and "guessed: bowler" in lines[2]
    assert [line.split()[0] for line in lines[5:12]] == list(OUTCOMES)
    assert any(line.startswith("what moved it") for line in lines)


def test_a_forecast_fits_the_terminal_and_loses_no_word(run, match, terminal, capsys):
    content = json.loads(match.read_text())
    content["info"]["venue"] = "The ground of the united cricket clubs of the northern districts and their neighbours"
    match.write_text(json.dumps(content))
    asked = ["predict", run, str(match), "--simulate", "6", "--device", "cpu"]
    assert main(asked) == 0
    piped = capsys.readouterr().out
    assert max(map(len, piped.splitlines())) > 100
    screen = terminal(80)
    assert main(asked) == 0
    assert screen.too_wide(80) == [] and screen.words() == piped.split()


def test_predict_gives_json_and_plays_the_match_out(run, match, capsys):
    assert main(["predict", run, str(match), "--json", "--simulate", "6", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["batting"], found["runs"], found["target"]) == ("Blues", 26, 66)
    assert sum(found["next_ball"]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert set(found["next_ball"]["moved_by"]) >= {"striker", "bowler", "venue", "chase"}
    assert found["simulation"]["games"] == 6 and found["simulation"]["final_score"]["mean"] >= 26
    assert sum(found["simulation"]["wins"].values()) == pytest.approx(1)
    again = lockstep.load(run, device="cpu").forecast(str(match), simulate=6)
    assert again == [found]


def test_the_callers_word_about_who_bowls_counts(run, match, capsys):
    assert main(["predict", run, str(match), "--json", "--bowler", "P1", "--device", "cpu"]) == 0
    ball = json.loads(capsys.readouterr().out)["next_ball"]
    assert ball["bowler"] == "P1" and ball["guessed"] == []
    assert main(["predict", run, str(match), "--bowler", "Nobody", "--device", "cpu"]) == 2
    assert "bowler Nobody: does not play" in capsys.readouterr().err


def test_every_past_ball_goes_to_a_file(run, match, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    for form in ("csv", "json", "parquet"):
        path = tmp_path / f"balls.{form}"
        assert main(["predict", run, str(match), "--per-ball", str(path), "--device", "cpu"]) == 0
        # 30 and 12 deliveries, of which the first two of the innings are not predicted.
        assert capsys.readouterr().out.endswith(f"{form}: 40 balls\n")
    rows = json.loads((tmp_path / "balls.json").read_text())
    # The second ball of the first innings: P1 faces after the first, which brought three.
    assert (rows[0]["innings"], rows[0]["over"], rows[0]["ball"], rows[0]["runs"]) == (1, 0, 2, 3)
    assert sum(rows[0][f"p_{outcome}"] for outcome in OUTCOMES) == pytest.approx(1, abs=1e-5)
    predicted = lockstep.load(run, device="cpu").predict(str(match))
    assert torch.allclose(torch.tensor([[row[f"p_{o}"] for o in OUTCOMES] for row in rows]), torch.tensor(predicted))
    assert len((tmp_path / "balls.csv").read_text().splitlines()) == 41
    assert main(["predict", run, str(match), "--per-ball", "balls.xlsx", "--device", "cpu"]) == 2
    assert "allowed: .csv, .json, .parquet" in capsys.readouterr().err


def test_a_growing_file_is_followed_until_the_match_is_over(run, match, capsys):
    document = json.loads(match.read_text())

    def grow():
        # Cut short, as a reader may see it while it is written; then one over more; then won by a six.
        time.sleep(0.3)
        match.write_text(json.dumps(document)[:100])
        time.sleep(0.3)
        over = document["innings"][1]["overs"][-1]
        document["innings"][1]["overs"].append({**over, "over": 2})
        match.write_text(json.dumps(document))
        time.sleep(0.6)
        ball = over["deliveries"][0] | {"runs": {"batter": 6, "extras": 0, "total": 60}}
        document["innings"][1]["overs"].append({"over": 3, "deliveries": [ball]})
        match.write_text(json.dumps(document))

    writer = threading.Thread(target=grow)
    writer.start()
    assert main(["predict", run, str(match), "--follow", "--interval", "0.05", "--device", "cpu"]) == 0
    writer.join()
    out = capsys.readouterr().out
    assert "it is over: nothing to forecast" in out


def test_json_of_a_followed_file_is_not_mixed_with_what_is_told(run, match, capsys, monkeypatch):
    document = json.loads(match.read_text())
    ball = document["innings"][1]["overs"][-1]["deliveries"][0] | {"runs": {"batter": 6, "extras": 0, "total": 60}}
    document["innings"][1]["overs"].append({"over": 2, "deliveries": [ball]})
    # Read first in the middle of being written; while it waits, the last ball is added.
    match.write_text(json.dumps(document)[:100])
    clock = SimpleNamespace(sleep=lambda _: match.write_text(json.dumps(document)))
    monkeypatch.setattr("lockstep.cli.results.predict.time", clock)
    assert main(["predict", run, str(match), "--follow", "--json", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["note"] for line in out.splitlines()] == ["it is over"]
    assert "waiting for the file to change" in err


def test_a_match_on_the_standard_input_and_one_that_is_none(run, match, capsys, monkeypatch):
    class Stdin:
        def __init__(self, content):
            self.buffer = io.BytesIO(content)

    monkeypatch.setattr("sys.stdin", Stdin(match.read_bytes()))
    assert main(["predict", run, "-", "--device", "cpu"]) == 0
    assert "Blues 26/0" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", Stdin(b"{}"))
    assert main(["predict", run, "-", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == "lockstep: -: the file has no 'info'; give a match as Cricsheet writes it\n"


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"info": 3}', '{"info": {"teams": ["A"]}}', "[" * 5000, '{"info": {"teams": ["A", "A"]}}', "\x00"],
)
def test_a_hostile_file_is_refused_in_one_line(run, tmp_path, content, capsys):
    path = tmp_path / "bad.json"
    path.write_text(content)
    assert main(["predict", run, str(path), "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lockstep: ") and error.count("\n") == 1 and "Traceback" not in error


def test_what_cannot_be_predicted_is_refused_in_one_line(run, match, capsys):
    for arguments, reason in (
        ([], "needs one match file"),
        ([str(match), "more"], "needs one match file"),
        (["nowhere.json"], "no such file or folder"),
        ([str(Path(match).parent), "--follow"], "can follow one file only"),
    ):
        assert main(["predict", run, *arguments, "--device", "cpu"]) == 2
        assert reason in capsys.readouterr().err


def test_a_match_of_the_past_knows_no_later_career(run):
    # The league plays from 2015 to 2024, and the run's own careers count all of it.
    forecaster = lockstep.load(run, device="cpu")._forecaster
    assert forecaster._store("2030-01-01").chronicle is None
    assert forecaster._store("").chronicle is None
    past = forecaster._store("2016-01-01")
    assert past.chronicle is not None and past.index == forecaster._own_store.index

"""Cricket through the command line: trained in a simulated league, evaluated, played, and refused."""

import json
import re

import pytest
import torch

import lockstep
from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.weights import save_weights
from lockstep.workloads.capabilities import Plays, Predicts
from lockstep.workloads.cricket.data.preparation import open_splits
from lockstep.workloads.cricket.data.samples import grouped
from lockstep.workloads.cricket.workload import Cricket

CRICKET = Cricket()


def build(config, world=None):
    """The learner of a configuration."""
    return CRICKET.build(config, (world or World()).with_lanes(config.effective_lanes, "fast"))


@pytest.fixture(scope="module")
def league(tmp_path_factory):
    """A configuration whose league is prepared once for this module."""
    return CRICKET.preset("debug").replace(cache_dir=str(tmp_path_factory.mktemp("cache")), threads=1, device="cpu")


@pytest.fixture
def at_run(league, tmp_path, monkeypatch):
    """A working directory with a run called `demo`, trained for two updates; returns its path."""
    monkeypatch.chdir(tmp_path)
    learner = build(league)
    learner.step(), learner.step()
    run = RunDirectory.named(tmp_path / "runs", "demo")
    run.prepare()
    text = to_yaml(league.replace(run_name="demo"))
    run.write_config(text, "cricket")
    weights = dict(learner.model.state_dict())
    save_weights(run.path / "final", weights, config_text=text, workload="cricket", step=learner.steps, extra={})
    return run.path


def test_eval_writes_json_and_charts_to_the_run(at_run, capsys):
    assert main(["eval", "demo", "--device", "cpu"]) == 0
    output = capsys.readouterr().out
    assert "log loss" in output and "actual / predicted" in output
    results = json.loads((at_run / "evaluation.json").read_text())
    assert results["workload"] == "cricket" and results["measured_on"] == "validation"
    assert results["samples"] == sum(map(sum, results["confusion_matrix"]))
    assert 0.5 < results["log_loss"] < 3.0
    if pytest.importorskip("matplotlib"):
        assert (at_run / "confusion.png").exists() and (at_run / "reliability.png").exists()


def test_eval_measures_other_parts_of_the_split(at_run, tmp_path, capsys):
    assert main(["eval", "demo", "--part", "train", "--no-report", "--output", "train.json", "--device", "cpu"]) == 0
    results = json.loads((tmp_path / "train.json").read_text())
    assert results["measured_on"] == "train" and results["matches"] == 8
    assert not list(tmp_path.glob("*.png"))


def test_baselines_are_measured_in_the_same_way(league, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fields = ["--preset", "debug", "--cache-dir", league.workload.cache_dir, "--json", "--no-report"]
    losses = {}
    for name in ("prior", "over"):
        assert main(["eval", "cricket", "--policy", name, *fields]) == 0
        losses[name] = json.loads(capsys.readouterr().out)["log_loss"]
    assert losses["over"] != losses["prior"]
    assert 1.0 < losses["prior"] < 2.0


def test_play_follows_a_match_ball_by_ball(at_run, capsys):
    assert main(["play", "demo", "--max-frames", "4", "--device", "cpu"]) == 0
    output = capsys.readouterr().out
    assert "the first ball of an innings is not predicted" in output
    assert output.count("actual") >= 3 and "expected runs" in output
    assert max(map(len, output.splitlines())) <= 80


def test_a_trained_network_predicts_from_python(at_run, league):
    policy = lockstep.load(at_run, device="cpu")
    table = open_splits(league.workload, World()).validation
    samples = grouped(table, league.workload.history_groups, league.network.reads_balls).inputs(0, torch.arange(5))
    probabilities = policy.probabilities(samples)
    assert probabilities.shape == (5, 7)
    assert probabilities.sum(1) == pytest.approx(1.0)
    assert policy.act(samples).tolist() == probabilities.argmax(1).tolist()
    with pytest.raises(UserError, match=r"observations of shape \(5, 3\): the network does not take them"):
        policy.act(torch.zeros(5, 3))


def test_a_network_predicts_every_ball_of_a_match_file_from_python(at_run, tmp_path, folder_of, capsys):
    model, folder = lockstep.load(at_run, device="cpu"), folder_of(tmp_path / "others", 2)
    probabilities = model.predict(folder)
    assert main(["eval", str(at_run), "--data", folder, "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert probabilities.shape == (found["samples"], 7)
    assert probabilities.sum(1) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(UserError, match="predict: a ndarray is no match; allowed: the path of a match file"):
        model.predict(probabilities)


def test_data_is_evaluated_for_a_model_and_split_for_a_baseline(at_run, tmp_path, folder_of, capsys):
    others = folder_of(tmp_path / "others")
    assert main(["eval", "demo", "--data", others, "--device", "cpu", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["measured_on"] == others and results["matches"] == 12
    assert main(["eval", "cricket", "--policy", "over", "--preset", "debug", "--data", others, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["measured_on"] == "validation" and results["matches"] < 12
    assert main(["eval", "demo", "--data", others, "--part", "test"]) == 2
    assert "leave out either --part or --data" in capsys.readouterr().err


def test_play_writes_a_video_of_a_baseline(league, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fields = ["--preset", "debug", "--cache-dir", league.workload.cache_dir]
    argv = ["play", "cricket", "--policy", "over", *fields, "--video", "m.gif", "--episodes", "1", "--max-frames", "3"]
    assert main(argv) == 0
    assert (tmp_path / "m.gif").read_bytes().startswith(b"GIF8")


def test_presets_have_the_settings_they_describe():
    guide, base, whole = (CRICKET.preset(name) for name in ("guide", "base", "whole"))
    assert guide.algorithm.loss == "focal" and guide.algorithm.class_weights
    assert base.algorithm.loss == "cross_entropy"
    assert base.network.hidden_dim == 128 and base.network.num_layers == 3
    assert not base.network.reads_balls and whole.network.reads_balls
    assert (base.network.members, whole.network.members) == (4, 1)
    assert whole.algorithm.batch_size == base.algorithm.batch_size == 2048


def test_the_plan_says_where_matches_come_from_and_how_large_the_network_is():
    rows = dict(CRICKET.preset("small").work(str))
    assert list(rows) == ["data", "network", "batch", "epochs", "loss"]
    assert rows["data"] == "a simulated league of 400 matches"
    assert rows["network"] == "1 x base, 2 rounds of 32 channels, 4 heads, without ball"


def test_it_can_be_played_and_evaluated():
    assert isinstance(CRICKET, Plays) and isinstance(CRICKET, Predicts)


def test_where_files_are_may_differ_between_machines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = CRICKET.config(data="m", split="s.json", cache_dir="c")
    assert (config.workload.data, config.workload.split) == (str(tmp_path / "m"), str(tmp_path / "s.json"))
    assert not {"data", "split", "cache_dir"} & config.shared_settings().keys()


def test_a_problem_has_the_vocabulary_prior_and_scales(league):
    problem = CRICKET.problem(league, World())
    splits = open_splits(league.workload, World())
    assert sum(problem.train.sizes) == splits.train.samples and problem.data_digest == splits.source
    assert problem.vocabulary.players == len(splits.entities.players)
    assert float(problem.prior.sum()) == pytest.approx(1.0)
    # Without earlier balls all samples have one shape.
    assert len(problem.train.sizes) == 2
    assert len(CRICKET.problem(league.replace(drop_relations="ball"), World()).train.sizes) == 1


def test_the_guides_flags_are_known(capsys):
    argv = "--epochs 10 --batch-size 32 --hidden-dim 64 --num-layers 2 --num-heads 2 --dropout 0.2 --lr 5e-4"
    argv += " --weight-decay 0.1 --patience 3 --no-class-weights --seed 7 --min-epochs 2 --wandb-project cricket-gnn"
    assert main(["plan", "cricket", *argv.split(), "--ranks", "2"]) == 0
    output = capsys.readouterr().out
    assert "32 (16 + 16)" in output and "2 rounds of 64 channels" in output


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hidden_dim": 30}, "hidden_dim 30 must be a multiple of num_heads 4 and of 4"),
        ({"split": "x.json"}, "names matches of --data, which is missing"),
        ({"drop_relations": "same_bowlers"}, "nearest is same_bowler"),
        ({"matches": 3}, "matches 3"),
        ({"loss": "mse"}, "loss mse: outcomes are classes; allowed: cross_entropy, focal"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(changes, problem):
    with pytest.raises(UserError, match=problem) as caught:
        CRICKET.config(**changes)
    assert len(str(caught.value).splitlines()) == 1


@pytest.fixture
def trained(tmp_path, monkeypatch, folder_of):
    """A working directory `here` with a run `demo` of one update on its folder `m`; returns its argv."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    folder_of(tmp_path / "here" / "m")
    names = [f"{number:02d}.json" for number in range(12)]
    (tmp_path / "here" / "s.json").write_text(json.dumps({"train": names[:9], "val": names[9:]}))
    argv = ["train", "cricket", "--preset", "debug", "--data", "m/", "--split", "s.json", "--run-name", "demo"]
    argv += ["--cache-dir", "c", "--max-updates", "1", "--device", "cpu", "--threads", "1"]
    assert main(argv) == 0
    return argv


def test_a_run_finds_its_matches_from_any_working_directory(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "here/runs/demo", "--device", "cpu", "--no-report"]) == 0
    assert not (tmp_path / "c").exists()
    monkeypatch.chdir(tmp_path / "here")
    assert main(trained) == 0
    assert "resumed from" in capsys.readouterr().out  # and not another experiment
    (tmp_path / "here" / "m").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "here/runs/demo", "--max-updates", "3", "--data", "moved"]) == 0
    stored = CRICKET.read_config((tmp_path / "here/runs/demo/config.yaml").read_text()).workload
    assert stored.data == str(tmp_path / "moved") and stored.split == str(tmp_path / "here" / "s.json")


@pytest.mark.parametrize(("gone", "needed"), [("m", "training matches are needed for names"), ("s.json", "split file")])
def test_missing_training_data_is_named_with_its_path(trained, tmp_path, folder_of, capsys, gone, needed):
    others = folder_of(tmp_path / "others")
    (tmp_path / "here" / gone).rename(tmp_path / "elsewhere")
    for argv in (["eval", "demo", "--data", others], ["eval", "demo"], ["play", "demo"]):
        assert main(argv) == 2
        output = capsys.readouterr().err.splitlines()[-1]
        assert needed in output and f"{tmp_path / 'here' / gone} does not exist; restore it there" in output
        assert "give" not in output


def test_changed_matches_are_refused_by_resume_and_reported_by_eval(trained, tmp_path, match_file, capsys):
    evaluation = ["eval", "demo", "--device", "cpu", "--no-report"]
    assert main(evaluation) == 0
    assert "changed" not in capsys.readouterr().err
    (tmp_path / "here" / "m" / "00.json").write_text(match_file(20))
    assert main(["resume", "demo", "--max-updates", "2"]) == 2
    output = capsys.readouterr().err.splitlines()[-1]
    assert re.search(
        r"data: its digest is \w{16}, but was \w{16} .* continues with the data it was started with", output
    )
    for argv in (evaluation, ["play", "demo", "--max-frames", "1"]):
        assert main(argv) == 0
        assert capsys.readouterr().err.count("its data has changed since it was trained (digest ") == 1


@pytest.mark.parametrize("verb", [["eval", "--no-report"], ["play", "--max-frames", "1"]])
def test_bad_files_of_other_data_are_skipped_with_the_suggested_flag(at_run, tmp_path, folder_of, capsys, verb):
    others = folder_of(tmp_path / "others", broken="{")
    argv = [verb[0], "demo", "--device", "cpu", *verb[1:], "--data", others]
    assert main(argv) == 2
    assert "or use --bad-files skip" in capsys.readouterr().err
    assert main([*argv, "--bad-files", "skip"]) == 0
    assert "left out broken.json" in capsys.readouterr().err


def test_bad_files_needs_data(at_run, tmp_path, folder_of, capsys):
    assert main(["eval", "demo", "--bad-files", "skip"]) == 2
    assert "--bad-files skip: applies to the files of --data, which is missing" in capsys.readouterr().err
    others = folder_of(tmp_path / "others", broken="{")
    argv = ["eval", "cricket", "--policy", "over", "--preset", "debug", "--no-report", "--data", others]
    assert main([*argv, "--bad-files", "skip"]) == 0
    assert main(["eval", "snake", "--policy", "random", "--preset", "debug", "--bad-files", "skip"]) == 2
    assert "not a setting here, but one of cricket" in capsys.readouterr().err


def test_missing_data_ends_the_command_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for argv in (["train", "cricket"], ["plan", "cricket"]):
        assert main([*argv, "--data", "nothing.zip"]) == 2
        assert "nothing.zip" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_it_learns_from_the_league(league):
    config = league.replace(matches=24, epochs=3, learning_rate=5e-3, drop_relations="ball", patience=0)
    learner = build(config)
    before = learner.evaluate(10**9, 0).loss
    while not learner.done():
        learner.step()
    after = learner.evaluate(10**9, 0).loss
    assert after < before - 0.02


def seen_in_an_epoch(world, text):
    """The samples that this rank's batches hold in the first epoch, as (batch, group, sample). Called by every rank."""
    config = CRICKET.read_config(text)
    learner = build(config, world)
    learner._begin_epoch()
    found = []
    for lanes in learner._places:
        for group, places in enumerate(lanes):
            batch, place = torch.nonzero(places.weight, as_tuple=True)
            found += [[b, group, i] for b, i in zip(batch.tolist(), places.index[batch, place].tolist(), strict=True)]
    return found


def test_every_delivery_is_on_exactly_one_rank(ranks, league):
    text = to_yaml(league)
    alone = sorted(ranks.run(seen_in_an_epoch, text, ranks=1)[0])
    samples = open_splits(league.workload, World()).train.samples
    assert len(alone) == samples == len({(group, sample) for _, group, sample in alone})
    for size in (2, 3):
        parts = ranks.run(seen_in_an_epoch, text, ranks=size)
        assert all(parts) and sorted(one for part in parts for one in part) == alone


def test_class_weights_make_the_network_predict_rare_outcomes(league):
    config = league.replace(epochs=1, drop_relations="ball", class_weights=True, loss="focal", learning_rate=5e-3)
    learner = build(config)
    while not learner.done():
        learner.step()
    sums = learner.evaluate(10**9, 0).total
    assert torch.isfinite(sums).all()

"""`lockstep sweep`: real runs, two at once, stopped, failed and continued; a study; and what is refused in one line."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import lockstep
from lockstep.cli import sweep as verb
from lockstep.cli.main import main
from lockstep.config.grid import read_grid
from lockstep.run.sweep import Sweep
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.run_summary import summary
from lockstep.workloads.snake.workload import Snake

GRID = ["--learning-rate", "1e-3,3e-4", "--seed", "1,2", "--ranks", "1", "--at-once", "2"]
SHORT = ["--preset", "debug", "--eval-every", "256", "--eval-episodes", "1"]


def refusal(capsys, *words):
    assert main(["sweep", *words]) == 2
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    return printed[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "the first argument must be a workload"),
        (("snek", "--seed", "1,2"), "snek: unknown workload; the nearest is snake"),
        (("snake", "--sed", "1,2"), "sed '1,2' (flag --sed): unknown setting; the nearest name is seed"),
        (("snake", "--seed", ","), "seed ',' (flag --seed): has an empty value between commas"),
        (("snake", "--seed", "1"), "nothing to sweep: no field has several values"),
        (("snake",), "nothing to sweep"),
        (
            ("snake", "--learning-rate", "1e-5..1e-2"),
            "learning_rate 1e-05..0.01 (logarithmic): a range needs --study N",
        ),
        (("snake", "--learning-rate", "1e-3,2"), "learning_rate 2 (flag --learning-rate): out of range"),
        (("snake", "--preset", "debug", "--n-envs", "16,17"), "n_envs 17"),
        (("snake", "--algorithm", "ppo,pqo"), "pqo: unknown algorithm for snake; the nearest is ppo"),
        (("snake", "--algorithm", "ppo,"), "algorithm or network: has an empty value"),
        (("snake", "--seed", "1,2", "--ranks", "1,2"), "ranks '1,2' (flag --ranks): not a whole number"),
        (("snake", "--seed", "1,2", "--ranks", "9"), "ranks 9 is more than the run's 8 lanes"),
        (("snake", "--seed", "1,2", "--at-once", "0"), "at_once 0 (flag --at-once): out of range"),
        (("snake", "--seed", "1,2", "--run-name", "a"), "run_name: the runs of a sweep are named by their values"),
        (("snake", "--seed", "1,2", "--sweep-name", "../a"), "sweep_name '../a'"),
        (("snake", "--seed", "1,2", "--study", "3"), "seed: a study would choose the luckiest one"),
        (("snake", "--gamma", "0.9..0.99", "--study", "3", "--eval-every", "0"), "eval_every 0: a study needs scores"),
    ],
)
def test_a_wrong_sweep_is_refused_in_one_line_before_anything_starts(capsys, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert told in refusal(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_without_optuna_a_study_is_refused_in_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.chdir(tmp_path)
    assert "needs the package optuna; pip install 'lockstep-train[optuna]'" in refusal(
        capsys, "snake", "--preset", "debug", "--study", "2", "--gamma", "0.9..0.99"
    )


def test_the_same_command_has_the_same_name_and_more_values_join_it():
    def name(*words):
        planned = verb.PlannedSweep(Snake(), "snake", verb.SweepOptions(preset="debug"), list(words))
        return planned.path.name

    first = name("--seed", "1,2", "--gamma", "0.9")
    assert re.fullmatch(r"snake-seed-[0-9a-f]{8}", first)
    assert name("gamma=0.9", "--seed", "1,2,3", "--max-updates", "7") == first
    assert name("--seed", "1,2", "--gamma", "0.8") != first


def test_a_swept_algorithm_brings_its_own_settings():
    schemas = [Snake().layout(network=network).schema for network in ("cnn", "mlp")]
    own = set(schemas[1].settings) - set(schemas[0].settings)
    assert own, "the second network has settings that the first has not"
    grid = read_grid(
        schemas, ["--network", "cnn,mlp", *(f"{name}={schemas[1].settings[name].default}" for name in own)]
    )
    assert grid.names == ("network",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def command(folder, *words):
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return subprocess.Popen(
        [sys.executable, "-m", "lockstep", "sweep", "snake", *SHORT, *GRID, "--runs-dir", str(folder), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def interrupted(folder):
    """Four long runs, the second of which cannot have its directory; interrupted when two have begun to learn."""
    (folder / "s").mkdir()
    (folder / "s/learning_rate-0.001--seed-2").write_text("in the way")
    process = command(folder, "--total-timesteps", "1e6", "--sweep-name", "s")
    until = time.monotonic() + 240
    while sum(path.stat().st_size > 0 for path in folder.glob("s/*/metrics.jsonl")) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    return process, *process.communicate(timeout=240)


def test_ctrl_c_stops_all_runs_and_each_saves(interrupted, folder):
    process, printed, errors = interrupted
    assert process.returncode == 130, printed + errors
    assert errors == "lockstep: sweep s: stopped, its runs are saved; the same command continues it\n"
    for name in ("learning_rate-0.001--seed-1", "learning_rate-0.0003--seed-1"):
        assert summary(RunDirectory(folder / "s" / name)).state == "stopped"
        assert list((folder / "s" / name / "checkpoints").glob("step-*"))
    assert "\n0.0003         2" in printed
    assert "-         -  waiting\n" in printed


def test_a_failed_run_does_not_stop_the_others_and_is_named_with_its_reason(interrupted):
    _, printed, _ = interrupted
    failed = [line for line in printed.splitlines() if line.startswith("learning_rate-0.001--seed-2: failed: ")]
    assert len(failed) == 2, "as it happens, and below the table"
    assert "cannot be written to" in failed[0]
    assert printed.index(failed[0]) < printed.index("[3/4] learning_rate-0.0003--seed-1: starts")


@pytest.fixture(scope="module")
def continued(interrupted, folder):
    """The same sweep again, to a limit that two runs have reached; nothing is in the way any more."""
    (folder / "s/learning_rate-0.001--seed-2").unlink()
    process = command(folder, "--total-timesteps", "1e6", "--sweep-name", "s", "--max-updates", "1")
    return process, *process.communicate(timeout=300)


def test_it_continues_where_it_was_stopped_and_tries_again_what_failed(continued, folder):
    process, printed, errors = continued
    assert process.returncode == 0, printed + errors
    assert errors == ""
    for seed, rate, how in ((1, 0.001, "continues"), (2, 0.001, "starts"), (1, 0.0003, "continues")):
        assert f"learning_rate-{rate}--seed-{seed}: {how}\n" in printed
        log = (folder / f"s/learning_rate-{rate}--seed-{seed}.log").read_text()
        assert ("resumed from step-" in log) == (how == "continues")
    assert printed.count("  finished\n") == 4


@pytest.fixture(scope="module")
def completed(continued, folder):
    """And once more."""
    process = command(folder, "--total-timesteps", "1e6", "--sweep-name", "s", "--max-updates", "1", "--json")
    return process, *process.communicate(timeout=240)


def test_finished_runs_are_skipped_and_json_tells_all(completed):
    process, printed, errors = completed
    assert process.returncode == 0, printed + errors
    assert errors.count("finished already") == 4
    content = json.loads(printed)
    assert content["score"] == "eval/return_mean"
    assert [run["state"] for run in content["runs"]] == ["finished"] * 4
    assert [run["settings"] for run in content["runs"]] == [
        {"learning_rate": rate, "seed": seed} for rate in (1e-3, 3e-4) for seed in (1, 2)
    ]
    assert all(run["seconds"] > 0 and run["steps"] >= 256 and run["score"] is not None for run in content["runs"])
    scores = [run["score"] for run in content["runs"]]
    assert [group["mean"] for group in content["groups"]] == pytest.approx([sum(scores[:2]) / 2, sum(scores[2:]) / 2])


def test_each_member_is_an_ordinary_run_with_its_own_settings(completed, folder):
    runs = [lockstep.Run(path) for path in sorted(folder.glob("s/l*[0-9]"))]
    assert {(run.config["learning_rate"], run.config["seed"]) for run in runs} == {
        (rate, seed) for rate in (1e-3, 3e-4) for seed in (1, 2)
    }
    assert all((run.final / "model.safetensors").exists() for run in runs)


def test_from_python_the_same_sweep_is_found_finished(completed, folder):
    swept = {"learning_rate": [1e-3, 3e-4], "seed": [1, 2]}
    same = {"eval_every": 256, "eval_episodes": 1, "total_timesteps": 10**6, "max_updates": 1}
    report = lockstep.sweep("snake", preset="debug", sweep_name="s", runs_dir=folder, quiet=True, **swept, **same)
    assert [run.state for run in report.runs] == ["finished"] * 4
    assert report.best is not None
    assert report.best.score == max(run.score for run in report.runs)


def test_a_sweep_of_other_settings_does_not_mix_with_it(completed, folder, capsys):
    words = ("snake", *SHORT, *GRID, "--runs-dir", str(folder), "--sweep-name", "s", "--total-timesteps", "2e6")
    told = refusal(capsys, *words)
    assert "was started with total_timesteps 1000000, not 2000000; choose another --sweep-name" in told


class Trained:
    """Stands in for `Sweep.train`: every run ends at once, with its learning rate as the score."""

    def __init__(self, monkeypatch, most=100):
        self.most, self.tried = most, []
        monkeypatch.setattr(Sweep, "train", self.train)
        monkeypatch.setattr(Sweep, "report", self.report)

    def train(self, members, total, slots, settled, before):
        for member in members:
            self.tried.append(member)
            if len(self.tried) > self.most:
                return  # stopped: it has no score
            settled(member)

    def report(self, members):
        from lockstep.reporting.sweep_report import SweepReport, SweptRun

        runs = [
            SweptRun(member.name, None, member.settings, "finished", member.settings["learning_rate"])
            for member in members
        ]
        return SweepReport("s", None, "score", tuple(runs))


def study(folder, trials):
    options = verb.SweepOptions(preset="debug", study=trials)
    words = [f"runs_dir={folder}", "learning_rate=1e-5..1e-2", "n_epochs=1,2"]
    report, _ = verb.PlannedSweep(Snake(), "snake", options, words).train(lambda line: None)
    return report


def test_a_study_learns_from_scores_and_continues_with_the_trial_that_was_stopped(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    first = Trained(monkeypatch, most=2)
    study(tmp_path, 8)
    assert [member.name for member in first.tried] == ["trial-0000", "trial-0001", "trial-0002"]
    second = Trained(monkeypatch)
    report = study(tmp_path, 8)
    assert [member.name for member in second.tried] == [f"trial-{number:04}" for number in range(2, 8)]
    assert second.tried[0] == first.tried[2]
    assert len({run.settings["learning_rate"] for run in report.runs}) == 8
    assert all(1e-5 <= run.settings["learning_rate"] <= 1e-2 for run in report.runs)
    assert {run.settings["n_epochs"] for run in report.runs} <= {1, 2}
    assert (tmp_path / report.name).parent == tmp_path
    third = Trained(monkeypatch)
    study(tmp_path, 8)
    assert third.tried == [], "all eight have a score"

"""The command as a user meets it: every wrong input is one line with the way out, and exit code 2."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli import listing
from lockstep.cli.main import VERBS, main
from lockstep.config.sources import to_yaml
from lockstep.storage.run_directory import RunDirectory
from lockstep.workloads import registry

WRONG = {
    "train snak": "the nearest is snake",
    "train snake --preset smal": "the nearest is small",
    "train ./nope.py": "no such file; allowed: the path of a Python file, or file.py:Class",
    "doctor --ra 2": "the nearest name is ranks",
    "train snake --n-env 64": "the nearest name is n_envs",
    "train snake --prest small": "the nearest name is --preset",
    "plan snake --rank 2": "the nearest name is --ranks",
    "verify snakee": "the nearest is snake",
    "verify snake --sync exact": "verify checks both modes",
    "plan control --preset debug num_envs=3": "nearest: 2 or 4",
    "export snake": "has no weights; give a run of it",
    "play snakes3v3 --replay nosuch.json": "cannot be read (No such file or directory)",
    "play snakes3v3 --policy greedy --log a.json --video b.gif": "only one at a time",
    "train snake n_env=64": "the nearest name is n_envs",
    "train snake --n-envs 7": "nearest: 4 or 8",
    "train snake --n-envs 7 --lanes 8": "8 lanes",
    "train snake --learning-rate -1": "above 0",
    "train snake --learning-rate nan": "finite",
    "train snake --gamma inf": "finite",
    "train snake --n-envs many": "whole number",
    "train snake --batch-size 1000": "nearest: ",
    "train snake --config missing.yaml": "no such file",
    "train snake --config .": "is a folder; --config takes the path of a YAML file",
    "train snake --explain": "a workload comes before it and a setting after it",
    "plan snake --explain n_env": "the nearest name is n_envs",
    "watch --runs-dir nowhere": "--runs-dir nowhere: no such folder",
    "completion tcsh": "give one shell, bash, zsh, fish",
    "train snake --config=": "allowed: the path of a YAML file",
    "eval snake --config=": "allowed: the path of a YAML file",
    "train snake --run-name ../x": "letters, digits",
    "train snake --run-name /tmp/x": "letters, digits",
    "train snake --preset debug --ranks 9": "8 lanes",
    "train snake --gpus 4": "no GPU",
    "train snake --gpus 1 --ranks 2": "give one of them",
    "train snake --ranks 0": "at least 1",
    "train snake --grid-size 3": "from 4 to",
    "train snake --policy-arch huge": "tiny, scalable, deep",
    "train snake --lr-scaling sqrt": "scaling weak",
    "train snake --total-timesteps 10": "",
    "train": "the first argument must be a workload",
    "trian snake": "the nearest is train",
    "resume no-such-run": "no",
    "eval no-such-run": "no",
    "play no-such-run": "no",
    "export no-such-run --format onnx": "no",
    "verify snake --ranks 0": "1 to 8",
    "verify snake --ranks 1,x": "such as 1,2,4",
    "plan snake --ranks 99": "8 lanes",
    "runs --jsn": "the nearest name is json",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_input_is_one_line_and_exit_2(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1 and output.err.startswith("lockstep: ")
    assert WRONG[line] in output.err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--seed 1 --seed 2", "--seed is given twice, as 1 and as 2; the last counts"),
        ("--n-envs=64 --lanes 8 n_envs=32", "--n-envs is given twice, as 64 and as 32; the last counts"),
        ("--n-envs 64 --n-envs=64", ""),
    ],
)
def test_a_flag_that_is_given_twice_is_told(capsys, words, told):
    assert main(["plan", "snake", "--preset", "debug", "--batch-size", "64", *words.split()]) == 0
    assert capsys.readouterr().err == (f"lockstep: note: {told}\n" if told else "")


def test_help_of_a_verb_is_the_same_as_its_flag_help(capsys):
    main(["train", "--help"])
    wanted = capsys.readouterr().out
    assert main(["help", "train"]) == 0
    assert capsys.readouterr().out == wanted
    assert main(["help", "trian"]) == 2


def test_a_setting_is_explained_with_its_values_in_every_preset(capsys):
    assert main(["train", "snake", "--explain", "lr"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "--learning-rate, --lr, --ppo.learning-rate" and "Adam's initial learning rate" in told[1]
    assert main(["plan", "snake", "--explain=n_envs"]) == 0
    told = capsys.readouterr().out
    assert "    preset debug: 16\n" in told and "    preset base: 4096\n" in told


def test_a_malformed_yaml_is_named_with_its_line(capsys, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("learning_rate: 0.1\nn_envs: [1, 2\n")
    assert main(["train", "snake", "--config", str(bad)]) == 2
    assert "bad.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "where"), [("ranks", "--gpus N or --ranks N"), ("preset", "--preset NAME")])
def test_a_word_of_the_command_in_a_file_is_sent_to_its_place(capsys, tmp_path, word, where):
    (tmp_path / "my.yaml").write_text(f"seed: 1\n{word}: 2\n")
    assert main(["train", "snake", "--config", str(tmp_path / "my.yaml")]) == 2
    told = capsys.readouterr().err
    assert "my.yaml:2): not a setting of a run; " in told and where in told


def test_a_directory_that_cannot_be_written_is_found_before_the_start(capsys, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    assert main(["train", "snake", "--preset", "debug", "--runs-dir", str(blocker / "runs")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def stored_run(folder, workload="snake", **changes):
    run = RunDirectory.named(folder, "old")
    run.prepare()
    run.write_config(to_yaml(registry.load("snake").preset("debug").replace(run_name="old", **changes)), workload)
    return run


def test_another_experiment_under_the_same_name_is_refused(capsys, tmp_path):
    stored_run(tmp_path, seed=1)
    words = ["train", "snake", "--preset", "debug", "--runs-dir", str(tmp_path), "--run-name", "old"]
    assert main(words) == 2
    assert "was started with seed 1, not 42" in capsys.readouterr().err


def test_a_run_of_another_workload_is_refused(capsys, tmp_path):
    stored_run(tmp_path, workload="chess")
    assert main(["train", "snake", "--preset", "debug", "--runs-dir", str(tmp_path), "--run-name", "old"]) == 2
    assert "is a run of chess" in capsys.readouterr().err
    assert main(["resume", str(tmp_path / "old")]) == 2
    assert "chess: unknown workload" in capsys.readouterr().err


def test_resuming_without_a_checkpoint_is_exit_4(capsys, tmp_path):
    stored_run(tmp_path)
    assert main(["resume", str(tmp_path / "old")]) == 4
    assert "no checkpoint to resume from" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_helps(verb, capsys):
    assert main([verb, "--help"]) == 0
    assert "usage: lockstep" in capsys.readouterr().out


def test_a_foreign_flag_in_place_of_a_run_is_answered(capsys):
    assert main(["eval", "--model", "best_model.zip"]) == 2
    assert "the model is the first argument: `lockstep eval RUN`" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["help", "train"], ["predict", "--help"], ["record", "--help"]])
def test_help_in_a_pipe_is_broken_into_lines_as_on_a_terminal(words, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_help_and_list_need_no_torch():
    code = (
        "import sys; from lockstep.cli.main import main; "
        "[main(words) for words in (['--help'], ['list'], ['train', 'snake', '--help'], ['train', 'snak'])]; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_train_help_shows_every_field_of_the_workload(capsys):
    main(["train", "snake", "--help"])
    text = capsys.readouterr().out
    assert all(f"--{name}" in text for name in ("grid-size", "n-envs", "sync", "preset", "ranks", "save-freq"))


def test_plan_says_who_does_what_and_starts_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "snake", "--preset", "small", "--ranks", "3", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["lanes"] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert plan["plan"]["environments"].startswith("64 (24 + 24 + 16) x 128")
    assert plan["config"]["n_envs"] == 64
    assert not any(tmp_path.iterdir())


def test_weak_scaling_grows_the_global_sizes_and_the_rate(capsys):
    words = ["plan", "snake", "--preset", "small", "--ranks", "4", "--scaling", "weak", "--lr-scaling", "sqrt"]
    assert main([*words, "--json"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    assert (config["n_envs"], config["batch_size"], config["learning_rate"]) == (256, 4096, 0.005)


def test_list_as_json_names_presets(capsys):
    assert main(["list", "--json"]) == 0
    listed = {row["name"]: row["presets"] for row in json.loads(capsys.readouterr().out)}
    assert {"debug", "base"} <= set(listed["snake"])


def test_verify_finds_a_run_in_another_folder(capsys, tmp_path):
    stored_run(tmp_path)
    assert main(["verify", "old", "--runs-dir", str(tmp_path)]) == 4
    assert "has no checkpoint yet" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "old"), "--rans-dir", "x"]) == 2
    assert "the nearest name is runs_dir" in capsys.readouterr().err


def test_runs_shows_state_and_steps(capsys, tmp_path):
    run = stored_run(tmp_path)
    run.write_status("finished", 1234, 5.0)
    assert main(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["old", "finished", "1.23k", "100%", "0:00:00", "5"]
    assert main(["runs", "--runs-dir", str(tmp_path), "--json", "--sort", "best"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["workload"], row["step"], row["best_score"]) == ("old", "snake", 1234, 5.0)


def test_a_folder_of_runs_that_is_not_there_is_an_error_and_no_runs_yet_is_none(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["runs", "--runs-dir", "missing"]) == 2
    assert capsys.readouterr().err == (
        "lockstep: --runs-dir missing: no such folder; give the one that holds the runs\n"
    )
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.startswith("no runs in runs; start one")


def test_runs_can_be_watched_until_ctrl_c(capsys, tmp_path, monkeypatch):
    run, looks = stored_run(tmp_path), []

    def sleep(seconds):
        looks.append(seconds)
        run.write_status("finished", 10 * len(looks))
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    assert main(["runs", "--watch", "--runs-dir", str(tmp_path)]) == 130
    steps = [line.split()[2] for line in capsys.readouterr().out.splitlines() if line.startswith("old")]
    assert steps == ["0", "10", "20"]


def test_what_one_rank_alone_finds_wrong_is_kept_for_our_launcher_to_tell(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "snak"]) == 2
    assert capsys.readouterr().err == "", "another launcher shows what every rank says: rank 0 speaks for all"
    monkeypatch.setenv("LOCKSTEP_LAUNCHER", "1")
    assert main(["train", "snak"]) == 2
    assert "the nearest is snake" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("buffer", [[], ["-u"]], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("line", ["plan snake", "list", "runs --json", "train --help"])
def test_output_that_cannot_be_written_is_one_line_and_exit_3(line, buffer, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = [sys.executable, *buffer, "-m", "lockstep", *line.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (3, "lockstep: the output cannot be written: No space left on device\n")


def test_a_pipe_that_broke_elsewhere_is_a_failure_and_no_reader_who_has_seen_enough(monkeypatch):
    def breaks(words):
        raise BrokenPipeError(errno.EPIPE, "a worker is gone")

    monkeypatch.setattr(listing, "list_workloads", breaks)
    with pytest.raises(BrokenPipeError):
        main(["list"])

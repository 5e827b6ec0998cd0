"""Where a run starts, as it is typed: `resume --from`, `train --branch-from`, `train --load-model`, `--keep all`."""

import json
import shutil

import pytest

from lockstep.cli.main import main
from lockstep.cli.sweep import PlannedSweep, SweepOptions
from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.weights import load_weights
from lockstep.workloads import registry

SIZES = "--n-envs 8 --n-steps 8 --batch-size 64 --total-timesteps 256 --device cpu"
EVERY = "--checkpoint-every 64 --eval-every 64"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with one finished run, `a`, with all its checkpoints: 64, 128, 192 and 256."""
    folder = tmp_path_factory.mktemp("runs")
    words = f"train snake --preset debug {SIZES} {EVERY} --keep all --runs-dir {folder} --run-name a --ranks 1"
    assert main(words.split()) == 0
    return folder


@pytest.fixture
def runs(made, tmp_path):
    """A copy of it."""
    shutil.copytree(made, tmp_path / "runs")
    return tmp_path / "runs"


def lockstep(words, runs):
    return main([*words.split(), "--runs-dir", str(runs), "--ranks", "1"])


def checkpoints(run):
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))


def result(run):
    return weights_hash(load_weights(run / "final")[0])


def error(capsys):
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_keep_all_keeps_all(runs):
    assert checkpoints(runs / "a") == [64, 128, 192, 256]


@pytest.mark.parametrize("spelling", ["step-000000000128", "128"])
def test_a_run_goes_back_and_leaves_what_came_later_aside(runs, capsys, spelling):
    before, log = result(runs / "a"), (runs / "a" / "metrics.jsonl").read_text()
    assert lockstep(f"resume a --from {spelling}", runs) == 0
    told = capsys.readouterr().out
    assert "resumed from step-000000000128 (update 2)" in told and "set aside in " in told
    assert result(runs / "a") == before
    (aside,) = (runs / "a" / "aside").iterdir()
    assert checkpoints(aside) == [192, 256] and result(aside) == before
    assert (aside / "metrics.jsonl").read_text() == log
    assert [row["step"] for row in map(json.loads, log.splitlines())] == [64, 128, 192, 256]
    assert main(["verify", str(runs / "a")]) == 0


def test_what_was_set_aside_can_be_branched_from(runs):
    assert lockstep("resume a --from 64 --max-updates 1", runs) == 0
    (aside,) = (runs / "a" / "aside").iterdir()
    source = aside / "checkpoints" / "step-000000000192"
    assert lockstep(f"train snake --branch-from {source} --run-name b --max-updates 0", runs) == 0
    assert result(runs / "b") == result(aside)


def test_going_back_to_the_newest_is_a_plain_resume(runs):
    assert lockstep("resume a --from 256 --total-timesteps 320", runs) == 0
    assert checkpoints(runs / "a")[-1] == 320 and not (runs / "a" / "aside").exists()


def test_a_best_that_came_later_no_longer_counts(runs):
    manifest = runs / "a" / "best" / "manifest.json"
    later = json.loads(manifest.read_text())["step"] > 64
    assert lockstep("resume a --from 64 --max-updates 1", runs) == 0
    assert manifest.exists() != later
    assert (json.loads((runs / "a" / "status.json").read_text())["best_score"] is None) == later


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("resume a --from 100", "--from 100: run a has no such checkpoint; it has step-000000000064, step-"),
        ("resume a --from ../step-1", "run a has no such checkpoint"),
        ("resume a --from 128 --grid-size 9", "--grid-size 6 and not 9"),
        ("resume a --from 128 --nnodes 2 --rdzv-endpoint localhost:1", "--branch-from"),
        ("resume a --load-model a", "leave it out, or use `lockstep train`"),
        ("resume a --branch-from a", "leave it out, or use `lockstep train`"),
    ],
)
def test_a_way_back_that_is_refused_changes_nothing(runs, capsys, words, told):
    before = sorted(path.relative_to(runs) for path in runs.rglob("*"))
    assert lockstep(words, runs) == 2
    assert told in error(capsys)
    assert sorted(path.relative_to(runs) for path in runs.rglob("*")) == before


def test_a_damaged_choice_is_not_replaced_by_another(runs, capsys):
    (runs / "a" / "checkpoints" / "step-000000000128" / "model.safetensors").write_bytes(b"damaged")
    assert lockstep("resume a --from 128", runs) == 4
    assert "step-000000000128: damaged, not used" in error(capsys)
    assert lockstep(f"train snake --branch-from {runs / 'a/checkpoints/step-000000000128'} --run-name b", runs) == 4
    assert not (runs / "a" / "aside").exists() and not (runs / "b").exists()


def test_other_launchers_would_go_back_at_every_restart(runs, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert lockstep("resume a --from 128", runs) == 2
    assert "--branch-from" in error(capsys)


def test_a_branch_has_its_sources_settings_and_ends_in_its_bits(runs, capsys):
    assert lockstep("train snake --branch-from a/checkpoints/step-000000000128 --run-name b", runs) == 0
    assert result(runs / "b") == result(runs / "a")
    assert checkpoints(runs / "b") == [128, 192, 256]
    steps = [json.loads(line)["step"] for line in (runs / "b" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [192, 256]
    assert "hint" not in capsys.readouterr().out
    # It goes on by itself, without the run that it came from.
    shutil.rmtree(runs / "a")
    assert lockstep("resume b --total-timesteps 320", runs) == 0


def test_a_branch_may_have_other_settings_and_leaves_its_source_alone(runs):
    before = result(runs / "a")
    words = "train snake --branch-from a --run-name b --learning-rate 1e-2 --total-timesteps 384"
    assert lockstep(f"{words} --max-updates 5", runs) == 0
    config = (runs / "b" / "config.yaml").read_text()
    assert "learning_rate: 0.01" in config and "n_envs: 8" in config and f"branch_from: {runs / 'a'}" in config
    assert result(runs / "a") == before != result(runs / "b")
    # The same command continues it, although its source has gone on since.
    assert lockstep("resume a --total-timesteps 320", runs) == 0
    assert lockstep(f"{words} --max-updates 6", runs) == 0
    assert checkpoints(runs / "b") == [256, 320, 384]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train snake --branch-from a --grid-size 9", "--grid-size 6 and not 9, and a run keeps its network"),
        ("train snake --branch-from a --lanes 4", "give --lanes 8"),
        ("train snake --branch-from a --n-envs 16 --batch-size 128", "--n-envs 8 and not 16"),
        ("train snake --branch-from a/final", "holds only weights; give a checkpoint"),
        ("train snakes3v3 --branch-from a", "is of snake, not of snakes3v3"),
        ("train snake --branch-from nowhere", "neither a run, nor one in"),
        ("train snake --branch-from a --load-model a", "leave out one of --load-model and --branch-from"),
        ("train snake --preset debug --load-model nowhere", "no such run, checkpoint or file"),
    ],
)
def test_a_start_that_is_refused_is_one_line_with_the_flag_and_leaves_no_run(runs, capsys, words, told):
    assert lockstep(f"{words} --run-name b", runs) == 2
    assert told in error(capsys)
    assert not (runs / "b").exists()


def test_a_warm_start_begins_anew_with_the_old_weights(runs, capsys):
    words = f"train snake --preset debug {SIZES} --load-model a --run-name b --max-updates 1 --learning-rate 1e-12"
    assert lockstep(words, runs) == 0
    assert f"load-model {runs / 'a'}: 8 of 8 tensors loaded" in capsys.readouterr().out
    assert checkpoints(runs / "b") == [64]
    old, new = (load_weights(runs / name / "final")[0] for name in ("a", "b"))
    assert all(float((old[name] - new[name]).abs().max()) < 1e-6 for name in old)
    # It continues with its own weights, also when the model is gone.
    shutil.rmtree(runs / "a")
    assert lockstep("resume b --max-updates 2", runs) == 0
    assert "load-model" not in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["load_model", "branch_from"])
def test_the_runs_of_a_sweep_find_where_they_start_from(runs, flag):
    preset = "debug" if flag == "load_model" else ""
    words = [f"runs_dir={runs}", f"{flag}=a", "learning_rate=1e-3,1e-4", "device=cpu"]
    planned = PlannedSweep(registry.load("snake"), "snake", SweepOptions(preset=preset), words)
    # They lie in the sweep's own folder, where a run named `a` is not to be found.
    assert all(f"{flag}={runs / 'a'}" in member.arguments for member in planned._members)
    assert planned._first.algorithm.n_envs == (8 if flag == "branch_from" else 16)

"""`lockstep eval`: whichever way a model is named, the same numbers; what is wrong is one line."""

import json
import pickle
import shutil
from pathlib import Path
from statistics import fmean, median, pstdev

import pytest

from lockstep.cli import evaluate as evaluation
from lockstep.cli.main import main
from lockstep.errors import UserError


def results(capsys, *words):
    assert main(["eval", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys, *words, code=2):
    assert main(["eval", *map(str, words)]) == code
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("lockstep: ")
    assert out.err.count("\n") == 1
    return out.err


def test_a_table_is_printed_and_the_run_keeps_the_results(at_runs, capsys):
    assert main(["eval", "demo", "--episodes", "20", "--seed", "5"]) == 0
    out = capsys.readouterr().out
    stored = json.loads((at_runs / "evaluation.json").read_text())
    returns, lengths = stored["episode_returns"], stored["episode_lengths"]
    assert (len(returns), len(lengths), stored["episodes"], stored["seed"]) == (20, 20, 20, 5)
    assert stored["return_mean"] == pytest.approx(fmean(returns))
    assert stored["return_deviation"] == pytest.approx(pstdev(returns))
    assert (stored["return_min"], stored["return_max"]) == (min(returns), max(returns))
    assert (stored["return_median"], stored["length_median"]) == (median(returns), median(lengths))
    assert (stored["workload"], stored["policy"], stored["step"]) == ("snake", "trained", 1234)
    assert "snake, trained for 1,234 steps (runs/demo): 20 episodes, seed 5" in out
    row = next(line for line in out.splitlines() if line.startswith("length"))
    assert row.split()[1] == f"{fmean(lengths):.2f}"


def test_every_way_to_name_a_model_gives_the_same_numbers(at_runs, capsys):
    ways = [
        "demo",
        "demo/final",
        "runs/demo",
        "runs/demo/final",
        str((at_runs / "final" / "model.safetensors").resolve()),
    ]
    found = [results(capsys, way, "--episodes", "9") for way in ways]
    for one in found:
        assert one["episode_returns"] == found[0]["episode_returns"]
        assert one["step"] == 1234


def test_a_folder_that_happens_to_be_called_as_a_run_is_does_not_hide_it(at_runs, capsys):
    expected = results(capsys, "demo", "--episodes", "5")
    (at_runs.parents[1] / "demo").mkdir()
    assert results(capsys, "demo", "--episodes", "5")["episode_returns"] == expected["episode_returns"]


def test_a_stored_model_takes_no_preset(at_runs, capsys):
    assert "--preset small: a stored model has its own configuration" in complaint(capsys, "demo", "--preset", "small")


def test_a_copy_of_final_is_enough(at_runs, tmp_path, capsys):
    expected = results(capsys, "demo", "--episodes", "5")
    shutil.move(at_runs / "final", tmp_path / "elsewhere")
    shutil.rmtree(at_runs)
    assert results(capsys, "elsewhere", "--episodes", "5")["episode_returns"] == expected["episode_returns"]


def test_weights_alone_need_the_workload_and_its_fields(at_runs, capsys):
    expected = results(capsys, "demo", "--episodes", "5")
    shutil.copy(at_runs / "final" / "model.safetensors", "bare.safetensors")
    assert "--workload NAME" in complaint(capsys, "bare.safetensors")
    fields = ["--workload", "snake", "--preset", "debug", "--grid-size", "6", "--max-steps", "60"]
    found = results(capsys, "bare.safetensors", *fields, "--episodes", "5")
    assert found["episode_returns"] == expected["episode_returns"]
    assert found["step"] is None
    other = complaint(capsys, "bare.safetensors", "--workload", "snake", "--preset", "small")
    assert "does not fit the network" in other
    assert "features.1.bias is (16,) in the file and (32,) in the network" in other


def test_the_seed_decides_the_episodes(at_runs, capsys):
    first, again, other = (results(capsys, "demo", "--episodes", "30", "--seed", seed) for seed in "112")
    assert first == again
    assert first["episode_returns"] != other["episode_returns"]


def test_a_large_evaluation_begins_with_the_episodes_of_a_smaller_one(at_runs, capsys, monkeypatch):
    whole = results(capsys, "demo", "--episodes", "4")
    monkeypatch.setattr(evaluation, "LARGEST_BATCH", 4)
    found = results(capsys, "demo", "--episodes", "10")
    assert found["episode_returns"][:4] == whole["episode_returns"]
    assert len(found["episode_returns"]) == len(found["episode_lengths"]) == found["episodes"] == 10
    assert found["seed"] == whole["seed"]
    assert found["episode_returns"][4:8] != whole["episode_returns"]


def test_the_scripted_baseline_scores_what_is_known_of_it(capsys):
    found = results(capsys, "snake", "--policy", "scripted", "--grid-size", "8", "--episodes", "400")
    assert found["return_mean"] == pytest.approx(13.3, abs=1.2)
    assert found["return_deviation"] == pytest.approx(5.5, abs=1.2)
    assert "model" not in found


def test_a_baseline_plays_a_run_s_game_and_leaves_its_results_alone(at_runs, capsys):
    found = results(capsys, "demo", "--policy", "random", "--episodes", "50")
    assert max(found["episode_lengths"]) <= 60
    assert not (at_runs / "evaluation.json").exists()


def test_results_go_to_the_file_that_was_asked_for(at_runs, tmp_path, capsys):
    assert main(["eval", "demo", "--episodes", "3", "--output", "results.json"]) == 0
    assert json.loads((tmp_path / "results.json").read_text())["episodes"] == 3
    assert not (at_runs / "evaluation.json").exists()
    capsys.readouterr()
    assert "the directory nowhere does not exist" in complaint(capsys, "demo", "--output", "nowhere/x.json")


def test_wrong_words_are_told_in_one_line(at_runs, capsys):
    assert "allowed: trained, scripted, random" in complaint(capsys, "demo", "--policy", "best")
    assert "the nearest name is episodes" in complaint(capsys, "demo", "--epsodes", "3")
    assert "is a workload and has no weights" in complaint(capsys, "snake")
    assert "the nearest is demo" in complaint(capsys, "demos")
    assert "a whole number from 1" in complaint(capsys, "demo", "--episodes", "0")
    assert "the first argument must be a run" in complaint(capsys, "--episodes", "3")
    assert "configuration it was trained with" in complaint(capsys, "demo", "--grid-size", "9")


def test_what_only_predictions_have_is_refused(at_runs, capsys):
    assert "snake does not learn from data" in complaint(capsys, "demo", "--data", "x.zip")
    assert "not a setting here, but one of cricket, trading" in complaint(
        capsys, "snake", "--policy", "random", "--data", "x.zip"
    )
    assert "snake plays episodes" in complaint(capsys, "demo", "--part", "test")


def test_damaged_weights_are_refused(at_runs, capsys):
    path = at_runs / "final" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "content changed" in complaint(capsys, "demo", code=4)


def test_a_pickle_is_never_unpickled(tmp_path, capsys, monkeypatch):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was opened",))

    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").write_bytes(pickle.dumps(Trap()))
    fields = ["--workload", "snake", "--preset", "debug"]
    assert "not a torch.save file" in complaint(capsys, "model.pt", *fields)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Trap()))
    assert "not a .safetensors file" in complaint(capsys, "model.pkl", *fields)


def test_a_larger_batch_is_cut_into_parts_of_its_size():
    batches = evaluation._batches(10_000, 7)
    assert [count for count, _ in batches] == [4096, 4096, 1808]
    assert batches[0][1] == 7
    assert len({seed for _, seed in batches}) == 3


def test_a_policy_is_checked_before_anything_is_loaded(at_runs):
    shutil.rmtree(at_runs / "final")
    with pytest.raises(UserError, match="--policy"):
        evaluation.evaluate(["demo", "--policy", "nobody"])


def test_a_name_of_a_workload_and_of_a_run_is_not_guessed(at_runs, capsys):
    at_runs.rename("runs/snake")
    assert main(["eval", "snake", "--episodes", "1"]) == 2
    assert "snake: is a workload, and also a run; write " in capsys.readouterr().err
    assert main(["eval", "runs/snake", "--episodes", "1"]) == 0


def test_an_environment_in_a_file_is_a_workload_and_no_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "maze.py").write_text((Path(__file__).parents[2] / "examples/maze.py").read_text())
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "./maze.py", "--device", "cpu"]) == 2
    assert "is a workload and has no weights; give a run of it, or --policy random" in capsys.readouterr().err


def test_a_damaged_configuration_is_named_as_such(at_runs, capsys):
    (at_runs / "config.yaml").write_text("{{{")
    shutil.rmtree(at_runs / "final")
    assert main(["eval", str(at_runs)]) == 2
    assert "config.yaml: its first line must name the workload" in capsys.readouterr().err

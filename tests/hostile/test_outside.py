"""A stored run names its workload; one that names code of its own is refused before anything is imported."""

from pathlib import Path

import pytest

from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.storage.run_directory import RunDirectory
from lockstep.workloads import registry


@pytest.mark.parametrize("verb", ["resume", "eval", "play", "export"])
def test_a_run_that_brings_code_along_does_not_run_it(verb, tmp_path, monkeypatch, capsys):
    run = RunDirectory.named(tmp_path, "stranger")
    run.prepare()
    run.write_config(to_yaml(registry.load("snake").preset("debug")), "canary_code:Maze")
    (run.path / "canary_code.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    # Even from inside of it, where Python would find the module.
    monkeypatch.chdir(run.path)
    assert main([verb, str(run.path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "code in its own directory" in told
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("setting", ["network: canary_code:make", "network: {run}/canary_code.py:make"])
@pytest.mark.parametrize("verb", ["resume", "eval"])
def test_a_run_that_names_a_network_in_its_own_directory_does_not_run_it(verb, setting, tmp_path, monkeypatch, capsys):
    run = RunDirectory.named(tmp_path, "stranger")
    run.prepare()
    text = to_yaml(registry.load("snake").preset("debug"))
    run.write_config(text.replace("network: cnn", setting.format(run=run.path)), "snake")
    (run.path / "canary_code.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    monkeypatch.chdir(run.path)
    assert main([verb, str(run.path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "code in its own directory" in told
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", [":Maze", "json:", ".json:loads", "a b:c", "../x:Y", "json:__class__"])
def test_what_is_no_class_is_refused_in_one_line(name, capsys):
    assert main(["train", name, "--preset", "debug"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_error_in_a_workloads_own_file_is_told_with_its_line(tmp_path, monkeypatch, capsys):
    Path(tmp_path, "broken_workload.py").write_text("x = 1\ny = x / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["train", "broken_workload:Maze"]) == 2
    told = capsys.readouterr().err
    assert "ZeroDivisionError" in told and "broken_workload.py:2" in told

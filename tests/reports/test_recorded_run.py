"""Reading runs that are damaged, hostile or unfinished."""

import json
import shutil

from lockstep.reports.recorded_run import read_run
from lockstep.storage.run_directory import RunDirectory


def read(path):
    return read_run(RunDirectory(path))


def test_a_whole_run_comes_back_as_it_was_recorded(record):
    run = read(record("a", seed=5, ranks=2))
    assert run.settings == {"seed": "5", "run_name": "a"} and run.summary.preset == "debug" and run.ranks == 2
    assert run.curves["rollout/return_mean"].values == [float(step) for step in range(10, 101, 10)]
    assert run.duration == 90.0 and len(run.fingerprints) == 10 and run.problems == []
    assert [(stored.step, stored.ranks, stored.problems) for stored in run.stored] == [(50, 2, ()), (100, 2, ())]


def test_damaged_lines_are_left_out_and_counted(record):
    path = record("a")
    log = path / "metrics.jsonl"
    bad = ["not JSON", "[1]", '{"step": -1, "time": 1}', '{"step": 5, "time": 1}', '{"step": 110}']
    log.write_text(log.read_text() + "\n".join(bad) + '\n{"step": 120, "time": 3000, "x": 1}\n{"step": 130')
    run = read(path)
    assert run.problems == ["metrics.jsonl: 5 damaged line(s) left out"] and run.seconds.steps[-1] == 120


def test_values_that_are_no_numbers_and_names_that_no_run_writes_are_dropped(record):
    path = record("a")
    point = {"step": 1, "time": 1.0, "<script>": 1, "a b": 1, "good": 1, "null": None, "true": True, "text": "x"}
    (path / "metrics.jsonl").write_text(json.dumps(point | {"huge": 10**400, "weights_sha256": "<b>"}) + "\n")
    run = read(path)
    assert list(run.curves) == ["good"] and run.fingerprints == {}


def test_a_run_without_any_file_but_its_settings_can_be_read(record):
    path = record("a")
    for name in ("metrics.jsonl", "evaluation.json", "system.json", "status.json", "events.jsonl"):
        (path / name).unlink()
    run = read(path)
    assert run.curves == {} and run.duration == 0.0 and run.problems == ["metrics.jsonl: missing; there are no curves"]


def test_files_of_another_shape_are_as_good_as_missing(record):
    path = record("a")
    for name in ("evaluation.json", "system.json"):
        (path / name).write_text("[1, 2]")
    (path / "status.json").write_text('{"state": "party"}')
    run = read(path)
    assert run.evaluation == {} and run.system == {} and run.summary.state == "unreadable"


def test_a_changed_checkpoint_is_named(record):
    path = record("a")
    model = path / "checkpoints" / "step-000000000100" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\x01")
    assert [bool(stored.problems) for stored in read(path).stored] == [False, True]


def test_links_are_not_followed(record, tmp_path):
    path = record("a")
    (tmp_path / "secret").write_text('{"step": 1, "time": 1, "secret": 1}\n')
    (path / "metrics.jsonl").unlink()
    (path / "metrics.jsonl").symlink_to(tmp_path / "secret")
    assert "secret" not in read(path).curves


def test_a_checkpoint_that_is_removed_while_it_is_read_is_named(record, monkeypatch):
    path = record("a")

    def removed(folder, contents):
        shutil.rmtree(folder)
        raise FileNotFoundError(2, "No such file or directory", str(folder))

    monkeypatch.setattr("lockstep.reports.recorded_run.inspect", removed)
    found = read(path).stored
    assert [stored.problems for stored in found] == [("cannot be read (No such file or directory)",)] * 2

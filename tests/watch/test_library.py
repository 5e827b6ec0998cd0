"""The runs of a page, from directories that may be anybody's."""

import json
import os
import shutil

import pytest

from lockstep.errors import UserError
from lockstep.storage import run_events
from lockstep.watch.curve_parts import Cursor, View
from lockstep.watch.library import Library


def point(step, **values):
    return {"step": step, "time": 100.0 + step, "time/fps_rank0": 5.0, **values}


def looked(library):
    while library.refresh():
        pass
    return library.overview()


def rows(library):
    return {row["id"]: row for row in looked(library)["runs"]}


def test_a_run_is_shown_with_progress_best_score_and_what_differs(write_run, tmp_path):
    write_run(
        "a", [point(250, **{"eval/log_loss": 1.5}), point(500, **{"eval/log_loss": 1.25})], best=-1.25, score="log_loss"
    )
    write_run("b", [point(1000, **{"eval/return_mean": 3.0})], best=3.0, learning_rate=0.1)
    found = rows(Library(tmp_path))
    assert found["a"]["progress"] == 0.5 and found["b"]["progress"] == 1.0
    assert found["a"]["best"] == {"value": 1.25, "name": "log_loss", "lower": True}
    assert found["b"]["best"] == {"value": 3.0, "name": "return_mean", "lower": False}
    assert found["a"]["settings"] == {"learning_rate": "0.0003"} and found["b"]["settings"] == {"learning_rate": "0.1"}


def test_settings_that_only_another_workload_has_are_no_difference(write_run, tmp_path):
    write_run("a", learning_rate=0.1)
    path = write_run("b", learning_rate=0.1)
    config = (path / "config.yaml").read_text().splitlines()
    (path / "config.yaml").write_text(
        "\n".join(["# workload: trading", *config[1:], "hidden_size: 64", "symbols: ''", ""])
    )
    found = rows(Library(tmp_path))
    assert found["a"]["settings"] == {} and found["b"]["settings"] == {}


def test_runs_of_a_sweep_and_runs_that_appear_later_are_found(write_run, tmp_path):
    write_run("a")
    library = Library(tmp_path)
    assert set(rows(library)) == {"a"}
    write_run("sweep/one")
    assert set(rows(library)) == {"a", "sweep/one"}
    assert set(rows(Library(tmp_path, ["sweep"]))) == {"one"}
    assert set(rows(Library(tmp_path, [str(tmp_path / "a")]))) == {"a"}
    with pytest.raises(UserError, match="nothing-here"):
        Library(tmp_path, ["nothing-here"])


def test_of_too_many_runs_those_that_changed_last_are_shown(write_run, tmp_path, monkeypatch):
    monkeypatch.setattr("lockstep.watch.library.MOST_RUNS", 2)
    for age, name in enumerate("cab"):
        path = write_run(name)
        for file in ("status.json", "config.yaml"):
            os.utime(path / file, (1000.0 - age, 1000.0 - age))
    library = Library(tmp_path)
    assert set(rows(library)) == {"a", "c"}
    # A new one takes the place of the oldest.
    write_run("new")
    assert set(rows(library)) == {"c", "new"}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (("failed", "out of memory"), ("failed", "out of memory")),
        (("stopped", "by --max-updates"), ("stopped", "by --max-updates")),
        (("restart", "rank 1 was killed by SIGKILL"), ("restarting", "rank 1 was killed by SIGKILL")),
    ],
)
def test_why_a_run_does_not_run_stands_in_its_events(write_run, tmp_path, last, expected):
    # Nobody holds its lock, so it is not running, whatever status.json says.
    path = write_run("a", state="running")
    run_events.note(path, "started", "on 2 ranks", 0)
    assert rows(Library(tmp_path))["a"]["state"] == "stopped"
    run_events.note(path, *last)
    row = rows(Library(tmp_path))["a"]
    assert (row["state"], row["why"]) == expected


def test_runs_of_one_experiment_on_different_ranks_are_compared(write_run, tmp_path):
    hashes = ["aa", "bb", "cc"]
    for ranks in (1, 2):
        speed = {f"time/fps_rank{rank}": 5.0 for rank in range(ranks)}
        write_run(
            f"on-{ranks}", [point(i, weights_sha256=name, **speed) for i, name in enumerate(hashes)], device="auto"
        )
    write_run("another", [point(1, weights_sha256="aa")], seed=7)
    (experiment,) = looked(Library(tmp_path))["experiments"]
    assert experiment["members"] == ("on-1", "on-2")
    assert experiment["sentence"] == "Same bits on 1 and 2 ranks up to step 2"


def test_bands_are_over_runs_that_differ_in_the_seed_alone(write_run, tmp_path):
    for seed in (1, 2):
        write_run(f"s{seed}", [point(0, loss=float(seed)), point(10, loss=float(seed))], seed=seed)
    write_run("alone", [point(0, loss=9.0), point(10, loss=9.0)], seed=1, learning_rate=1)
    library = Library(tmp_path)
    looked(library)
    found = {band["id"]: band for band in library.bands(["s1", "s2", "alone"], "loss", View(points=3))}
    assert found["s1"]["runs"] == ["s1", "s2"] and found["alone"]["runs"] == ["alone"]
    assert (found["s1"]["y"], found["s1"]["low"], found["s1"]["high"]) == ([1.5] * 3, [1.0] * 3, [2.0] * 3)


def test_details_tell_what_happened_and_what_was_skipped(write_run, tmp_path):
    path = write_run("a", [point(1, **{"train/skipped_updates": 0.0}), point(2, **{"train/skipped_updates": 1.0})])
    run_events.note(path, "restart", "rank 1 was killed by SIGKILL at step 1")
    library = Library(tmp_path)
    looked(library)
    kinds = [entry["kind"] for entry in library.details("a")["timeline"]]
    assert sorted(kinds) == ["restart", "skipped"]
    assert library.details("../a") is None and library.series({"../a": None}, "loss", View()) == []


def test_a_checkpoint_says_whether_it_is_damaged_and_is_hashed_on_request(write_run, tmp_path):
    path = write_run("a")
    (path / "checkpoints" / "step-000000000010").mkdir(parents=True)
    library = Library(tmp_path)
    looked(library)
    (found,) = library.details("a")["checkpoints"]
    assert found["state"] == "damaged" and found["problems"] == ["manifest.json: missing"]
    assert library.verify("a", "checkpoints/step-000000000010")
    assert not library.verify("a", "../../etc") and not library.verify("b", "best")


def test_damaged_files_and_a_directory_that_vanishes_are_survived(write_run, tmp_path):
    path = write_run("a", [point(1)])
    other = write_run("b", [point(1)])
    library = Library(tmp_path)
    looked(library)
    for name in ("status.json", "system.json", "events.jsonl", "config.yaml"):
        (path / name).write_bytes(b"\xff{[" * 10)
    (path / "metrics.jsonl").write_text("no log\n")
    shutil.rmtree(other)
    found = rows(library)
    assert found["a"]["state"] == "unreadable" and found["b"]["state"] == "gone"
    json.dumps(looked(library), allow_nan=False)
    assert library.details("a")["settings"] == {}


def test_a_log_that_was_cut_is_sent_whole_and_one_that_grew_from_where_the_page_was(write_run, tmp_path):
    path = write_run("a", [point(step, loss=float(step)) for step in range(1, 6)])
    library = Library(tmp_path)
    looked(library)

    def ask(known=None):
        (found,) = library.series({"a": known}, "loss", View())
        return found["since"], found["y"], Cursor.parse(found["cursor"])

    since, values, cursor = ask()
    assert (since, values) == (None, [1.0, 2.0, 3.0, 4.0, 5.0])
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(point(6, loss=6.0)) + "\n")
    looked(library)
    since, values, cursor = ask(cursor)
    assert (since, values) == (5.0, [5.0, 6.0])
    # A resume from step 3 cuts the log, which then grows beyond where it was.
    (path / "metrics.jsonl").write_text("".join(json.dumps(point(step, loss=-1.0)) + "\n" for step in range(1, 9)))
    looked(library)
    since, values, cursor = ask(cursor)
    assert (since, values) == (None, [-1.0] * 8)


def test_a_look_at_runs_that_have_not_changed_reads_nothing_of_them(write_run, tmp_path, monkeypatch):
    write_run("a", [point(1, loss=1.0)])
    library = Library(tmp_path)
    before = looked(library)
    monkeypatch.setattr("lockstep.watch.run_facts.summary", None)
    monkeypatch.setattr("lockstep.watch.log_follower._add", None)
    assert looked(library) is before

"""What a run lives in changes under it: its directory, its disk, its terminal, its launcher, its clock."""

import os
import shutil
import signal
import time

import pytest

from lockstep.storage.checkpoint_retention import verify_run

PACED = "slow@at=0..,attempt=0..,seconds=0.3"
CLOCK = """
import os, time
from pathlib import Path
true, mark = time.time, Path(os.environ["CLOCK_MARK"])
time.time = lambda: true() - (3600.0 if mark.exists() else 0.0)
"""


def test_a_run_whose_directory_is_moved_ends_in_one_line_and_goes_on_there(start, tools, undisturbed, tmp_path):
    going = start(*tools.snake(tmp_path, "run", "--ranks", "2"), faults=PACED)
    tools.wait_until(lambda: len(tools.logged(tmp_path / "run")) >= 3, what="log points")
    (tmp_path / "run").rename(tmp_path / "moved")
    output = going.ends(3)
    assert f"lockstep resume {tmp_path}/moved" in output.splitlines()[-1]
    assert "Traceback" not in output and not (tmp_path / "run").exists()
    start("resume", str(tmp_path / "moved")).ends()
    assert tools.hash_of(tmp_path / "moved") == undisturbed
    assert [point["step"] for point in tools.logged(tmp_path / "moved")] == [256 * update for update in range(1, 11)]


@pytest.mark.slow
def test_a_run_whose_directory_is_deleted_ends_in_one_line_and_makes_no_other(start, tools, tmp_path):
    going = start(*tools.snake(tmp_path, "run", "--ranks", "2"), faults=PACED)
    tools.wait_until(lambda: len(tools.logged(tmp_path / "run")) >= 3, what="log points")
    shutil.rmtree(tmp_path / "run")
    output = going.ends(3)
    assert "its lock.json was moved or deleted" in output.splitlines()[-1]
    assert "Traceback" not in output and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_goes_on_when_nobody_reads_its_output_any_more(start, tools, undisturbed, tmp_path):
    prefix = ("bash", "-c", 'set -o pipefail; "$@" 2>&1 | head -n 1', "-")
    output = start(*tools.snake(tmp_path, "run", "--ranks", "2"), faults="kill@rank=1,at=3", prefix=prefix).ends()
    assert len(output.splitlines()) == 1
    assert tools.hash_of(tmp_path / "run") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("how", ["> /dev/full 2>&1", "<&- >&- 2>&-"])
def test_a_run_goes_on_without_a_place_for_its_output(start, tools, undisturbed, tmp_path, how):
    start(*tools.snake(tmp_path, "run", "--ranks", "2"), prefix=("bash", "-c", f'"$@" {how}', "-")).ends()
    assert tools.hash_of(tmp_path / "run") == undisturbed


@pytest.mark.slow
def test_a_disk_that_becomes_read_only_ends_a_run_in_one_line_and_later_it_goes_on(start, tools, undisturbed, tmp_path):
    words = tools.snake(tmp_path, "run")
    # About ten writes begin a run, a dozen make a checkpoint.
    output = start(*words, faults="readonly@place=disk,at=30..").ends(3)
    assert "Traceback" not in output
    assert "Read-only file system" in output.splitlines()[-1]
    start(*words).ends()
    assert tools.hash_of(tmp_path / "run") == undisturbed
    assert [point["step"] for point in tools.logged(tmp_path / "run")] == [256 * update for update in range(1, 11)]


@pytest.mark.slow
def test_kills_at_best_final_and_in_resumes_leave_nothing_damaged(start, tools, undisturbed, tmp_path):
    places = [("best", 2), ("resume", 2), ("resume", 4), ("final", 2)]
    faults = "; ".join(f"kill@place={place},rank=0,at={at},attempt={n}" for n, (place, at) in enumerate(places))
    words = tools.snake(tmp_path, "run", "--ranks", "2", "--eval-every", "1024", "--max-restarts", "9")
    output = start(*words, faults=faults).ends()
    assert output.count("was killed by SIGKILL") == len(places)
    assert tools.hash_of(tmp_path / "run") == undisturbed
    assert not any(verify_run(tmp_path / "run").values())


@pytest.mark.slow
def test_a_launcher_that_was_stopped_takes_no_rank_for_silent(start, tools, undisturbed, tmp_path):
    words = tools.snake(tmp_path, "run", "--ranks", "2", "--timeout", "10")
    going = start(*words, faults="slow@at=2..,seconds=1.5")
    tools.wait_until(lambda: len(tools.logged(tmp_path / "run")) >= 2, what="log points")
    going.process.send_signal(signal.SIGSTOP)
    before = len(tools.logged(tmp_path / "run"))
    time.sleep(8)
    assert len(tools.logged(tmp_path / "run")) > before, "ranks go on without it"
    going.process.send_signal(signal.SIGCONT)
    assert "no longer answered" not in going.ends()
    assert tools.hash_of(tmp_path / "run") == undisturbed


@pytest.mark.slow
def test_a_clock_that_is_set_back_changes_nothing(start, tools, undisturbed, tmp_path):
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "sitecustomize.py").write_text(CLOCK)
    path = f"{tmp_path / 'stub'}:{os.environ.get('PYTHONPATH', '')}"
    mark = tmp_path / "mark"
    words = tools.snake(tmp_path, "run", "--ranks", "2")
    going = start(*words, faults=f"{PACED}; kill@rank=1,at=7", PYTHONPATH=path, CLOCK_MARK=str(mark))
    tools.wait_until(lambda: len(tools.logged(tmp_path / "run")) >= 3, what="log points")
    mark.touch()
    going.ends()
    times = [point["time"] for point in tools.logged(tmp_path / "run")]
    assert times != sorted(times), "it was set back"
    assert tools.hash_of(tmp_path / "run") == undisturbed


@pytest.mark.slow
def test_runs_that_start_in_the_same_second_do_not_meet(start, tools, undisturbed, tmp_path):
    words = tools.snake(tmp_path / "runs", "unnamed")
    at = words.index("--run-name")
    for going in [start(*words[:at], *words[at + 2 :]) for _ in range(3)]:
        going.ends()
    runs = list((tmp_path / "runs").iterdir())
    assert len(runs) == 3
    assert {tools.hash_of(run) for run in runs} == {undisturbed}

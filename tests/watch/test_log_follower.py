"""A log that grows, is cut by a resume, is damaged or vanishes."""

import json

import pytest

from lockstep.watch import log_follower
from lockstep.watch.log_follower import LogFollower


def line(step, value=1.0):
    return json.dumps({"step": step, "time": step, "loss": value}) + "\n"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "metrics.jsonl"


def read(follower):
    while follower.read_on():
        pass
    return follower.columns.steps.tolist()


def test_what_is_appended_is_read_once_and_half_a_line_when_it_is_whole(log, tmp_path):
    follower = LogFollower(tmp_path)
    assert read(follower) == []
    log.write_text(line(1) + line(2)[:9])
    assert read(follower) == [1]
    version = follower.version
    assert read(follower) == [1] and follower.version == version
    log.write_text(line(1) + line(2))
    assert read(follower) == [1, 2] and follower.version > version


def test_a_log_that_a_resume_cut_is_read_again(log, tmp_path):
    follower = LogFollower(tmp_path)
    log.write_text(line(1) + line(2) + line(3, 3.0))
    assert read(follower) == [1, 2, 3]
    # In place, and as long as before: only the bytes tell.
    log.write_text(line(1) + line(2) + line(3, 4.0) + line(4))
    assert read(follower) == [1, 2, 3, 4] and follower.columns.tags["loss"].tolist()[2] == 4.0
    # As a new file under the same name.
    (tmp_path / "new").write_text(line(1))
    (tmp_path / "new").replace(log)
    assert read(follower) == [1]


def test_a_damaged_line_costs_one_point(log, tmp_path):
    log.write_bytes(line(1).encode() + b'{"step": 2, \xff\n\n' + b"[" * 100_000 + b"\n" + line(3).encode())
    assert read(LogFollower(tmp_path)) == [1, 3]


def test_a_log_that_vanishes_or_is_a_link_is_an_empty_one(log, tmp_path):
    follower = LogFollower(tmp_path)
    log.write_text(line(1))
    assert read(follower) == [1]
    log.rename(tmp_path / "elsewhere")
    assert read(follower) == []
    log.symlink_to(tmp_path / "elsewhere")
    assert read(follower) == []


def test_a_line_that_never_ends_is_passed_over(log, tmp_path):
    log.write_bytes(b'{"x": "' + b"y" * (3 * log_follower.PORTION) + b'"}\n' + line(7).encode())
    assert read(LogFollower(tmp_path)) == [7]


def test_a_long_log_has_a_rough_picture_at_once_and_all_of_it_in_the_end(log, tmp_path, monkeypatch):
    monkeypatch.setattr(log_follower, "PORTION", 1000)
    log.write_text("".join(line(step, float(step)) for step in range(1, 2001)))
    follower = LogFollower(tmp_path)
    assert follower.read_on() and follower.is_rough
    assert 100 < len(follower.columns) < 200
    # The newest point is among them, since a list of runs shows it.
    assert follower.columns.steps[-1] == 2000
    assert read(follower) == list(range(1, 2001)) and not follower.is_rough

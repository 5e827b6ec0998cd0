"""Findings about the folder for runs."""

import os
from pathlib import Path

import pytest

from lockstep.diagnostics import folder


def test_a_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path):
    findings = folder.look_at_folder(tmp_path / "not" / "yet")
    assert [finding.subject for finding in findings] == ["disk", "disk speed", "clock"]
    assert str(tmp_path) in findings[0].what
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_bad(tmp_path):
    tmp_path.chmod(0o500)
    (finding,) = folder.look_at_folder(tmp_path)
    assert finding.verdict == "bad"


def test_a_write_that_fails_is_bad_and_says_why(tmp_path, monkeypatch):
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "write_durably", full)
    (finding,) = folder.look_at_folder(tmp_path)
    assert finding.verdict == "bad"
    assert "No space left" in finding.what


def test_little_space_a_slow_disk_and_a_clock_difference_are_warnings():
    assert folder.room(Path("/x"), 2**30).verdict == "warn"
    assert folder.room(Path("/x"), 2**40).verdict == "ok"
    assert folder.pace(5e6).verdict == "warn"
    assert folder.pace(5e8).verdict == "ok"
    assert folder.clock(-3.0).verdict == "warn"
    assert folder.clock(0.3).verdict == "ok"

"""The user's cache: it has a limit, the least recently used goes first, and nothing of others is touched."""

import os

import pytest

from lockstep.cli.main import main
from lockstep.storage import user_cache

NAMES = [f"cricket-{digit * 16}" for digit in "abc"]


@pytest.fixture
def folder(tmp_path):
    """Three entries of 100 bytes, `a` used longest ago; and a folder and a file of somebody else."""
    for age, name in zip((30, 20, 10), NAMES, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table").write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "photos").mkdir()
    (tmp_path / "cricket-notes.txt").write_text("mine")
    (tmp_path / f"cricket-{'d' * 16}").symlink_to(tmp_path / "photos")
    return tmp_path


def names(folder):
    return [entry.path.name for entry in user_cache.entries(folder)]


def test_the_least_recently_used_goes_first(folder):
    assert names(folder) == NAMES[::-1]
    user_cache.note_use(folder / NAMES[0])
    assert [entry.path.name for entry in user_cache.trim(folder, limit=250)] == [NAMES[1]]
    assert names(folder) == [NAMES[0], NAMES[2]]


def test_the_latest_stays_even_beyond_the_limit(folder):
    user_cache.trim(folder, limit=10)
    assert names(folder) == [NAMES[2]]


def test_the_command_lists_and_clears_only_what_is_ours(folder, capsys):
    assert main(["cache", "--cache-dir", str(folder)]) == 0
    assert "0.0 MB in" in capsys.readouterr().out and len(names(folder)) == 3
    assert main(["cache", "--cache-dir", str(folder), "--clear"]) == 0
    assert names(folder) == []
    assert (folder / "photos").is_dir() and (folder / "cricket-notes.txt").read_text() == "mine"


def test_a_cache_that_does_not_exist_is_empty(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    assert user_cache.user_cache() == tmp_path / "nowhere" / "lockstep"
    assert main(["cache"]) == 0
    assert capsys.readouterr().out.startswith("0.0 MB in ")

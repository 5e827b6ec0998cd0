"""Untrusted files: opening never blocks, and nothing is read before its size is checked."""

import json
import os
import re
from pathlib import Path

import pytest

from lockstep import untrusted
from lockstep.untrusted import lines_from_end, open_to_append, parse_json, read_regular, whole_lines

SOURCES = Path(untrusted.__file__).parent
# They read what this machine or this program itself has written: the kernel's files, the launcher's own folder, pipes.
OWN_FILES = {
    *("diagnostics/host.py", "distributed/nccl.py", "storage/run_lock.py", "untrusted.py"),
    *(f"launch/{name}.py" for name in ("failures", "heartbeat", "heartbeat_monitor", "launcher", "outcome", "given")),
    # Copies the player's own source into the folder for a competition.
    "workloads/snakes3v3/competition/export.py",
    # Read their own templates and styles.
    *("cli/new.py", "reports/page.py"),
}
"""Modules that read only trusted files: of the system, of the launcher's private folder, of this package."""


def test_a_regular_file_is_read_whole_and_a_too_large_one_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(path, 4)
    os.truncate(path, 10 << 30)  # sparse: it takes no space on disk
    with pytest.raises(OSError, match=r"larger than 1,000 bytes"):
        read_regular(path, 1000)


@pytest.mark.parametrize("follow", [False, True])
def test_pipes_devices_and_folders_are_refused_at_once(tmp_path, follow):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/tty"), tmp_path):
        with pytest.raises(OSError):
            read_regular(path, 100, links=follow)
    with pytest.raises(OSError, match="not a regular file"):
        open_to_append(tmp_path / "pipe")


def test_a_link_is_followed_only_if_the_user_gave_it(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link", 1, links=True) == b"x"
    with pytest.raises(OSError, match="is a link"):
        read_regular(tmp_path / "link", 1)
    with pytest.raises(OSError, match="is a link"):
        open_to_append(tmp_path / "link")


def test_json_is_parsed_up_to_a_fixed_depth():
    assert parse_json(b'{"a": [1, "[[[{{{", null]}') == {"a": [1, "[[[{{{", None]}
    assert parse_json(json.dumps([{}] * 1000).encode()) == [{}] * 1000
    assert parse_json(b"[" * 64 + b"]" * 64)
    for text in (b"[" * 65 + b"]" * 65, b"[" * 1_000_000, b'{"a":' * 100_000, b"[1", b"\xff", b"9" * 5000):
        with pytest.raises(ValueError):
            parse_json(text)


@pytest.mark.parametrize("block", [1, 2, 3, 5, 1 << 20])
def test_lines_come_last_first_with_the_offset_of_their_end(tmp_path, monkeypatch, block):
    monkeypatch.setattr(untrusted, "_BLOCK", block)
    path = tmp_path / "log"
    path.write_bytes(b"ab\ncdef\n\ng\ntorn")
    assert list(lines_from_end(path, 100, 1000)) == [(11, b"g\n"), (9, b"\n"), (8, b"cdef\n"), (3, b"ab\n")]
    # A line that is too long is replaced by an empty one; nothing before the last `at_most` bytes is read.
    assert list(lines_from_end(path, 4, 1000)) == [(11, b"g\n"), (9, b"\n"), (8, b""), (3, b"ab\n")]
    assert list(lines_from_end(path, 100, 9)) == [(11, b"g\n"), (9, b"\n")]
    assert list(whole_lines(path, 100)) == [b"ab\n", b"cdef\n", b"\n", b"g\n"]
    assert list(whole_lines(path, 4)) == [b"ab\n", b"\n", b"g\n"]


def test_untrusted_files_are_read_in_one_module():
    reads = re.compile(r"\.read_text\(|\.read_bytes\(|\bjson\.load\(|\.open\(\"r|[^_.\w]open\(\"")
    readers = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py") if reads.search(path.read_text())}
    assert readers <= OWN_FILES

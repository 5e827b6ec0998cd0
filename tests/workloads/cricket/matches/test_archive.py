"""Directories and zips of match files: what is read, and what is refused before it is opened."""

import io
import zipfile
from pathlib import Path

import pytest

from lockstep.errors import UserError
from lockstep.workloads.cricket.matches import archive
from lockstep.workloads.cricket.matches.archive import open_archive


def pack(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as container:
        for name, content in files.items():
            container.writestr(name, content)
    return path


def test_a_zip_and_a_directory_of_the_same_files_give_the_same_content(tmp_path):
    files = {"2.json": b"two", "1.json": b"one", "README.txt": b"not a match"}
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for source in (pack(tmp_path / "matches.zip", files), folder):
        opened = open_archive(source)
        assert opened.names == ["1.json", "2.json"]
        assert list(opened.read(["2.json", "1.json"])) == [("2.json", b"two"), ("1.json", b"one")]


def test_files_in_a_zip_are_known_by_their_last_name(tmp_path):
    opened = open_archive(pack(tmp_path / "matches.zip", {"t20s/1.json": b"one"}))
    assert list(opened.read(opened.names)) == [("1.json", b"one")]


def test_the_digest_depends_on_the_content_alone(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "1.json").write_bytes(b"one")
    before = open_archive(folder).digest
    (folder / "notes.txt").write_bytes(b"ignored")
    assert open_archive(folder).digest == before
    (folder / "1.json").write_bytes(b"two")
    assert open_archive(folder).digest != before


@pytest.mark.parametrize("name", ["../1.json", "/etc/1.json", "a/../../1.json", "..\\1.json", "C:1.json"])
def test_a_member_that_points_outside_the_zip_is_refused(tmp_path, name):
    path = pack(tmp_path / "matches.zip", {"1.json": b"{}", name: b"{}"})
    with pytest.raises(UserError, match=r"a name that points outside it; nothing was read") as error:
        open_archive(path)
    assert "1.json" in str(error.value) and "\n" not in str(error.value)


def test_a_zip_bomb_is_refused_by_its_ratio_before_unpacking(tmp_path):
    path = pack(tmp_path / "matches.zip", {"bomb.json": b"0" * (8 << 20)})
    with pytest.raises(UserError, match=r"bomb.json unpacks \d+ times to 8388608 bytes"):
        open_archive(path)


def test_limits_on_total_size_and_file_count_are_enforced(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 100)
    with pytest.raises(UserError, match="unpacks to more than"):
        open_archive(pack(tmp_path / "matches.zip", {"1.json": b"x" * 60, "2.json": b"y" * 60}))
    monkeypatch.setattr(archive, "MAX_FILES", 1)
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 1000)
    with pytest.raises(UserError, match="holds 2 files, more than 1"):
        open_archive(tmp_path / "matches.zip")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "not a readable zip"), (b"PK\x03\x04 cut short", "not a readable zip"), (None, "no such file or folder")],
)
def test_a_file_that_is_not_a_zip_is_refused_with_its_name(tmp_path, content, words):
    path = tmp_path / "matches.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=words) as error:
        open_archive(path)
    assert "matches.zip" in str(error.value) and "\n" not in str(error.value)


def test_an_empty_source_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"holds no \.json file"):
        open_archive(pack(tmp_path / "matches.zip", {}))
    with pytest.raises(UserError, match=r"holds no \.json file"):
        open_archive(tmp_path / "..")


def test_the_same_name_twice_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"holds 1\.json twice"):
        open_archive(pack(tmp_path / "matches.zip", {"a/1.json": b"{}", "b/1.json": b"{}"}))


def test_a_member_that_cannot_be_unpacked_says_why(tmp_path):
    path = pack(tmp_path / "matches.zip", {"1.json": b"a" * 500, "2.json": b"fine"}, zipfile.ZIP_STORED)
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"aaaa")] = ord("b")
    path.write_bytes(damaged)
    opened = open_archive(path)
    (_, reason), (_, content) = opened.read(opened.names)
    assert isinstance(reason, str) and reason.startswith("cannot be unpacked") and content == b"fine"


def test_a_forged_size_cannot_fill_the_memory(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as container:
        container.writestr("1.json", b"0" * (64 << 20))
    raw = buffer.getvalue()
    # Both places that give the unpacked size say 100 bytes.
    lie = raw.replace((64 << 20).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    assert lie != raw
    (tmp_path / "matches.zip").write_bytes(lie)
    opened = open_archive(tmp_path / "matches.zip")
    ((_, content),) = opened.read(["1.json"])
    assert isinstance(content, str) or len(content) <= 100


def test_a_link_in_a_directory_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("{}")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "1.json").symlink_to(secret)
    ((_, content),) = open_archive(folder).read(["1.json"])
    assert isinstance(content, str) and content.startswith("cannot be read")

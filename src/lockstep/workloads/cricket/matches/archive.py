"""Reads a directory or zip of match files with limits: path traversal and zip bombs are refused before unpacking."""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.untrusted import open_regular, read_regular

# Limits far above what real sources need: a match takes some 30 kB.
MAX_FILES = 100_000
MAX_FILE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 4 << 30
MAX_RATIO = 200
"""Highest compression ratio allowed for files over 1 MiB; match JSON compresses about 15 times."""


@dataclass(frozen=True)
class Archive:
    """The match files of one source, by name and in the order of their names."""

    path: Path
    members: dict[str, str]
    """File name without folders -> name within the source."""
    packed: bool
    digest: str
    """sha256 of the content: equal sources have equal digests."""

    @property
    def names(self) -> list[str]:
        """The match files, sorted."""
        return sorted(self.members)

    def read(self, names: list[str]) -> Iterator[tuple[str, bytes | str]]:
        """Yield each file's name with its content, or with the reason (str) why it cannot be read."""
        if self.packed:
            with _open_zip(self.path) as container:
                for name in names:
                    yield name, _unpack(container, container.getinfo(self.members[name]))
        else:
            for name in names:
                yield name, _content(self.path / self.members[name])


def open_archive(path: Path) -> Archive:
    """Open the directory, zip or single match file at a path; UserError if it is none, is empty or exceeds a limit."""
    if path.is_dir():
        members = _by_file_name(path, sorted(entry.name for entry in path.iterdir() if entry.suffix == ".json"))
        return Archive(path, members, False, _digest_of_directory(path, members))
    if path.suffix == ".json" and path.is_file():
        members = {path.name: path.name}
        return Archive(path.parent, members, False, _digest_of_directory(path.parent, members))
    if not path.is_file():
        raise UserError(
            f"data {named(path)}: no such file or folder; give a match file (.json), or a folder or zip of them"
        )
    # Everything is checked by the zip's directory before anything is unpacked.
    with _open_zip(path) as container:
        files = [info for info in container.infolist() if info.filename.endswith(".json")]
        for info in files:
            _check_name(path, info.filename)
            _check_size(path, info)
        if sum(info.file_size for info in files) > MAX_TOTAL_BYTES:
            raise UserError(f"data {named(path)}: unpacks to more than {MAX_TOTAL_BYTES >> 30} GiB; give a smaller zip")
        members = _by_file_name(path, sorted(info.filename for info in files))
    with open_regular(path, links=True) as file:
        return Archive(path, members, True, hashlib.file_digest(file, "sha256").hexdigest())


def named(path: Path) -> str:
    """A path for error messages: in full, unless it does not fit on a line or is not printable."""
    text = str(path)
    return text if text.isprintable() and len(text) < 500 else shown(path.name)


@contextmanager
def _open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        file = open_regular(path, links=True)
        container = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, UnicodeDecodeError) as error:
        reason = str(error) or type(error).__name__
        raise UserError(
            f"data {named(path)}: not a readable zip ({shown(reason)}); give a folder or zip of match JSON"
        ) from error
    with file, container:
        yield container


def _check_name(path: Path, name: str) -> None:
    # Nothing is written to disk, but a name is also used in messages and as the key of a match.
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if name.startswith(("/", "\\")) or ".." in parts or ":" in name or not name.isprintable():
        raise UserError(f"data {named(path)}: holds {shown(name)}, a name that points outside it; nothing was read")


def _check_size(path: Path, info: zipfile.ZipInfo) -> None:
    ratio = info.file_size / max(info.compress_size, 1)
    if info.file_size > MAX_FILE_BYTES or (info.file_size > 1 << 20 and ratio > MAX_RATIO):
        raise UserError(
            f"data {named(path)}: {shown(info.filename)} unpacks {ratio:.0f} times to {info.file_size} bytes, "
            f"more than a match can have ({MAX_FILE_BYTES >> 20} MiB, {MAX_RATIO} times); nothing was read"
        )


def _by_file_name(path: Path, paths: list[str]) -> dict[str, str]:
    if not paths:
        raise UserError(f"data {named(path)}: holds no .json file; give a folder or zip of match JSON")
    if len(paths) > MAX_FILES:
        raise UserError(f"data {named(path)}: holds {len(paths)} files, more than {MAX_FILES}; give fewer")
    members: dict[str, str] = {}
    for member in paths:
        name = PurePosixPath(member).name
        if name in members:
            raise UserError(f"data {named(path)}: holds {shown(name)} twice; remove one of the two")
        members[name] = member
    return members


def _unpack(container: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes | str:
    try:
        with container.open(info) as file:
            # The size in the zip's directory may be forged, so what is actually read is limited, too.
            content = file.read(MAX_FILE_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        return f"cannot be unpacked ({str(error) or type(error).__name__})"
    return content if len(content) <= MAX_FILE_BYTES else f"larger than {MAX_FILE_BYTES >> 20} MiB"


def _content(path: Path) -> bytes | str:
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _digest_of_directory(path: Path, members: dict[str, str]) -> str:
    digest = hashlib.sha256()
    for name, member in sorted(members.items()):
        content = _content(path / member)
        digest.update(json.dumps([name, content if isinstance(content, str) else _sha256(content)]).encode() + b"\n")
    return digest.hexdigest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of_file(path: Path) -> str:
    """sha256 of a regular file's content."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""The manifest of a checkpoint or of stored weights: every file with its size and hash, and a hash of the manifest.

Everything read here is untrusted: a manifest that matches its own hash may still have been made by hand.
"""

import dataclasses
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from lockstep.config.values import shown
from lockstep.errors import RunFailed
from lockstep.storage.header import read_entries
from lockstep.untrusted import LARGEST_NUMBER, is_counter, open_regular, parse_json, read_regular

FORMAT = 1
MANIFEST = "manifest.json"
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
CONFIG = "config.yaml"
MADE_WITH = "config"
"""The key in `extra` for the configuration that a checkpoint was made with."""
COMPUTED_WITH = "computed_with"
"""The key in `extra` for what decided the bits of an exact run; see run/arithmetic.py."""
_LANES = "lanes"
_CHANGED = "content changed, its sha256 is not the one in the manifest"
# Texts are parsed as a whole, so their sizes are limited (bytes). Tensor files are checked by their headers instead.
_MANIFEST_LIMIT = 16 << 20
_LARGEST_TEXTS = {STATE: 16 << 20, CONFIG: 1 << 20}
_HASH = re.compile(r"[0-9a-f]{64}")
# No checkpoint has more files than this, so no more are listed.
_MOST_ENTRIES = 100_000
# The step has 18 digits at most, which fits a signed 64-bit integer.
_LARGEST_STEP = 10**18 - 1
_STEP = re.compile(r"step-(\d{12,18})")


class CheckpointFailed(RunFailed):
    """A checkpoint or weights could not be written; earlier ones are untouched."""


class Damaged(Exception):
    """One line that names the file and what is wrong with it."""


class OtherFormat(Damaged):
    """An intact manifest of a format that this version does not read."""


@dataclass(frozen=True)
class FileRecord:
    """The hash and the size in bytes that a file must have."""

    sha256: str
    size: int

    @staticmethod
    def of(data: bytes) -> "FileRecord":
        """The record of these bytes."""
        return FileRecord(hashlib.sha256(data).hexdigest(), len(data))


@dataclass(frozen=True)
class Manifest:
    """A checkpoint (kind "checkpoint") or weights alone (kind "weights": no lanes, no world)."""

    kind: str
    workload: str
    step: int
    torch: str
    files: dict[str, FileRecord]
    lanes: int = 0
    world_size: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def lookup(self, name: str) -> Any:
        """A field by name, including those in `extra`; None if there is no such field."""
        own = {field.name for field in dataclasses.fields(self)}
        return getattr(self, name) if name in own else self.extra.get(name)

    def render(self) -> bytes:
        """The bytes of manifest.json, including the manifest's own hash."""
        # Through JSON and back first: a key 1 becomes "1" and a tuple a list before they are sorted and hashed.
        return _seal(json.loads(json.dumps(dataclasses.asdict(self))))


def step_name(step: int) -> str:
    """The directory name of a checkpoint: the step padded to twelve digits."""
    assert 0 <= step <= _LARGEST_STEP, f"step {step} is beyond what the configuration allows"
    return f"step-{step:012d}"


def step_of(name: str) -> int | None:
    """The step in a checkpoint's directory name; None for any other name."""
    match = _STEP.fullmatch(name)
    # Only the canonical name: two spellings of one step (more leading zeros) would be two checkpoints of it.
    return int(match[1]) if match and step_name(int(match[1])) == name else None


def lane_file(lane: int) -> str:
    """The path of a lane's state inside a checkpoint."""
    return f"{_LANES}/lane-{lane:02d}.safetensors"


def read_manifest(directory: Path) -> Manifest:
    """A directory's manifest; Damaged unless its bytes are exactly what `render` wrote."""
    try:
        data = read_regular(directory / MANIFEST, _MANIFEST_LIMIT)
    except OSError as error:
        raise Damaged(f"{MANIFEST}: {_reason(error)}") from error
    return _parse(data)


def read_file(directory: Path, name: str, record: FileRecord) -> bytes:
    """One file's bytes, checked against its record."""
    _refuse_long_text(name, record)
    # Read once, and hashed in memory: the file cannot change between the check and its use.
    with open_listed(directory, name, record) as file:
        data = file.read()
    if FileRecord.of(data) != record:
        raise Damaged(f"{name}: {_CHANGED}")
    return data


def inspect(path: Path, *, contents: bool = True) -> list[str]:
    """Every problem of a checkpoint or of best/ and final/, one line each; [] if it verifies.

    Without `contents` only sizes are compared, and no file is hashed.
    """
    path = Path(path)
    if path.is_symlink() or not path.is_dir():
        return [f"{path.name}: not a directory"]
    try:
        manifest = read_manifest(path)
    except Damaged as damage:
        return [str(damage)]
    problems = []
    # An intact checkpoint under another step's name (None: best/ and final/) would resume at the wrong step.
    if step_of(path.name) not in (None, manifest.step):
        problems.append(f"{MANIFEST}: belongs to step {manifest.step}, not to {path.name}")
    for name, record in sorted(manifest.files.items()):
        try:
            _check_file(path, name, record, contents)
        except Damaged as damage:
            problems.append(str(damage))
    # Unlisted files are a problem too: whatever put them there may have changed more.
    known = {MANIFEST, *manifest.files, *({_LANES} if manifest.lanes else set())}
    there = sorted(islice(_entries(path), _MOST_ENTRIES))
    return problems + [f"{name}: not in the manifest" for name in there if name not in known]


@contextmanager
def open_listed(directory: Path, name: str, record: FileRecord) -> Iterator[io.BufferedReader]:
    """One file, open and of the recorded size; OSError, ValueError and MemoryError in the block become Damaged."""
    try:
        with _open_sized(directory, name, record) as file:
            yield file
    except OSError as error:
        raise Damaged(f"{name}: {_reason(error)}") from error
    except ValueError as error:
        raise Damaged(f"{name}: {error}") from error
    except MemoryError as error:
        raise Damaged(f"{name}: larger than the free memory") from error


def _check_file(directory: Path, name: str, record: FileRecord, contents: bool) -> None:
    _refuse_long_text(name, record)
    with open_listed(directory, name, record) as file:
        if name.endswith(".safetensors"):
            # Before hashing, which would take minutes for a huge sparse file that somebody listed in a manifest.
            read_entries(file)
            file.seek(0)
        if contents and hashlib.file_digest(file, "sha256").hexdigest() != record.sha256:
            raise Damaged(f"{name}: {_CHANGED}")


def _refuse_long_text(name: str, record: FileRecord) -> None:
    if record.size > _LARGEST_TEXTS.get(name, LARGEST_NUMBER):
        raise Damaged(f"{name}: {record.size} bytes; at most {_LARGEST_TEXTS[name]} are allowed")


def _open_sized(directory: Path, name: str, record: FileRecord) -> io.BufferedReader:
    """Open a file and compare its size, before anything is read into memory."""
    # `open_regular` refuses a link at the end of the path only; `lanes/` itself could be one.
    folder = Path(name).parent
    if folder != Path() and (directory / folder).is_symlink():
        raise Damaged(f"{folder}: is a link")
    file = open_regular(directory / name)
    # Of the open descriptor, not of the path, which could be replaced in between.
    size = os.fstat(file.fileno()).st_size
    if size != record.size:
        file.close()
        raise Damaged(f"{name}: {'truncated' if size < record.size else 'too long'}, {size} of {record.size} bytes")
    return file


def _entries(directory: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(directory):
        for name in folders + files:
            yield (Path(folder) / name).relative_to(directory).as_posix()


def _reason(error: OSError) -> str:
    return "missing" if isinstance(error, FileNotFoundError | NotADirectoryError) else f"unreadable ({error.strerror})"


def _seal(content: dict[str, Any]) -> bytes:
    # The hash is of the canonical form (sorted keys, no blanks); what is stored is indented for people to read.
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    sealed = {**content, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}
    return (json.dumps(sealed, sort_keys=True, indent=1) + "\n").encode()


def _parse(data: bytes) -> Manifest:
    try:
        content = parse_json(data)
        unsealed = {name: value for name, value in content.items() if name != "sha256"}
        # Bytes are compared, not only the hash: nothing in the file may change, not even a blank.
        intact = _seal(unsealed) == data
    except (ValueError, AttributeError, RecursionError) as error:
        raise Damaged(f"{MANIFEST}: not a JSON object ({error})") from error
    if not intact:
        raise Damaged(f"{MANIFEST}: edited or damaged, it does not match its own sha256")
    if content.get("format") != FORMAT:
        raise OtherFormat(f"{MANIFEST}: format is {content.get('format')!r}, this version of Lockstep reads {FORMAT}")
    return _typed(content)


def _typed(content: dict[str, Any]) -> Manifest:
    """The manifest with every field checked: matching its hash does not mean that Lockstep wrote it."""
    types = {"kind": str, "workload": str, "step": int, "torch": str, "files": dict, "lanes": int, "world_size": int}
    for name, kind in {**types, "extra": dict, "format": int}.items():
        # Not isinstance: true and false are ints to Python.
        if type(content.get(name)) is not kind:
            raise Damaged(f"{MANIFEST}: field {name!r} is missing or not of type {kind.__name__}")
    for name, largest in {"step": _LARGEST_STEP, "lanes": LARGEST_NUMBER, "world_size": LARGEST_NUMBER}.items():
        if not is_counter(content[name], largest):
            raise Damaged(f"{MANIFEST}: field {name!r} is {shown(content[name])}, which no run can have")
    files = {name: _record(name, entry) for name, entry in content["files"].items()}
    needed = {MODEL, CONFIG}
    if content["kind"] == "checkpoint" and content["lanes"] > 0:
        # min: a manifest that claims 10^15 lanes must not make us build as many names. The sets then differ anyway.
        needed = {MODEL, OPTIMIZER, STATE, *map(lane_file, range(min(content["lanes"], len(files))))}
    elif content["kind"] != "weights" or content["lanes"]:
        raise Damaged(f"{MANIFEST}: kind {content['kind']!r} with {content['lanes']} lanes is unknown")
    # Only our own names are ever joined to a path, so a manifest cannot point outside its directory.
    if set(files) != needed:
        raise Damaged(f"{MANIFEST}: lists other files than a {content['kind']} has: {sorted(set(files) ^ needed)[:3]}")
    names = [field.name for field in dataclasses.fields(Manifest)]
    return Manifest(**{**{name: content[name] for name in names}, "files": files})


def _record(name: str, entry: Any) -> FileRecord:
    match entry:
        case {"sha256": str(sha256), "size": size} if _HASH.fullmatch(sha256) and is_counter(size) and len(entry) == 2:
            return FileRecord(sha256, size)
    raise Damaged(f"{MANIFEST}: the entry of {name!r} is not a sha256 and a size")

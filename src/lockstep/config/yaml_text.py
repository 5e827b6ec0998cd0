"""YAML as a list of (path, text, line): parsed, never constructed, so that no tag, anchor or alias can do anything.

Scalars stay text: `1e6`, `3e-4` and `no` mean what the field's type says, exactly as on the command line.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lockstep.config.foreign_names import FOREIGN_NAMES
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.untrusted import read_regular

IGNORED_KEYS = {"notes", "hydra"}
"""Whatever stands under these keys, at any depth, is ignored: free text for the reader, and how Hydra itself starts."""
MISSING = "???"
"""How Hydra's files write a value that is to be given elsewhere."""
_COMPOSED = "defaults"
"""The key under which Hydra's files list other files that they build on."""
_LARGEST_FILE = 1_000_000
_DEEPEST = 8
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Leaf:
    """One value of a YAML document: the keys that lead to it, its text (None for null) and its line."""

    path: tuple[str, ...]
    text: str | None
    line: int


def read_file(path: str | Path) -> list[Leaf]:
    """Read the leaves of a YAML file."""
    source = shown_path(path)
    try:
        if not Path(path).is_file():
            found = "is a folder" if str(path) and Path(path).is_dir() else "no such file"
            raise UserError(f"{source}: {found}; --config takes the path of a YAML file")
        content = read_regular(Path(path), _LARGEST_FILE, links=True)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UserError(
                f"{source}: larger than a configuration can be; at most {_LARGEST_FILE} bytes are read"
            ) from None
        raise UserError(f"{source}: cannot be read: {error.strerror}") from None
    try:
        return read_text(content.decode("utf-8-sig"), source)
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: not UTF-8 text (byte {error.start}); --config takes a YAML file") from None


def read_text(text: str, source: str) -> list[Leaf]:
    """Read the leaves of one YAML document; `source` names it in errors."""
    if len(text) > _LARGEST_FILE:
        raise UserError(f"{source}: larger than a configuration can be; at most {_LARGEST_FILE} characters are read")
    return _Reader(text, source).document()


def shown_path(path: str | Path) -> str:
    """Write a path as an error message shows it: as it is where it can be printed, else escaped."""
    text = str(path)
    return text if text.isprintable() and text else repr(text)


class _Reader:
    """Walks the parser's events; recursion is bounded by the depth that a configuration may have."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)

    def document(self) -> list[Leaf]:
        """Read everything in the only document of the stream."""
        self.next()
        if isinstance(self.next(), yaml.StreamEndEvent):
            return []
        leaves = self.node((), self.next())
        self.next()
        after = self.next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise self.refused(after, "a second document; only one is allowed")
        return leaves

    def next(self) -> Any:
        """Take the parser's next event, and refuse it where it is more than plain data."""
        try:
            event = next(self.events)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f":{mark.line + 1}" if mark else ""
            raise UserError(f"{self.source}{line}: not valid YAML: {error.problem or error.context}") from None
        except yaml.YAMLError as error:
            raise UserError(f"{self.source}: not valid YAML: {' '.join(str(error).split())}") from None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.refused(event, "anchors and aliases are not allowed; write the value out")
        if getattr(event, "tag", None):
            raise self.refused(event, f"the tag {shown(event.tag)} is not allowed; write a plain value")
        return event

    def node(self, path: tuple[str, ...], event: Any) -> list[Leaf]:
        """Read the leaves below one node."""
        ignored = not IGNORED_KEYS.isdisjoint(path)
        if len(path) > _DEEPEST:
            raise self.refused(event, f"sections nested deeper than {_DEEPEST}")
        if isinstance(event, yaml.ScalarEvent) and path:
            return [] if ignored or event.value == MISSING else [_leaf(path, event)]
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(path)
        if isinstance(event, yaml.SequenceStartEvent) and ignored:
            while not isinstance(event := self.next(), yaml.SequenceEndEvent):
                self.node((*path, "item"), event)
            return []
        if path == (_COMPOSED,) and isinstance(event, yaml.SequenceStartEvent):
            return self.composition()
        what = "a list" if isinstance(event, yaml.SequenceStartEvent) else "a single value"
        name = ".".join(map(shown, path)) or "the document"
        raise self.refused(event, f"{name} is {what}; allowed: " + ("one value" if path else "keys with values"))

    def composition(self) -> list[Leaf]:
        """Read Hydra's list of other files: only entries about Hydra itself, which mean nothing here, are accepted."""
        while not isinstance(event := self.next(), yaml.SequenceEndEvent):
            is_pair = isinstance(event, yaml.MappingStartEvent)
            key, value, end = (self.next(), self.next(), self.next()) if is_pair else (event, event, None)
            # The type of every event counts: the value may be a mapping or a list itself.
            plain = isinstance(key, yaml.ScalarEvent) and isinstance(value, yaml.ScalarEvent)
            about_hydra = plain and key.value.startswith("override hydra/") and isinstance(end, yaml.MappingEndEvent)
            if not (about_hydra or (plain and not is_pair and key.value == "_self_")):
                raise self.refused(event, f"{_COMPOSED} names other files: {FOREIGN_NAMES[_COMPOSED]}")
        return []

    def mapping(self, path: tuple[str, ...]) -> list[Leaf]:
        """Read the leaves of a section, whose keys must differ."""
        leaves: list[Leaf] = []
        lines: dict[str, int] = {}
        while not isinstance(event := self.next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self.refused(event, "a key must be a name")
            key = event.value
            if key in lines:
                raise self.refused(event, f"{shown(key)} is given twice, first in line {lines[key]}")
            lines[key] = _line(event)
            leaves += self.node((*path, key), self.next())
        return leaves

    def refused(self, event: Any, problem: str) -> UserError:
        """Tell the line at which the document went wrong."""
        return UserError(f"{self.source}:{_line(event)}: {problem}")


def _leaf(path: tuple[str, ...], event: Any) -> Leaf:
    is_null = event.implicit[0] and event.value.lower() in ("", "~", "null")
    return Leaf(path, None if is_null else event.value, _line(event))


def _line(event: Any) -> int:
    return event.start_mark.line + 1

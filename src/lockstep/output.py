"""Printing that cannot fail: a run continues if its output goes nowhere (`| head -1`, closed terminal, full disk)."""

import atexit
import codecs
import contextlib
import errno
import io
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from typing import TextIO

_GONE = (errno.EPIPE, errno.EIO)
"""Errors of a stream whose reader or terminal is gone for good."""
_HANDLER = "lockstep"
# One or two words and a gap, or a word that fills the twelve columns that the labels of a plan have.
_LABEL = re.compile(r" *\S+(?: \S+)? {2,}|\S{12} (?=\S)")
_dirty: set[int] = set()
"""Descriptors that failed to write a line, which is still in the stream's buffer."""
# What the table of Unicode does not take apart into letters.
_IN_ASCII = {
    **dict.fromkeys("\u2013\u2014\u2500\u2501\u2578\u257a", "-"),  # dashes, and the lines of a progress bar
    **dict.fromkeys("\u2502\u2503\u2579\u257b", "|"),
    **dict.fromkeys(
        "\u256d\u256e\u256f\u2570\u250c\u2510\u2514\u2518\u251c\u2524\u252c\u2534\u253c\u250f\u2513\u2517\u251b", "+"
    ),
    **dict.fromkeys("\u2588\u2589\u258a\u258b\u258c\u25a0", "#"),  # bars, and the body of a snake
    **{"\u25cf": "@", "\u25c6": "*", "\u2022": "*", "\u00b7": ".", "\u00d7": "x", "\u2192": "->", "\u00b1": "+-"},
    "\u25a1": "o",  # the body of a rival's snake
    # One character for one: three dots would move the rest of a row.
    "\u2026": "~",
}


def _replace_characters(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs: characters that a terminal lacks become similar ones, or question marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_similar, error.object[error.start : error.end])), error.end


def _similar(character: str) -> str:
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return _IN_ASCII.get(character) or plain or "?"


def accept_any_character() -> None:
    """Print what a terminal that is not UTF-8 (LANG=C) cannot show as something similar, instead of failing."""
    codecs.register_error(_HANDLER, _replace_characters)
    for stream in (sys.stdout, sys.stderr):
        # Notebooks have streams of their own, which take everything.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def counted(count: int, noun: str) -> str:
    """A number of things, such as 1 rank or 2 ranks."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def fitted(line: str, width: int | None) -> list[str]:
    """A line as several that fit, broken between words; what follows a label is continued under itself."""
    if width is None or len(line) <= width:
        return [line]
    label = _LABEL.match(line)
    indent = label.end() if label and label.end() < width / 2 else len(line) - len(line.lstrip()) + 2
    # A path or a command that is too long is left in one piece: it may be copied.
    return textwrap.wrap(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def show_help(text: str) -> None:
    """Print a text to be read, which is broken into lines in a pipe as well: it usually leads to `less`."""
    show(text, width=shutil.get_terminal_size().columns)


def show(text: str, stream: TextIO | None = None, *, width: int | None = None) -> None:
    """Print a text; on a terminal, lines that are too long are broken between words."""
    stream = sys.stdout if stream is None else stream
    width = columns(stream) if width is None else width
    print("\n".join(part for line in text.split("\n") for part in fitted(line, width)), file=stream, flush=True)


def tell(line: str, stream: TextIO | None = None, *, end: str = "\n") -> None:
    """Print a line and flush it, to stdout by default; a line that cannot be written is dropped without an error."""
    stream = sys.stdout if stream is None else stream
    # Python sets sys.stdout to None if the descriptor was closed when the process started.
    if stream is None:
        return
    try:
        print("\n".join(fitted(line, columns(stream))), file=stream, end=end, flush=True)
    except OSError as error:
        if error.errno in _GONE:
            _silence(stream)
        elif stream.fileno() not in _dirty:
            # The disk may have room again later, so the stream stays. But a buffer that cannot be flushed at exit would
            # turn the exit code into 120, so it is emptied before that.
            _dirty.add(stream.fileno())
            atexit.register(_flush_or_discard, stream)


def suggest(*commands: str) -> None:
    """Say what to do next, to a person at a terminal: a pipe or a log file gets the answer alone."""
    if not is_terminal(sys.stdout):
        return
    line, width = f"next: {'  or  '.join(commands)}", columns(sys.stdout)
    if width is None or len(line) <= width:
        tell(line)
        return
    # Commands are copied: each has a line of its own, and one that is too long is continued as a shell allows it.
    for part in (f"next: {commands[0]}", *(f"  or: {other}" for other in commands[1:])):
        *broken, last = [part] if len(part) <= width else fitted(part, width - 2)
        for piece in broken:
            tell(f"{piece} \\")
        tell(last)


def unwritten(*, probe: bool = False) -> OSError | None:
    """What keeps text that was printed to stdout from being written, if anything; the text is then discarded.

    Lines of `tell` may be lost, so they do not count. `probe`: write a newline to find out, since a stream without a
    buffer (PYTHONUNBUFFERED) has nothing left to flush.
    """
    if sys.stdout is None or (_dirty and sys.stdout.fileno() in _dirty):
        return None
    try:
        print(end="\n" if probe else "", flush=True)
    except OSError as error:
        _silence(sys.stdout)
        return error
    return None


def open_missing_streams() -> None:
    """Open /dev/null in place of a closed stdin, stdout or stderr; else the next file opened would take its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # open returns the lowest free descriptor, which is this one: those below are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def columns(stream: TextIO | None) -> int | None:
    """How many columns a stream shows, asked anew each time since a window may be resized; None if it has no limit."""
    if stream is None or not stream.isatty():
        return None
    own = 0
    # Streams of notebooks and tests have no descriptor.
    with contextlib.suppress(OSError, ValueError):
        own = os.get_terminal_size(stream.fileno()).columns
    # COLUMNS first, then the terminal of stdout; a stream may be another one. A terminal may not know its width.
    return shutil.get_terminal_size((own or 80, 24)).columns


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; a stream is None if it was closed from the start."""
    return stream is not None and stream.isatty()


def _flush_or_discard(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Redirect a stream's descriptor to /dev/null: for its buffer, later writes, and libraries that write to it."""
    # dup2 replaces what the descriptor refers to, so the stream object and its buffer stay valid.
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)

"""Pieces of HTML. Every text is escaped here: names and values come from files that anybody may have written."""

from collections.abc import Iterable, Sequence
from html import escape

_LONGEST = 400


def text(value: object) -> str:
    """A value as HTML text: escaped, of bounded length, without control characters."""
    shown = str(value)
    clean = "".join(character if character.isprintable() else " " for character in shown[:_LONGEST])
    return escape(clean + ("…" if len(shown) > _LONGEST else ""))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers_from: int = 1) -> str:
    """A table; the columns from `numbers_from` on are aligned to the right."""
    titles = "".join(f"<th{_side(place, numbers_from)}>{text(title)}</th>" for place, title in enumerate(head))
    lines = "".join(f"<tr>{_cells(row, numbers_from)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>'


def _cells(row: Sequence[object], numbers_from: int) -> str:
    return "".join(f"<td{_side(place, numbers_from)}>{text(cell)}</td>" for place, cell in enumerate(row))


def _side(place: int, numbers_from: int) -> str:
    return ' class="number"' if place >= numbers_from else ""


def folded(title: str, content: str) -> str:
    """Content that is shown when its title is clicked."""
    return f"<details><summary>{text(title)}</summary>{content}</details>"


def section(title: str, content: str) -> str:
    """A part of the page under its heading; nothing if it has no content."""
    return f"<section><h2>{text(title)}</h2>{content}</section>" if content else ""


def paragraph(line: str, kind: str = "") -> str:
    """A line of text; `kind`: its class in the style sheet."""
    return f'<p class="{kind}">{text(line)}</p>' if kind else f"<p>{text(line)}</p>"


def code(lines: Iterable[str]) -> str:
    """Commands, a line each."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"

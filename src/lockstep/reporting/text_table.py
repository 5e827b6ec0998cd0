"""Tables of plain text that fit the terminal."""

from collections.abc import Collection, Sequence

_NARROWEST = 3


def aligned_lines(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    to_left: Sequence[bool],
    may_shrink: Collection[int],
    width: int | None,
) -> list[str]:
    """Columns two spaces apart, the head first. Cells of the columns that `may_shrink` are cut where it is too wide.

    to_left: for each column, whether it is aligned to the left. width: None = no limit.
    """
    widths = _widths(head, rows)
    while width is not None and _total(widths) > width:
        widest = max(may_shrink, key=lambda place: widths[place], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return [_line(cells, widths, to_left) for cells in (head, *rows)]


def total_width(head: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The width of such a table if nothing in it is cut."""
    return _total(_widths(head, rows))


def _widths(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(head, *rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _line(cells: Sequence[str], widths: Sequence[int], to_left: Sequence[bool]) -> str:
    cut = [cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell, width in zip(cells, widths, strict=True)]
    aligned = zip(cut, widths, to_left, strict=True)
    return "  ".join(cell.ljust(width) if left else cell.rjust(width) for cell, width, left in aligned).rstrip()

"""Formats an aligned table of texts."""

from __future__ import annotations

from collections.abc import Sequence

GAP = "   "


def columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> str:
    """Formats a table as lines.

    Args:
        head: titles; empty for a table without them.
        rows: lists of texts, one text per column.
        right: indices of the right-aligned columns.
    """
    every = [list(head), *map(list, rows)] if head else [list(row) for row in rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(every[0]))] if every else []
    lines = []
    for row in every:
        cells = [
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(GAP.join(cells).rstrip())
    return "\n".join(lines)

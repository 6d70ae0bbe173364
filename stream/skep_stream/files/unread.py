"""What Arrow's reader of CSV could not read, from its error."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Unread:
    """A row, from 1 on, and the number of a column, as far as they are stated, and the reason."""

    row: int | None
    column: int | None
    reason: str


def unread(read: Callable[[], object], error: pa.ArrowException) -> Unread:
    """The value behind an error. `read` reads once more, with one thread: only that counts rows."""
    text = str(error)
    try:
        read()
    except pa.ArrowException as again:
        text = str(again)
    column, row = re.search(r"In CSV column #(\d+): ", text), re.search(r"Row #(\d+): ", text)
    reason = re.sub(r"^CSV parse error: |In CSV column #\d+: |Row #\d+: |CSV conversion error to ", "", text)
    return Unread(int(row[1]) if row else None, int(column[1]) if column else None, reason)

"""Statements of a text, run one after the other, and what they answer as it is printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from skep.cli.output import Output, print_batches
from skep_table.errors import InputError, SkepError

if TYPE_CHECKING:
    from skep.lake import Lake
    from skep_sql.tokens import Cursor


def statements(text: str, name: str = "") -> list[Cursor]:
    """Each statement of a text. InputError, before any is run, where a quote or comment has no end."""
    from skep_sql.tokens import statements_of

    try:
        return statements_of(text)
    except InputError as error:
        raise InputError(f"{name}: {error.message}" if name else error.message, found=name or None) from error


def run_statement(lake: Lake, cursor: Cursor, engine: str, output: Output) -> int | None:
    """Runs one statement and prints what it answers; the number of rows, None where it has no columns."""
    # In its own place, so that errors name line and column of the whole text.
    text = "\n" * (cursor.line - 1) + " " * (cursor.column - 1) + cursor.text()
    result = lake.sql(text, engine=engine)
    for write in getattr(result, "writes", ()):
        print(write, file=sys.stderr)
    reader = result.to_reader() if hasattr(result, "to_reader") else result.to_arrow().to_reader()
    if not reader.schema.names:
        return None
    counter = _Counter(reader)
    print_batches(reader.schema, counter, output)
    sys.stdout.flush()
    return counter.rows


class _Counter:
    """Counts the rows that pass."""

    def __init__(self, batches: Any) -> None:
        self._batches = iter(batches)
        self.rows = 0

    def __iter__(self) -> _Counter:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch


@contextmanager
def located(cursor: Cursor, name: str, *, is_one: bool) -> Iterator[None]:
    """Errors of a statement name its place among others: file, line and column."""
    try:
        yield
    except SkepError as error:
        if is_one:
            raise
        has_place = re.match(r"line \d+, column \d+: ", error.message)
        place = "" if has_place else f"line {cursor.line}, column {cursor.column}: "
        fields: dict[str, Any] = {"line": cursor.line, "column": cursor.column, **error.fields}
        text = f"{name + ': ' if name else ''}{place}{error.message}"
        raise type(error)(text, hint=error.hint, **fields) from error

"""Statements of a text, run one after the other, and what they answer as it is printed."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skep.cli import progress
from skep.cli.output import Output, print_batches, without_meta_columns
from skep.query.result import SqlResult, engine_line
from skep_format.errors import InputError, SkepError

if TYPE_CHECKING:
    import pyarrow as pa

    from skep.lake import Lake
    from skep_sql.parsing.tokens import Cursor
    from skep_table.events import Event

_META: Final = "_hoodie_"


def statements(text: str, name: str = "") -> list[Cursor]:
    """Each statement of a text. InputError, before any is run, where a quote or comment has no end."""
    from skep_sql.parsing.tokens import statements_of

    try:
        return statements_of(text)
    except InputError as error:
        raise InputError(f"{name}: {error.message}" if name else error.message, found=name or None) from error


@dataclass(frozen=True, slots=True)
class Ran:
    """What a statement answered: `rows` is None where it has no columns; `engine` and `why` are those of a query."""

    seconds: float
    rows: int | None = None
    engine: str | None = None
    why: str | None = None

    def __str__(self) -> str:
        counted = "done" if self.rows is None else f"{self.rows} row{'' if self.rows == 1 else 's'}"
        by = "" if self.engine is None else f", {engine_line(self.engine, self.why)}"
        return f"{counted} in {self.seconds:.2f} s{by}"


def announce(lake: Lake) -> None:
    """From now on a session that is started for a query is announced, with the reason."""

    def listen(event: Event) -> None:
        if event.name == "spark.start.start":
            why = event.facts.get("why")
            with progress.aside():
                print("starting Spark" if why is None else f"starting Spark ({why})", file=sys.stderr)

    lake.events.listen(listen)


def run_statement(lake: Lake, cursor: Cursor, engine: str, output: Output) -> Ran:
    """Runs one statement and prints what it answers."""
    began = time.perf_counter()
    # In its own place, so that errors name line and column of the whole text.
    text = "\n" * (cursor.line - 1) + " " * (cursor.column - 1) + cursor.text()
    result = lake.sql(text, engine=engine)
    for write in getattr(result, "writes", ()):
        print(write, file=sys.stderr)
    reader = result.to_reader()
    if not reader.schema.names:
        return Ran(time.perf_counter() - began)
    counts: list[int] = []
    counted = _counted(reader, counts)
    named = _META in text.lower()
    schema, batches = (reader.schema, counted) if named else without_meta_columns(reader.schema, counted, output)
    print_batches(schema, batches, output)
    sys.stdout.flush()
    seconds = time.perf_counter() - began
    if isinstance(result, SqlResult):
        return Ran(seconds, sum(counts), result.engine, result.why)
    return Ran(seconds, sum(counts))


def _counted(batches: Iterable[pa.RecordBatch], counts: list[int]) -> Iterator[pa.RecordBatch]:
    """The batches as they are, with their numbers of rows in `counts`."""
    for batch in batches:
        counts.append(batch.num_rows)
        yield batch


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

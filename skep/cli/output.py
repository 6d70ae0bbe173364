"""What commands print: rows as table, lines, json, jsonl, csv or parquet on stdout; errors on stderr, an exit code."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from skep.cli import progress
from skep.cli.quick import arrow_alone
from skep_format.errors import InputError, SkepError

if TYPE_CHECKING:
    import pyarrow as pa

    from skep_stream.rounds import Round

log = logging.getLogger("skep")

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
ROWS_IN_A_TABLE = 1000
_WIDEST: Final = 60  # of a column on a terminal that is not the only one
_NARROWEST: Final = 8


class Output(str, Enum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    VERTICAL = "vertical"
    PARQUET = "parquet"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How rows are printed.", case_sensitive=False)]


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Errors of skep and of the system go to stderr: exit code 2 where the arguments were at fault, else 1.

    Ctrl-C ends with 130; what an interrupted write does about it was reported by then.
    """
    try:
        yield
        sys.stdout.flush()
    except SkepError as error:
        progress.stop()
        log.debug("the command failed", exc_info=error)
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(WRONG_USAGE if isinstance(error, InputError) else FAILED) from error
    except BrokenPipeError:
        # The reader of the pipe has seen enough. Nothing more may be written, at exit neither.
        write_no_more()
        raise typer.Exit(0) from None
    except OSError as error:
        typer.echo(f"error: {error}", err=True)
        write_no_more()  # a full disk may be the one that the output goes to
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None


def write_no_more() -> None:
    """What is left in the buffer of stdout would fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_rows(rows: Sequence[Mapping[str, Any] | Sequence[Any]], output: Output, columns: Sequence[str]) -> None:
    """A short list of rows, each by the names of columns or in their order. `columns` has the names, also of no row."""
    arrow_alone()
    import pyarrow as pa

    named = [row if isinstance(row, Mapping) else dict(zip(columns, row, strict=True)) for row in rows]
    arrays = {name: pa.array([row.get(name) for row in named]) for name in columns}
    table = pa.table(
        {name: array.cast(pa.string()) if pa.types.is_null(array.type) else array for name, array in arrays.items()}
    )
    print_batches(table.schema, table.to_batches(), output)


def without_meta_columns(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], output: Output
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """For people: rows of a query that names none of Hudi's meta columns without them. Other output has them all."""
    import pyarrow as pa

    from skep_format.schema.types import META_FIELDS

    places = [at for at, name in enumerate(schema.names) if name not in META_FIELDS]
    if output not in (Output.TABLE, Output.VERTICAL) or len(places) in (0, len(schema.names)):
        return schema, batches
    if progress.is_for_people():
        typer.echo("the _hoodie_… columns are not shown: name them, or ask for another --output", err=True)
    return pa.schema([schema.field(at) for at in places]), (batch.select(places) for batch in batches)


def with_json(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], names: Sequence[str]
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """The rows with columns whose texts are JSON: in JSON they are no texts that hold it."""
    import pyarrow as pa

    from skep_format.json_text import JsonText

    fields = [field.with_type(JsonText(field.type)) if field.name in names else field for field in schema]
    typed = pa.schema(fields)

    def made(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            pa.ExtensionArray.from_storage(field.type, column) if isinstance(field.type, JsonText) else column
            for field, column in zip(typed, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=typed)

    return typed, map(made, batches)


def print_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch], output: Output) -> None:
    """Rows as they come: nothing is held but the batch at hand (a table is cut after a thousand rows)."""
    if output is Output.TABLE:
        _print_table(schema, batches)
        return
    if output is Output.VERTICAL:
        _print_vertical(schema, batches)
        return
    progress.make_way()
    write = {Output.CSV: _write_csv, Output.PARQUET: _write_parquet}.get(output, _write_json)
    write(schema, batches, sys.stdout.buffer, output)
    sys.stdout.buffer.flush()


def _write_json(_: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes], output: Output) -> None:
    from skep_format.json_text import json_lines

    if output is Output.JSONL:
        for batch in batches:
            stream.write(json_lines(batch))
        return
    opening = b"["
    for batch in batches:
        if batch.num_rows:
            text = bytes(json_lines(batch)).removesuffix(b"\n")
            stream.write(opening + b"\n" + text.replace(b"\n", b",\n"))
            opening = b","
    stream.write(b"[]\n" if opening == b"[" else b"\n]\n")


def _write_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes], _: Output) -> None:
    """Values as text; those that are no plain text in JSON (lists, maps, structs) as JSON."""
    import pyarrow as pa
    from pyarrow import csv

    from skep_format.json_text import plain_texts

    flat = pa.schema([pa.field(name, pa.large_string()) for name in schema.names])
    with csv.CSVWriter(stream, flat) as writer:
        for batch in batches:
            writer.write_batch(pa.record_batch(plain_texts(batch), schema=flat))


def _write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: IO[bytes], _: Output) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    if sys.stdout.isatty():
        raise InputError(
            "parquet is no text for a terminal", hint="redirect the output: skep read … -o parquet > rows.parquet"
        )
    with parquet.ParquetWriter(pa.PythonFile(stream, "w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _print_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from skep_format.json_text import plain_texts
    from skep_format.schema.arrow import is_number

    is_terminal = sys.stdout.isatty()
    if is_terminal and len(schema) * _NARROWEST > Console().width:
        _print_vertical(schema, batches)  # of so many columns nothing would be left
        return
    most = _WIDEST if is_terminal and len(schema) > 1 else None
    table = Table(box=None, header_style="bold", pad_edge=False)
    for field in schema:
        justify: Literal["left", "right"] = "right" if is_number(field.type) else "left"
        table.add_column(
            Text(field.name), justify=justify, overflow="ellipsis", no_wrap=most is not None, max_width=most
        )
    rows = (row for batch in batches for row in zip(*(text.to_pylist() for text in plain_texts(batch)), strict=True))
    for row in itertools.islice(rows, ROWS_IN_A_TABLE):
        table.add_row(*(Text("" if cell is None else cell) for cell in row))
    progress.make_way()
    # A pipe is no terminal with a width: nothing is cut or folded there.
    Console(width=None if is_terminal else 10_000).print(table, soft_wrap=not is_terminal)
    if next(rows, None) is not None:
        typer.echo(f"first {ROWS_IN_A_TABLE} rows; --output jsonl prints them all", err=True)


def _print_vertical(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Each row as lines of a column and its whole value."""
    from skep_format.json_text import plain_texts

    width = max(map(len, schema.names), default=0)
    names = [name.rjust(width) for name in schema.names]
    number = 0
    for batch in batches:
        for row in zip(*(text.to_pylist() for text in plain_texts(batch)), strict=True):
            number += 1
            progress.make_way()
            print(f"-- row {number}")
            print("\n".join(f"{name}: {'' if cell is None else cell}" for name, cell in zip(names, row, strict=True)))


def iso_time(epoch_ms: float | None) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in UTC; None for none or 0."""
    if not epoch_ms:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")


def facts_of_round(done: Round) -> dict[str, Any]:
    """A round of a stream: its commit, its counts, and the checkpoints before and behind it."""
    result = done.result
    return {
        "instant": None if result is None else str(result.instant.requested_time),
        "rows": done.rows,
        "from": done.last.checkpoint,
        "checkpoint": done.checkpoint,
        **({} if result is None else {**result.counts, "seconds": round(result.seconds, 3)}),
    }

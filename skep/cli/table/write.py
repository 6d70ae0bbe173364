"""`skep write` and `skep delete`: rows of files into a table, and rows out of it, each as one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.base.names import is_path
from skep.cli.opened import Given, TableTarget
from skep.cli.progress import listening
from skep.cli.scope import settings_of
from skep_format.errors import InputError
from skep_format.options import comma_list
from skep_table.events import Event

if TYPE_CHECKING:
    import pyarrow as pa

    from skep.handles.destination import Destination
    from skep_format.rowfiles.inferred import Input
    from skep_table.events import Listener
    from skep_table.write.input.row_input import RowInput
    from skep_table.write.result import WriteResult


class Format(str, Enum):
    """Of files of rows."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"


class FileOperation(str, Enum):
    """What becomes of the rows."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"


WriteGiven = Annotated[Given, {"option": "A Hudi write key or a storage setting; repeatable."}]
BatchId = Annotated[str | None, typer.Option(help="A batch that was committed is not written again.")]
EventsAsJson = Annotated[
    bool, typer.Option("--events", help="Every step with its numbers as a JSON line on stderr; -v prints them as text.")
]
_COLUMNS = ("instant", "operation", "inserted", "updated", "deleted", "files", "bytes", "replaced_groups", "seconds")


@dataclass(frozen=True, slots=True)
class NewTable:
    """A new table by the options of a command."""

    key: Annotated[str | None, typer.Option(help="Makes the table when it is missing: key columns, by comma.")] = None
    ordering: Annotated[
        str | None, typer.Option(help="Of a new table: the greater value of this column wins. Columns, by comma.")
    ] = None
    partition_by: Annotated[str | None, typer.Option(help="Of a new table: columns, by comma.")] = None
    kind: Annotated[str | None, typer.Option("--type", metavar="cow|mor", help="Of a new table.  [default: cow]")] = (
        None
    )
    hive_style: Annotated[
        bool | None, typer.Option(help="Of a new table: folders named column=value.", show_default=False)
    ] = None
    table_version: Annotated[
        str | None,
        typer.Option(
            metavar="6|8|9|newest",
            help="Of a new table: Hudi's table version; newest: with a metadata table, too.  [default: 6]",
        ),
    ] = None

    def described(self, **more: object) -> dict[str, Any]:
        """As `Lake.create_table` takes it."""
        return {
            "key": None if self.key is None else comma_list(self.key),
            "ordering": None if self.ordering is None else comma_list(self.ordering),
            "partition_by": comma_list(self.partition_by or ""),
            "type": self.kind,
            "hive_style": self.hive_style,
            "table_version": self.table_version,
            **more,
        }


def write(
    table: TableTarget,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Parquet, CSV, JSON lines, Avro or ORC files, or folders; - is stdin."),
    ],
    operation: Annotated[
        FileOperation | None,
        typer.Option(
            "--operation",
            "-p",
            case_sensitive=False,
            help="What becomes of the rows.  [default: upsert; insert without record key]",
        ),
    ] = None,
    *,
    new: NewTable,
    changes: Annotated[
        str | None,
        typer.Option(metavar="data_before_after|data_before|op_key_only", help="Of a new table: kept for CDC queries."),
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--format", case_sensitive=False, help="Of the files, whatever their endings.")
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(metavar="'NAME TYPE, …'", help="How columns are read, in SQL's types; or an Avro schema file."),
    ] = None,
    batch_id: BatchId = None,
    events: EventsAsJson = False,
    given: WriteGiven,
) -> None:
    """Write files into a table as one commit; with --key the table is made when it is not there.

    On a merge-on-read table with the BUCKET index no key is looked up: the counts of inserted, updated and deleted rows
    that are printed are then estimates.

    A table that is there keeps its key, ordering, partitioning and type: options that differ from them are refused.
    CSV and JSON lines are read in its types; for a new table in those of --schema, else in what fits all files.
    Files in folders named column=value, below a folder that is given, have these columns where they lack them.
    """
    from skep.base.schemas import schema_text
    from skep.files.inputs import inputs_of
    from skep_format.schema.arrow import to_arrow

    with listening(f"write {table}", as_json=events) as listener:
        inputs = inputs_of(files, format.value if format else None)
        given_types = schema_text(schema) if schema is not None else None
        with destinations(table, given) as describe:
            there = found_or_described(describe, new.described(changes=changes))
            columns = None if there.known is None else to_arrow(there.known.schema)
            rows = _rows(inputs, columns, given_types, listener)
            with there.for_rows(rows.schema) as target:
                target.events.listen(listener)
                keyed = bool(target.snapshot.config.record_key_fields)
                chosen = operation or (FileOperation.UPSERT if keyed else FileOperation.INSERT)
                result = getattr(target, chosen.value)(rows, batch_id=batch_id)
        _print(result, given)


def delete(
    table: TableTarget,
    where: Annotated[str | None, typer.Option(metavar="PREDICATE", help="Rows for which this holds.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Whole partitions; * for any text; repeatable.")
    ] = None,
    batch_id: BatchId = None,
    events: EventsAsJson = False,
    *,
    given: WriteGiven,
) -> None:
    """Delete rows by a SQL predicate, or whole partitions by their paths."""
    with listening(f"delete from {table}", as_json=events) as listener:
        if (where is None) == (not partition):
            raise InputError("delete takes --where or --partition, one of them", option="--where")
        with given.opened(table) as target:
            target.events.listen(listener)
            if where is not None:
                result = target.delete(where=where, batch_id=batch_id)
            else:
                result = target.delete_partitions(*(partition or ()), batch_id=batch_id)
        _print(result, given)


def _rows(inputs: Sequence[Input], columns: pa.Schema | None, schema: pa.Schema | None, listener: Listener) -> RowInput:
    from skep.files.inputs import read_files

    read: list[str] = []

    def done(name: str) -> None:
        read.append(name)
        listener(Event("read.file", {"path": name}, done=len(read), total=len(inputs)))

    return read_files(inputs, columns, schema, done)


@contextmanager
def destinations(target: str, given: Given) -> Iterator[Callable[[Mapping[str, Any]], Destination]]:
    """What makes the table of a path or a name by a description, if it is not there."""
    from skep.handles.destination import Destination
    from skep.lake import connect

    options = settings_of(given.option)
    with ExitStack() as stack:
        if is_path(target):
            yield lambda described: Destination.at_path(
                target, options, described, lambda: stack.enter_context(given.opened(target))
            )
        else:
            lake = stack.enter_context(connect(given.metastore, given.warehouse, options=options))
            yield lambda described: lake.destination(target, **described)


def found_or_described(
    describe: Callable[[Mapping[str, Any]], Destination], described: Mapping[str, Any]
) -> Destination:
    """The table of a description that has a key, or that is there. TableMismatchError where that one differs."""
    there = describe(described)
    if there.table() is None and described["key"] is None:
        missing = there.missing
        assert missing is not None
        hint = "--key makes it; --key '' makes one without record key"
        raise type(missing)(missing.message, hint=hint, **missing.fields) from missing
    return there


def _print(result: WriteResult, given: Given) -> None:
    if result.repeated:
        typer.echo(f"the batch was committed before, as {result.instant.requested_time}: nothing is written", err=True)
    if result.empty:
        typer.echo("there was nothing to write: nothing is committed", err=True)
    operation = result.metadata.operation_type
    fact: dict[str, Any] = {
        "instant": result.instant.requested_time,
        "operation": operation.value.lower().removesuffix("_prepped") if operation else None,
        **result.counts,
        "seconds": round(result.seconds, 2),
    }
    given.print([fact], _COLUMNS)

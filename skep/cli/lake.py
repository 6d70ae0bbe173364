"""`skep ls`, `show`, `sql` and `write`: the tables of the metastore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.metastore import MetastoreOption, WarehouseOption
from skep.cli.output import Output, OutputOption, print_batches, print_rows, reported
from skep_table.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from skep.lake import Lake

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="table or database.table.")]


class Operation(str, Enum):
    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"


@contextmanager
def lake(metastore: str | None, warehouse: str | None) -> Iterator[Lake]:
    from skep.lake import connect

    with reported(), connect(metastore, warehouse) as found:
        yield found


def ls(
    database: Annotated[str | None, typer.Argument(help="Only this database.")] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the Hudi tables of the metastore."""
    with lake(metastore, warehouse) as found:
        rows = []
        for name in found.tables(database):
            of_database, _, of_name = name.partition(".")
            entry = found.metastore.table(of_database, of_name)
            synced = entry.parameters.get("last_commit_time_sync")
            rows.append({"table": name, "location": entry.storage.location, "synced_to": synced})
        print_rows(rows, output, ("table", "location", "synced_to"))


def show(
    table: TableName,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a table is: where, keys, columns, last commits."""
    with lake(metastore, warehouse) as found:
        one = found.table(table)
        hudi = one.hudi
        config = hudi.config
        facts: dict[str, Any] = {
            "table": one.name,
            "path": one.path,
            "type": config.type.value,
            "table version": config.version,
            "record key": ", ".join(config.record_key_fields) or "none",
            "ordering": ", ".join(config.ordering_fields) or "none: the last write wins",
            "partitioned by": ", ".join(config.partition_fields) or "nothing",
            "columns": ", ".join(hudi.schema().names()),
            "rows": one.read().count(),
            **{f"commit {one.instant}": _told(one) for one in one.history(5)},
        }
        rows = [{"fact": key, "value": str(value)} for key, value in facts.items()]
        print_rows(rows, output, ("fact", "value"))


def _told(commit: Any) -> str:
    counts = f"{commit.inserted} inserted, {commit.updated} updated, {commit.deleted} deleted"
    return f"{commit.operation or commit.action}: {counts} in {commit.files} files"


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over tables of the metastore; - reads it from stdin.")],
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a query with Spark and print its rows."""
    import sys

    with lake(metastore, warehouse) as found:
        answer = found.sql(sys.stdin.read() if query == "-" else query).to_arrow()
        print_batches(answer.schema, answer.to_batches(), output)


def write(
    table: TableName,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Parquet, CSV or JSON-lines files.")],
    operation: Annotated[Operation, typer.Option("--operation", "-p", case_sensitive=False)] = Operation.UPSERT,
    key: Annotated[str | None, typer.Option(help="Makes the table when it is missing: key columns.")] = None,
    ordering: Annotated[str | None, typer.Option(help="Of a new table: the greater value of this column wins.")] = None,
    partition_by: Annotated[str | None, typer.Option(help="Of a new table: columns, by comma.")] = None,
    batch_id: Annotated[str | None, typer.Option(help="A batch that was committed is not written again.")] = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write files into a table of the metastore as one commit."""
    with lake(metastore, warehouse) as found:
        rows = _rows(files)
        target = (
            found.table(table)
            if key is None
            else found.create_table(
                table,
                rows.schema,
                key=_split(key),
                ordering=ordering,
                partition_by=_split(partition_by or ""),
                if_not_exists=True,
            )
        )
        result = getattr(target, operation.value)(rows, batch_id=batch_id)
        fact = {
            "instant": result.instant.requested_time,
            "inserted": result.inserted,
            "updated": result.updated,
            "deleted": result.deleted,
            "files": result.files,
            "seconds": round(result.seconds, 2),
        }
        print_rows([fact], output, tuple(fact))


def _rows(files: list[Path]) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, json, parquet

    readers = {".parquet": parquet.read_table, ".csv": csv.read_csv, ".json": json.read_json, ".jsonl": json.read_json}
    tables = []
    for file in files:
        reader = readers.get(file.suffix.lower())
        if reader is None:
            raise InputError(f"{file}: unknown kind of file", found=file.suffix, expected=", ".join(readers))
        try:
            tables.append(reader(str(file)))
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{file} can't be read: {error}", path=str(file)) from error
    return pa.concat_tables(tables, promote_options="permissive")


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def register(app: typer.Typer) -> None:
    for command in (ls, show, sql, write):
        app.command()(command)

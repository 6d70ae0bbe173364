"""`skep metadata`: a table's metadata table shown, compared with the files, made again, dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.output import FAILED, Output, OutputOption, print_rows, reported
from skep.cli.scope import MetastoreOption, WarehouseOption
from skep.cli.tables import ServiceSettings, TableTarget, opened_table, running

if TYPE_CHECKING:
    from skep_table.services.metadata_check import Difference, MetadataCheck

app = typer.Typer(no_args_is_help=True, help="A table's metadata table: its listing of files and its indexes.")
Index = Annotated[
    list[str] | None,
    typer.Option("--index", metavar="NAME", help="Only this partition of the metadata table; repeatable."),
]
_PARTITION_COLUMNS = ("partition", "state", "file_groups", "base_files", "log_files", "base_bytes", "log_bytes")
_RECORD_COLUMNS = ("partition", "file_groups", "records", "fewest", "most")
_LISTED_COLUMNS = ("path", "files", "bytes")
_DROPPED_COLUMNS = ("partition", "state")
DIFFERENCE_COLUMNS = ("problem", "partition", "path", "subject", "found", "expected", "detail")


def register(parent: typer.Typer) -> None:
    """Adds the commands of this module."""
    parent.add_typer(app, name="metadata")


@app.command()
def show(
    table: TableTarget,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the partitions of the metadata table with their file groups and sizes; how current it is goes to stderr."""
    with reported(), opened_table(table, option, metastore, warehouse) as found:
        summary = found.show_metadata()
    print_rows(_rows_by(summary.partitions, _PARTITION_COLUMNS), output, _PARTITION_COLUMNS)
    compacted = summary.last_compaction or "never"
    current = "all completed writes" if summary.is_current else "NOT all completed writes: skep lists the storage"
    typer.echo(f"has {current}; last instant {summary.last_instant}", err=True)
    typer.echo(f"last compaction {compacted}, {summary.delta_commits} delta commits since", err=True)
    if summary.pending:
        typer.echo(f"pending: {', '.join(summary.pending)}", err=True)


@app.command()
def stats(
    table: TableTarget,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="The files of each partition of the table instead.")
    ] = False,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Count the records of each index: all, and those of its smallest and largest file group. Reads them all."""
    with reported(), opened_table(table, option, metastore, warehouse) as found:
        counted = found.metadata_statistics()
    if partitions:
        listed = [{"path": each.path, "files": each.files, "bytes": each.bytes} for each in counted.partitions]
        print_rows(listed, output, _LISTED_COLUMNS)
        return
    print_rows(_rows_by(counted.indexes, _RECORD_COLUMNS), output, _RECORD_COLUMNS)


@app.command()
def validate(
    table: TableTarget,
    index: Index = None,
    notes: Annotated[
        bool, typer.Option("--notes", help="Also what no answer of a query depends on: loose and stale records.")
    ] = False,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare the metadata table with the table's files; changes nothing. Exit code 1 when something differs."""
    with reported(), opened_table(table, option, metastore, warehouse) as found:
        checked = found.validate_metadata(indexes=index)
        print_rows(rows_of([*checked.differences, *(checked.notes if notes else ())]), output, DIFFERENCE_COLUMNS)
        report(checked)
    if checked.differences:
        raise typer.Exit(FAILED)


def report(checked: MetadataCheck) -> None:
    """What was compared, on stderr."""
    for each in checked.partitions:
        found = f"{len(each.differences)} differences, {len(each.notes)} notes"
        more = f", {each.omitted} more not shown" if each.omitted else ""
        typer.echo(f"{each.partition}: {each.checked} compared, {found}{more}", err=True)
    if checked.skipped:
        typer.echo(f"not compared: {', '.join(checked.skipped)}", err=True)


def _rows_by(partitions: Iterable[object], columns: Iterable[str]) -> list[dict[str, Any]]:
    """Partitions of the metadata table as rows: their names are in the column `partition`."""
    return [
        {column: getattr(each, "name" if column == "partition" else column) for column in columns}
        for each in partitions
    ]


def rows_of(differences: Iterable[Difference]) -> list[dict[str, Any]]:
    """Differences as rows of `DIFFERENCE_COLUMNS`."""
    return [
        {name: getattr(each, name) for name in DIFFERENCE_COLUMNS} | {"problem": each.problem.value}
        for each in differences
    ]


@app.command()
def rebuild(
    table: TableTarget,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make the metadata table again with its indexes, or for the first time; --option may enable further indexes."""
    with reported(), opened_table(table, option, metastore, warehouse) as found:
        from skep_table.services.metadata_admin import rebuild_metadata_table

        with running(found) as services:
            rebuilt = rebuild_metadata_table(services.on(found.hudi))
    rows = [{"partition": name, "state": "made"} for name in rebuilt.kept]
    print_rows([*rows, *({"partition": name, "state": "dropped"} for name in rebuilt.lost)], output, _DROPPED_COLUMNS)


@app.command()
def drop(
    table: TableTarget,
    index: Annotated[
        list[str] | None, typer.Option("--index", metavar="NAME", help="Only this index; repeatable.")
    ] = None,
    option: ServiceSettings = None,
    metastore: MetastoreOption = None,
    warehouse: WarehouseOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Drop the metadata table, or single indexes of it: queries then list the storage, or read more files."""
    with reported(), opened_table(table, option, metastore, warehouse) as found:
        dropped = found.drop_metadata(index=index)
    print_rows([{"partition": name, "state": "dropped"} for name in dropped], output, _DROPPED_COLUMNS)

"""`skep metadata`: a table's metadata table shown, compared with the files, rebuilt, dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.output import FAILED
from skep.cli.scope import App

if TYPE_CHECKING:
    from skep_table.services.metadata_check import Difference, MetadataCheck

app = App(no_args_is_help=True, help="A table's metadata table: its listing of files and its indexes.")
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
def show(table: TableTarget, *, given: Given) -> None:
    """List the partitions of the metadata table with their file groups and sizes; how current it is goes to stderr."""
    with given.opened(table) as found:
        summary = found.show_metadata()
    given.print(_rows_by(summary.partitions, _PARTITION_COLUMNS), _PARTITION_COLUMNS)
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
    *,
    given: Given,
) -> None:
    """Count the records of each index: all, and those of its smallest and largest file group. Reads them all."""
    with given.opened(table) as found:
        counted = found.metadata_statistics()
    if partitions:
        listed = [{"path": each.path, "files": each.files, "bytes": each.bytes} for each in counted.partitions]
        given.print(listed, _LISTED_COLUMNS)
        return
    given.print(_rows_by(counted.indexes, _RECORD_COLUMNS), _RECORD_COLUMNS)


@app.command()
def validate(
    table: TableTarget,
    index: Index = None,
    notes: Annotated[
        bool, typer.Option("--notes", help="Also what no answer of a query depends on: loose and stale records.")
    ] = False,
    *,
    given: Given,
) -> None:
    """Compare the metadata table with the table's files; changes nothing. Exit code 1 when something differs."""
    with given.opened(table) as found:
        checked = found.validate_metadata(indexes=index)
        given.print(rows_of([*checked.differences, *(checked.notes if notes else ())]), DIFFERENCE_COLUMNS)
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
def rebuild(table: TableTarget, *, given: Given) -> None:
    """Make the metadata table again with its indexes, or for the first time; --option may enable further indexes."""
    with given.running(table) as found:
        rebuilt = found.rebuild_metadata()
    rows = [{"partition": name, "state": "made"} for name in rebuilt.kept]
    given.print([*rows, *({"partition": name, "state": "dropped"} for name in rebuilt.lost)], _DROPPED_COLUMNS)


@app.command()
def drop(
    table: TableTarget,
    index: Annotated[
        list[str] | None, typer.Option("--index", metavar="NAME", help="Only this index; repeatable.")
    ] = None,
    *,
    given: Given,
) -> None:
    """Drop the metadata table, or single indexes of it: queries then list the storage, or read more files."""
    with given.opened(table) as found:
        dropped = found.drop_metadata(index=index)
    given.print([{"partition": name, "state": "dropped"} for name in dropped], _DROPPED_COLUMNS)

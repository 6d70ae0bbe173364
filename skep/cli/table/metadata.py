"""`skep metadata` and `skep index`: a table's metadata table and its indexes shown, compared, made, dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.output import FAILED
from skep.cli.scope import App, settings_of
from skep_format.errors import InputError

if TYPE_CHECKING:
    from skep_table.services.metadata.indexing import TableIndex

metadata = App(no_args_is_help=True, help="A table's metadata table: its listing of files and its indexes.")
index = App(no_args_is_help=True, help="The indexes of a table, which its metadata table has.")
_PARTITION_COLUMNS = ("partition", "state", "file_groups", "base_files", "log_files", "base_bytes", "log_bytes")
_RECORD_COLUMNS = ("partition", "file_groups", "records", "fewest", "most")
_LISTED_COLUMNS = ("path", "files", "bytes")
_STATE_COLUMNS = ("partition", "state")
_DIFFERENCE_COLUMNS = ("problem", "partition", "path", "subject", "found", "expected", "detail")


@metadata.command()
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


@metadata.command()
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
    columns = _LISTED_COLUMNS if partitions else _RECORD_COLUMNS
    given.print(_rows_by(counted.partitions if partitions else counted.indexes, columns), columns)


@metadata.command()
def validate(
    table: TableTarget,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", metavar="NAME", help="Only this partition of the metadata table; repeatable."),
    ] = None,
    notes: Annotated[
        bool, typer.Option("--notes", help="Also what no answer of a query depends on: loose and stale records.")
    ] = False,
    *,
    given: Given,
) -> None:
    """Compare the metadata table with the table's files; changes nothing. Exit code 1 when something differs."""
    with given.opened(table) as opened:
        checked = opened.validate_metadata(indexes=index)
    differences = [*checked.differences, *(checked.notes if notes else ())]
    rows = [row | {"problem": row["problem"].value} for row in _rows_by(differences, _DIFFERENCE_COLUMNS, "")]
    given.print(rows, _DIFFERENCE_COLUMNS)
    for each in checked.partitions:
        found = f"{len(each.differences)} differences, {len(each.notes)} notes"
        more = f", {each.omitted} more not shown" if each.omitted else ""
        typer.echo(f"{each.partition}: {each.checked} compared, {found}{more}", err=True)
    if checked.skipped:
        typer.echo(f"not compared: {', '.join(checked.skipped)}", err=True)
    if checked.differences:
        raise typer.Exit(FAILED)


@metadata.command()
def rebuild(table: TableTarget, *, given: Given) -> None:
    """Make the metadata table again with its indexes, or for the first time; --option may enable further indexes."""
    with given.running(table) as found:
        rebuilt = found.rebuild_metadata()
    given.print([*_states(rebuilt.kept, "made"), *_states(rebuilt.lost, "dropped")], _STATE_COLUMNS)


@metadata.command()
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
    given.print(_states(dropped, "dropped"), _STATE_COLUMNS)


@index.command("show")
def show_indexes(table: TableTarget, *, given: Given) -> None:
    """List the indexes with the columns that they are defined of."""
    with given.opened(table) as found:
        _print_indexes(found.indexes(), "ready", given)


@index.command("build")
def build_index(
    table: TableTarget,
    kind: Annotated[
        str,
        typer.Option(
            metavar="column_stats|partition_stats|bloom_filters|record_index|secondary_index",
            help="What the index is of; one of each, but any number of the last and of those with --expression.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="The name of a secondary index (else its column's), or of one over an expression."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="C", help="The column of a secondary index or an expression, or of statistics; repeatable."
        ),
    ] = None,
    expression: Annotated[
        str | None, typer.Option(metavar="F", help="A function of Spark: statistics or filters are of its values.")
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="An option of the expression (format=yyyy-MM-dd); repeatable."),
    ] = None,
    *,
    given: Given,
) -> None:
    """Make an index from the table's files, under its lock; writes keep it from then on."""
    arguments = settings_of(argument, "--argument")
    if arguments and expression is None:
        raise InputError("--argument goes with --expression", option="--argument")
    over = None if expression is None else {"expr": expression, **arguments}
    with given.running(table) as found:
        before = {each.partition for each in found.indexes()}
        found.build_index(kind, name=name, columns=column or None, expression=over)
        _print_indexes([each for each in found.indexes() if each.partition not in before], "made", given)


@index.command("drop")
def drop_index(
    table: TableTarget,
    name: Annotated[str, typer.Option(metavar="N", help="The index; its kind where there is one of that.")],
    *,
    given: Given,
) -> None:
    """Drop an index; secondary ones go with the record index, to which they lead."""
    with given.opened(table) as found:
        there = {each.name: each for each in found.indexes()}
        _print_indexes([there[each] for each in found.drop_index(name)], "dropped", given)


def _rows_by(found: Iterable[object], columns: Iterable[str], name: str = "partition") -> list[dict[str, Any]]:
    """Partitions of the metadata table as rows, or others: their names are in the column `name`."""
    return [{column: getattr(each, "name" if column == name else column) for column in columns} for each in found]


def _states(names: Iterable[str], state: str) -> list[tuple[str, str]]:
    return [(name, state) for name in names]


def _print_indexes(found: Iterable[TableIndex], state: str, given: Given) -> None:
    rows = [(each.name, each.kind, ",".join(each.columns), state) for each in found]
    given.print(rows, ("name", "kind", "columns", "state"))

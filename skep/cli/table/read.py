"""`skep read`: the rows of any Hudi table, by its path without Spark, Java or a metastore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given, TableTarget
from skep.cli.output import Output, print_batches, print_rows, with_json, without_meta_columns
from skep.cli.scope import settings_of
from skep_format.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from skep_table.query import ReadRequest
    from skep_table.table import HudiTable

NoMetadata = Annotated[bool, typer.Option("--no-metadata", help="List storage, not the metadata table.")]
ReadGiven = Annotated[Given, {"option": "A Hudi read key or a storage setting; repeatable."}]


def read(
    table: TableTarget,
    query: Annotated[
        str | None,
        typer.Option(metavar="snapshot|read_optimized|incremental|cdc", help="What to answer. [default: snapshot]"),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time travel: an instant, a date or an ISO time.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Changes after this time (exclusive).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Changes up to this time (inclusive).")] = None,
    max_commits: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Changes of the first N commits after --since.")
    ] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B,…", help="Only these columns, in this order.")] = None,
    where: Annotated[str | None, typer.Option(metavar="PREDICATE", help="A SQL predicate over the columns.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most so many rows.")] = None,
    path_glob: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Incremental: only files whose path below the table matches.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Instead of rows: what is read, and by what the rest is left out.")
    ] = False,
    no_metadata: NoMetadata = False,
    *,
    given: ReadGiven,
) -> None:
    """Print the rows of a Hudi table.

    --since and --until make the query incremental. They are instants; from table version 8 on, completion times. The
    name of a read-optimized view (t_ro) is answered read-optimized unless --query asks for something else.
    """
    # Arrow is loaded when a table is read, not when help is printed.
    from skep_catalog.entries import View
    from skep_table.query import ReadRequest, read
    from skep_table.query.options import QUERY_TYPE, QueryType

    settings = Options(settings_of(given.option))
    opened, view = given.read_only(table)
    if query is None and any(each is not None for each in (since, until, max_commits)) and as_of is None:
        query = "incremental"
    elif query is None and view is View.READ_OPTIMIZED and not settings.is_set(QUERY_TYPE):
        query = "read_optimized"
    request = ReadRequest.of(
        settings,
        query=query,
        as_of=as_of,
        since=since,
        until=until,
        max_commits=max_commits,
        columns=tuple(name.strip() for name in columns.split(",")) if columns is not None else None,
        where=where,
        limit=limit,
        path_glob=path_glob,
        metadata=False if no_metadata else None,
    )
    if explain:
        _print_explanation(opened, request, given.output)
        return
    result = read(opened, request)
    found: tuple[pa.Schema, Iterable[pa.RecordBatch]] = (result.schema, result.to_batches())
    if request.columns is None:
        found = without_meta_columns(*found, given.output)
    if request.query is QueryType.CDC and given.output in (Output.JSON, Output.JSONL):
        found = with_json(*found, ("before", "after"))
    print_batches(*found, given.output)


def _print_explanation(table: HudiTable, request: ReadRequest, output: Output) -> None:
    from skep_table.query.read import explain

    found = explain(table, request)
    if output is Output.TABLE:
        print(found)
        return
    rows: list[dict[str, Any]] = [
        {"step": step.by, "file_slices": step.slices, "partitions": step.partitions, "logs_only": step.logs_only}
        for step in found.steps
    ]
    groups = {"row_groups": found.row_groups, "row_groups_read": found.row_groups_read}
    rows[-1].update(groups)
    print_rows(rows, output, [*rows[-1]])

"""`skep schema`, `timeline`, `files` and `properties`: what a table consists of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli import progress
from skep.cli.opened import TableTarget
from skep.cli.table.read import NoMetadata, ReadGiven

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skep_format.timeline.instant import Instant
    from skep_table.table import HudiTable
    from skep_table.view import FileSlice

_INSTANT_COLUMNS = ("requested_time", "completion_time", "action", "state")
_DETAIL_COLUMNS = ("operation", "partitions", "files", "rows_written", "rows_deleted", "bytes_written")
_LOG_COLUMNS = ("logs", "pending_compaction")
_FILE_COLUMNS = ("partition", "file_id", "base_instant", "base_file", "base_bytes", "log_files", "log_bytes")


def schema(
    table: TableTarget,
    as_of: Annotated[str | None, typer.Option(metavar="TIME", help="The schema as of this time.")] = None,
    avro: Annotated[bool, typer.Option("--avro", help="Print the Avro schema instead.")] = False,
    *,
    given: ReadGiven,
) -> None:
    """Print the columns of a table."""
    from skep_format.schema.arrow import to_arrow
    from skep_format.schema.avro import to_avro
    from skep_table.query.request import instant_text

    opened, _ = given.read_only(table)
    found = opened.schema(instant_text(as_of, opened.config.timezone.value) if as_of else None)
    if avro:
        progress.make_way()
        typer.echo(json.dumps(to_avro(found), indent=2))
        return
    types = to_arrow(found)
    rows = [(field.name, str(types.field(field.name).type), field.nullable, field.doc or "") for field in found.fields]
    given.print(rows, ("column", "type", "nullable", "comment"))


def timeline(
    table: TableTarget,
    details: Annotated[bool, typer.Option("--details", "-d", help="Also what each commit wrote.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Archived instants too.")] = False,
    pending: Annotated[bool, typer.Option("--pending", help="Only those that are not complete.")] = False,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Only the last N instants.")] = None,
    *,
    given: ReadGiven,
) -> None:
    """Print the instants of a table, oldest first."""
    opened, _ = given.read_only(table)
    past = opened.timeline.archived() if archived else ()
    instants = [each for each in (*past, *opened.timeline.instants) if not (pending and each.is_completed)]
    rows = [
        (
            *(instant.requested_time, instant.completion_time, instant.action.value, instant.state.name.lower()),
            *(_details(opened, instant) if details else ()),
        )
        for instant in (instants[-limit:] if limit else instants)
    ]
    given.print(rows, _INSTANT_COLUMNS + (_DETAIL_COLUMNS if details else ()))


def _details(table: HudiTable, instant: Instant) -> Sequence[object]:
    from skep_format.timeline.instant import DATA_ACTIONS

    if not instant.is_completed or instant.action not in DATA_ACTIONS:
        return [None] * len(_DETAIL_COLUMNS)
    metadata = table.commit_metadata(instant)
    counts = [(stat.num_writes, stat.num_deletes, stat.total_write_bytes) for stat in metadata.stats]
    sums = [sum(each) for each in zip(*counts, strict=True)] or [0, 0, 0]
    operation = metadata.operation_type and metadata.operation_type.value
    return [operation, len(metadata.partitions), len(counts), *sums]


def files(
    table: TableTarget,
    partition: Annotated[str | None, typer.Option(metavar="PATH", help="Only this partition path.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="TIME", help="The files as of this time.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All file slices of each file group, newest first.")] = False,
    details: Annotated[
        bool,
        typer.Option("--details", "-d", help="Also the names of log files, and the pending compaction of the group."),
    ] = False,
    no_metadata: NoMetadata = False,
    *,
    given: ReadGiven,
) -> None:
    """Print the latest file slice of each file group."""
    from skep_table.query.request import instant_text

    opened, _ = given.read_only(table)
    moment = instant_text(as_of, opened.config.timezone.value) if as_of else None
    view = opened.view(as_of=moment, metadata=not no_metadata)
    partitions = view.partitions() if partition is None else [partition]
    rows = []
    for name in partitions:
        for group in view.file_groups(name):
            found = group.slices if every else [] if group.latest is None else [group.latest]
            rows += [_slice(each, group.pending_compaction, details) for each in found]
    given.print(rows, _FILE_COLUMNS + (_LOG_COLUMNS if details else ()))


def _slice(found: FileSlice, compaction: str | None, details: bool) -> Sequence[object]:
    base, logs = found.base_file, found.log_files
    own = (str(base.name), base.size_bytes) if base else (None, None)
    size = sum(log.size_bytes for log in logs)
    row = (found.partition_path, found.file_id, found.base_instant, *own, len(logs), size)
    if not details:
        return row
    return (*row, ", ".join(str(log.name) for log in logs), None if compaction is None else str(compaction))


def properties(table: TableTarget, *, given: ReadGiven) -> None:
    """Print the table's properties (.hoodie/hoodie.properties)."""
    from skep_format.storage import open_storage
    from skep_format.table_config import load_table_config

    config = load_table_config(open_storage(*given.located(table)))
    given.print(sorted(config.raw.items()), ("key", "value"))

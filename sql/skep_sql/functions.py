"""Table functions: other reads of a table within a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from skep_format.errors import InputError, UnsupportedError
from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_format.timeline.metadata import write_totals
from skep_format.timeline.timeline import completion_times
from skep_sql.answer import answer
from skep_sql.bind import TableFunction, look_up
from skep_sql.parsing.statements import Name
from skep_sql.protocols import Relation, TableCatalog
from skep_table.table import HudiTable

_TIMELINE: Final = """Timestamp, Action, State, Completion_Time, File_Name, Total_Bytes_Written:long,
    Total_Files_Updated:long, Total_Partitions_Written:long, Total_Records_Written:long,
    Total_Updated_Records_Written:long, Total_Write_Errors:long"""
_SLICES: Final = """File_ID, Partition_Path, Base_Instant_Time, Base_File_Path, Base_File_Size:long,
    Log_File_Count:long, Log_File_Size:long, Log_File_Scheduled:long, Log_File_Unscheduled:long"""
_CHANGES: Final = {"latest_state": "incremental", "cdc": "cdc"}


def hudi_query(catalog: TableCatalog, arguments: tuple[str, ...]) -> Relation:
    """`hudi_query(table, 'snapshot' | 'read_optimized' | 'incremental' [, since [, until]])`."""
    _count("hudi_query", arguments, 2, 4, "table, query type[, since[, until]]")
    name, kind, *times = arguments
    if kind.lower() not in ("snapshot", "read_optimized", "incremental"):
        raise InputError(
            f"hudi_query: unknown query type {kind!r}", found=kind, expected="snapshot, read_optimized or incremental"
        )
    return _target(catalog, name).rows(query=kind.lower(), **_times(times))


def hudi_table_changes(catalog: TableCatalog, arguments: tuple[str, ...]) -> Relation:
    """`hudi_table_changes(table, 'latest_state' | 'cdc', 'earliest' | since [, until])`: since exclusive."""
    _count("hudi_table_changes", arguments, 3, 4, "table, 'latest_state' or 'cdc', since[, until]")
    name, kind, *times = arguments
    if kind.lower() not in _CHANGES:
        raise InputError(f"hudi_table_changes: unknown kind {kind!r}", found=kind, expected="latest_state or cdc")
    return _target(catalog, name).rows(query=_CHANGES[kind.lower()], **_times(times))


def hudi_query_timeline(catalog: TableCatalog, arguments: tuple[str, ...]) -> Relation:
    """`hudi_query_timeline(table [, 'true'])`: a row for each instant, archived ones too where the second is true."""
    _count("hudi_query_timeline", arguments, 1, 2, "table[, 'true' or 'false']")
    table: HudiTable = _target(catalog, arguments[0]).hudi
    archived = arguments[1].lower() if len(arguments) > 1 else "false"
    if archived not in ("true", "false"):
        raise InputError(f"hudi_query_timeline: {archived!r}", found=archived, expected="true or false")
    times = completion_times(table.storage, table.timeline, table.config.timezone)
    instants = (*(table.timeline.archived() if archived == "true" else ()), *table.timeline.instants)
    return answer(_TIMELINE, [_instant_row(table, instant, times) for instant in instants]).rows


def _instant_row(table: HudiTable, instant: Instant, times: Mapping[InstantTime, CompletionTime]) -> list[object]:
    done = times.get(instant.requested_time, instant.completion_time) if instant.is_completed else None
    name = table.layout.path(instant).rpartition("/")[2]
    row = [instant.requested_time, instant.action.value, instant.state.name, done and str(done), name]
    if not instant.is_completed or instant.action not in DATA_ACTIONS:
        return [*row, *[None] * 6]
    totals = write_totals(table.commit_metadata(instant).stats)
    return [*row, *map(totals.get, ("bytes", "updated", "partitions", "written", "updates", "errors"))]


def hudi_filesystem_view(catalog: TableCatalog, arguments: tuple[str, ...]) -> Relation:
    """`hudi_filesystem_view(table)`: a row for the newest slice of each file group.

    Logs are scheduled where a compaction would merge them with the base file, and unscheduled where they were written
    behind a pending one.
    """
    _count("hudi_filesystem_view", arguments, 1, 1, "table")
    table: HudiTable = _target(catalog, arguments[0]).hudi
    view = table.view()
    rows = []
    for path in view.partitions():
        for found in view.slices(path):
            base, logs = found.base_file, found.log_files
            total = sum(log.size_bytes for log in logs)
            planned = sum(log.size_bytes for log in logs if log.name.instant_time == found.base_instant)
            files = (None, 0) if base is None else (table.storage.uri(base.path), base.size_bytes)
            rows.append([found.file_id, path, found.base_instant, *files, len(logs), total, planned, total - planned])
    return answer(_SLICES, rows).rows


def _times(times: list[str]) -> dict[str, Any]:
    return dict(zip(("since", "until"), times, strict=False))


def _target(catalog: TableCatalog, name: str) -> Any:
    return catalog.table(look_up(catalog, Name.of(name)))


def _count(function: str, arguments: tuple[str, ...], least: int, most: int, expected: str) -> None:
    if not least <= len(arguments) <= most:
        raise InputError(f"{function} takes ({expected}), found {len(arguments)} arguments", expected=expected)


def _metadata(_catalog: TableCatalog, _arguments: tuple[str, ...]) -> Relation:
    hint = "skep read of the table's .hoodie/metadata folder"
    raise UnsupportedError("hudi_metadata(…) is not supported", hint=hint)


FUNCTIONS: Final[Mapping[str, TableFunction]] = {
    "hudi_query": hudi_query,
    "hudi_table_changes": hudi_table_changes,
    "hudi_filesystem_view": hudi_filesystem_view,
    "hudi_query_timeline": hudi_query_timeline,
    "hudi_metadata": _metadata,
}

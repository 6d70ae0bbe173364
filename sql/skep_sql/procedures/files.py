"""Procedures that show the files of a table: file slices, sizes, log blocks, damaged files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from fnmatch import fnmatchcase
from typing import Any, Final

from skep_format.basefile import read_footer
from skep_format.errors import CorruptFileError, InputError
from skep_format.instant_time import InstantTime
from skep_format.json_text import json_lines
from skep_format.logfile import LogBlock, read_blocks
from skep_format.logfile.block import BlockType
from skep_format.options import Options
from skep_format.storage import Storage, open_storage
from skep_format.timeline.instant import Action
from skep_format.timeline.plans import CleanMetadata, RollbackMetadata
from skep_sql.procedures.contract import Context, Rows, procedure
from skep_table.encryption import with_keys
from skep_table.reports.commits import file_sizes
from skep_table.table import HudiTable
from skep_table.view import FileSlice, LogFile

_ALL: Final = ("*/*/*", "ALL_PARTITIONS", "")


def _slices(context: Context, *, latest: bool) -> Iterator[tuple[HudiTable, FileSlice]]:
    """Of the partitions that the arguments choose, until the instant that they name."""
    table = context.table
    until = context["max_instant"]
    view = table.view(as_of=InstantTime(until) if until else None)
    for path in view.partitions():
        if not _is_chosen(path, context):
            continue
        for found in view.slices(path) if latest else view.all_slices(path):
            if until and not context["include_max"] and found.base_instant == until:
                continue
            if not (context["exclude_compaction"] and found.base_file is None):
                yield table, found


def _is_chosen(path: str, context: Context) -> bool:
    wanted = context.given.get("partition_path")
    pattern = context["path_regex"]
    if wanted is not None and wanted not in _ALL:
        return bool(path == wanted)
    return pattern in _ALL or fnmatchcase(path, pattern)


def _paths(table: HudiTable, logs: Sequence[LogFile]) -> str:
    return f"[{', '.join(table.storage.uri(log.path) for log in logs)}]"


def _size(logs: Sequence[LogFile]) -> int:
    return sum(log.size_bytes for log in logs)


def _slice(table: HudiTable, found: FileSlice) -> list[object]:
    base, logs = found.base_file, found.log_files
    file = (table.storage.uri(base.path), base.size_bytes) if base else ("", 0)
    return [found.partition_path, found.file_id, found.base_instant, *file, len(logs), _size(logs)]


@procedure("""show_fsview_all(table, max_instant='', include_max=False, include_in_flight=False!,
    exclude_compaction=False, limit=10, path_regex='*/*/*', path!, filter!) -> partition, file_id, base_instant,
    data_file, data_file_size:long, num_delta_files:long, total_delta_file_size:long, delta_files""")
def _show_all(context: Context) -> Rows:
    rows = [[*_slice(table, found), _paths(table, found.log_files)] for table, found in _slices(context, latest=False)]
    return context.limited(rows)


@procedure("""show_fsview_latest(table, max_instant='', include_max=False, include_inflight=False!,
    exclude_compaction=False, limit=10, partition_path='ALL_PARTITIONS', merge=True, path_regex='ALL_PARTITIONS',
    include_in_flight=False!, path!, filter!) -> partition, file_id, base_instant, data_file, data_file_size:long,
    num_delta_files:long, total_delta_file_size:long, delta_size_compaction_scheduled:long,
    delta_size_compaction_unscheduled:long, delta_to_base_radio_compaction_scheduled:double,
    delta_to_base_radio_compaction_unscheduled:double, delta_files_compaction_scheduled,
    delta_files_compaction_unscheduled""")
def _show_latest(context: Context) -> Rows:
    """Logs that a pending compaction does not merge were written after it: their names have its instant."""
    rows: list[list[object]] = []
    for table, found in _slices(context, latest=True):
        planned = [log for log in found.log_files if log.name.instant_time == found.base_instant]
        logs = planned, [log for log in found.log_files if log not in planned]
        sizes, size = [*map(_size, logs)], found.base_file.size_bytes if found.base_file else 0
        shares = [each / size if size else -1.0 for each in sizes]
        more = [*sizes, *shares, *(_paths(table, each) for each in logs)]
        rows.append([*_slice(table, found), *(more if context["merge"] else [None] * 6)])
    return context.limited(rows)


@procedure("""stats_file_sizes(table, partition_path='', limit=10) -> commit_time, min:long, 10th:double,
    50th:double, avg:double, 95th:double, max:long, num_files:int, std_dev:double""")
def _sizes(context: Context) -> Rows:
    """Of the base files that each commit wrote, by commit and in all."""
    wanted = context["partition_path"]
    found = file_sizes(context.table, lambda path: not wanted or fnmatchcase(path, wanted), context["limit"])
    return [astuple(each) for each in found]


@procedure("show_file_status(table, path!, partition?, file, filter!) -> status, action, instant, timeline, full_path")
def _file_status(context: Context) -> Rows:
    """Whether a file is there, or which clean or rollback deleted it."""
    table, name = context.table, str(context["file"])
    if table.config.partition_fields and not context["partition"]:
        raise InputError("CALL show_file_status: argument partition is required", option="partition")
    path = f"{context['partition']}/{name}" if context["partition"] else name
    if table.storage.exists(path):
        return [["EXIST", None, None, None, table.storage.uri(path)]]
    for instant in reversed(table.timeline.completed().of(Action.CLEAN, Action.ROLLBACK).instants):
        plan = table.plan(instant)
        if isinstance(plan, (CleanMetadata, RollbackMetadata)) and any(
            deleted.rpartition("/")[2] == name and each.partition_path == (context["partition"] or "")
            for each in plan.partition_metadata.values()
            for deleted in each.success_delete_files
        ):
            found = instant.action.value, instant.requested_time
            return [["DELETED", *found, "active", table.storage.uri(path)]]
    return [["UNKNOWN", None, None, None, table.storage.uri(path)]]


# -- logs


def _blocks(context: Context) -> Iterator[LogBlock]:
    """Those of the log files of the newest slices whose path fits the pattern."""
    table, pattern = context.table, str(context["log_file_path_pattern"])
    view = table.view()
    found = sorted(
        log.path
        for path in view.partitions()
        for slice_ in view.slices(path)
        for log in slice_.log_files
        if any(fnmatchcase(name, pattern) for name in (log.path, table.storage.uri(log.path), str(log.name)))
    )
    if not found:
        raise table.error(InputError, f"no log file is like {pattern}", found=pattern)
    for path in found:
        with table.storage.open_input(path) as file:
            yield from read_blocks(file, path)


def _rows_of(block: LogBlock) -> int:
    if block.type is BlockType.DELETE:
        return block.deletes().num_rows
    return block.records().num_rows if block.type.has_records else 0


@procedure("""show_logfile_metadata(table, log_file_path_pattern, limit=10, path!, filter!) -> instant_time,
    record_count:int, block_type, header_metadata, footer_metadata""")
def _log_metadata(context: Context) -> Rows:
    rows: list[list[object]] = []
    for block in _blocks(context):
        headers = json.dumps({key.name: text for key, text in block.headers.items()}, separators=(",", ":"))
        known = block.type is not BlockType.CORRUPT
        time = str(block.instant_time) if known else None
        rows.append([time, _rows_of(block) if known else 0, f"{block.type.name}_BLOCK", headers, "{}"])
    return context.limited(rows)


@procedure("show_logfile_records(table, log_file_path_pattern, merge=False!, limit=10, path!, filter!) -> records")
def _log_records(context: Context) -> Rows:
    batches = (batch for block in _blocks(context) if block.type.has_records for batch in block.batches())
    return context.limited([[line.decode()] for batch in batches for line in bytes(json_lines(batch)).splitlines()])


# -- folders, by their path


def _storage(context: Context) -> tuple[Storage, str]:
    path = str(context["path"]).rstrip("/*")
    options = Options(context.options())
    return with_keys(open_storage(path, options), options), path


@procedure("""show_invalid_parquet(path, parallelism=100, limit=-1, needDelete=False!, partitions!, instants!,
    filter!) -> path""")
def _invalid(context: Context) -> Rows:
    """Parquet files below a folder whose footers can't be read."""
    storage, _ = _storage(context)
    rows: list[list[object]] = []
    for file in storage.list_prefix("", recursive=True):
        if file.path.endswith(".parquet"):
            try:
                read_footer(storage, file.path)
            except CorruptFileError:
                rows.append([storage.uri(file.path)])
    return context.limited(rows)


@procedure("""show_fs_path_detail(path, is_sub=False, sort=True, limit=100, filter!) -> path_num:long, file_num:long,
    storage_size:long, storage_size(unit), storage_path, space_consumed:long, quota:long, space_quota:long""")
def _folder_sizes(context: Context) -> Rows:
    """Folders, files and bytes below a folder, or below each folder in it."""
    storage, path = _storage(context)
    files = storage.list_prefix("", recursive=True)
    parts = {file.path.partition("/")[0] for file in files if "/" in file.path} if context["is_sub"] else {""}
    rows: list[list[Any]] = []
    for part in parts:
        within = [file for file in files if not part or file.path.startswith(f"{part}/")]
        folders = {file.path.rpartition("/")[0] for file in within}
        size = sum(file.size_bytes for file in within)
        place = f"{path}/{part}".rstrip("/")
        rows.append([len(folders), len(within), size, _in_units(size), place, size, -1, -1])
    rows.sort(key=lambda row: (-row[2] if context["sort"] else 0, row[4]))
    return context.limited(rows)


def _in_units(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            return f"{size:.2f}{unit}"
        size /= 1024
    raise AssertionError(size)

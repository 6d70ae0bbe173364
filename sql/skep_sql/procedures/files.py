"""Procedures that show the files of a table: file slices, sizes, log blocks, damaged files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from skep_format.basefile import read_footer
from skep_format.errors import CorruptFileError, InputError
from skep_format.instant_time import InstantTime
from skep_format.logfile import LogBlock, read_blocks
from skep_format.logfile.block import BlockType
from skep_format.options import Options
from skep_format.storage import Storage, open_storage
from skep_format.timeline.instant import Action
from skep_format.timeline.plans import CleanMetadata, RollbackMetadata
from skep_sql.procedures.contract import (
    DOUBLE,
    FILTER,
    INT,
    LIMIT,
    LONG,
    PATH,
    TABLE,
    TEXT,
    Argument,
    Context,
    Procedure,
    Rows,
    columns,
)
from skep_table.query.json_text import json_lines
from skep_table.table import HudiTable
from skep_table.view import FileSlice, LogFile

_ALL: Final = ("*/*/*", "ALL_PARTITIONS", "")


def _slices(context: Context, *, latest: bool) -> Iterator[tuple[HudiTable, FileSlice]]:
    """Of the partitions that the arguments choose, until the instant that they name."""
    table = context.target.hudi
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


def _base(table: HudiTable, found: FileSlice) -> tuple[str, int]:
    return ("", 0) if found.base_file is None else (table.storage.uri(found.base_file.path), found.base_file.size_bytes)


def _show_all(context: Context) -> Rows:
    rows = [
        [
            found.partition_path,
            found.file_id,
            found.base_instant,
            *_base(table, found),
            len(found.log_files),
            _size(found.log_files),
            _paths(table, found.log_files),
        ]
        for table, found in _slices(context, latest=False)
    ]
    return context.limited(rows)


def _show_latest(context: Context) -> Rows:
    """Logs that a pending compaction does not merge were written after it: their names have its instant."""
    rows: list[list[object]] = []
    for table, found in _slices(context, latest=True):
        base, size = _base(table, found)
        planned = [log for log in found.log_files if log.name.instant_time == found.base_instant]
        later = [log for log in found.log_files if log not in planned]
        first: list[object] = [found.partition_path, found.file_id, found.base_instant, base, size]
        total = _size(found.log_files)
        if not context["merge"]:
            rows.append([*first, len(found.log_files), total, *[None] * 6])
            continue
        shares = [_size(logs) / size if size else -1.0 for logs in (planned, later)]
        sizes = [_size(planned), _size(later)]
        rows.append(
            [*first, len(found.log_files), total, *sizes, *shares, _paths(table, planned), _paths(table, later)]
        )
    return context.limited(rows)


def _sizes(context: Context) -> Rows:
    """Of the base files that each commit wrote, by commit and in all."""
    table = context.target.hudi
    view, wanted = table.view(), context["partition_path"]
    by_commit: dict[str, list[int]] = {}
    for path in view.partitions():
        if wanted and not fnmatchcase(path, wanted):
            continue
        for found in view.all_slices(path):
            if found.base_file is not None:
                by_commit.setdefault(str(found.base_instant), []).append(found.base_file.size_bytes)
    rows = [[time, *_statistics(sizes)] for time, sizes in sorted(by_commit.items(), reverse=True)]
    every = [size for sizes in by_commit.values() for size in sizes]
    return [*context.limited(rows), *([["ALL", *_statistics(every)]] if every else [])]


def _statistics(sizes: Sequence[int]) -> list[object]:
    ordered = sorted(sizes)
    mean = sum(ordered) / len(ordered)

    def part(share: float) -> float:
        return float(ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1 if share else 0)])

    spread = math.sqrt(sum((size - mean) ** 2 for size in ordered) / max(1, len(ordered) - 1))
    return [ordered[0], part(0.1), part(0.5), mean, part(0.95), ordered[-1], len(ordered), spread]


def _file_status(context: Context) -> Rows:
    """Whether a file is there, or which clean or rollback deleted it."""
    table, name = context.target.hudi, str(context["file"])
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


def _logs(context: Context) -> Iterator[tuple[HudiTable, str]]:
    """The log files of the newest slices whose path fits the pattern."""
    table, pattern = context.target.hudi, str(context["log_file_path_pattern"])
    view = table.view()
    found = sorted(
        log.path
        for path in view.partitions()
        for slice_ in view.slices(path)
        for log in slice_.log_files
        if any(fnmatchcase(name, pattern) for name in (log.path, table.storage.uri(log.path), str(log.name)))
    )
    if not found:
        raise InputError(f"table {table.config.name}: no log file is like {pattern}", found=pattern)
    yield from ((table, path) for path in found)


def _rows_of(block: LogBlock) -> int:
    if block.type is BlockType.DELETE:
        return block.deletes().num_rows
    return block.records().num_rows if block.type.has_records else 0


def _log_metadata(context: Context) -> Rows:
    rows: list[list[object]] = []
    for table, path in _logs(context):
        with table.storage.open_input(path) as file:
            for block in read_blocks(file, path):
                headers = json.dumps({key.name: text for key, text in block.headers.items()}, separators=(",", ":"))
                known = block.type is not BlockType.CORRUPT
                time = str(block.instant_time) if known else None
                rows.append([time, _rows_of(block) if known else 0, _name(block.type), headers, "{}"])
    return context.limited(rows)


def _name(kind: BlockType) -> str:
    return f"{kind.name}_BLOCK"


def _log_records(context: Context) -> Rows:
    rows: list[list[object]] = []
    for table, path in _logs(context):
        with table.storage.open_input(path) as file:
            for block in read_blocks(file, path):
                if block.type.has_records:
                    for batch in block.batches():
                        rows += [[line.decode()] for line in bytes(json_lines(batch)).splitlines()]
    return context.limited(rows)


# -- folders, by their path


def _storage(context: Context) -> tuple[Storage, str]:
    path = str(context["path"]).rstrip("/*")
    return open_storage(path, Options(context.settings.hoodie)), path


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


def _folder_sizes(context: Context) -> Rows:
    """Folders, files and bytes below a folder, or below each folder in it."""
    storage, path = _storage(context)
    files = storage.list_prefix("", recursive=True)
    parts = {file.path.partition("/")[0] for file in files if "/" in file.path} if context["is_sub"] else {""}
    rows: list[list[object]] = []
    for part in parts:
        within = [file for file in files if not part or file.path.startswith(f"{part}/")]
        folders = {file.path.rpartition("/")[0] for file in within}
        size = sum(file.size_bytes for file in within)
        place = f"{path}/{part}".rstrip("/")
        rows.append([len(folders), len(within), size, _in_units(size), place, size, -1, -1])
    key = 2 if context["sort"] else 4
    rows.sort(key=lambda row: str(row[4]))
    if key == 2:
        rows.sort(key=lambda row: -int(str(row[2])))
    return context.limited(rows)


def _in_units(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            return f"{size:.2f}{unit}"
        size /= 1024
    raise AssertionError(size)


_PENDING: Final = Argument("include_in_flight", bool, False, built=False)
_UNTIL: Final = (TABLE, Argument("max_instant", str, ""), Argument("include_max", bool, False))
_SLICE: Final = (
    *columns(TEXT, "partition file_id base_instant data_file"),
    *columns(LONG, "data_file_size num_delta_files total_delta_file_size"),
)
_PATTERN: Final = Argument("log_file_path_pattern")

PROCEDURES: Final[Mapping[str, Procedure]] = {
    "show_fsview_all": Procedure(
        (
            *_UNTIL,
            _PENDING,
            Argument("exclude_compaction", bool, False),
            LIMIT,
            Argument("path_regex", str, "*/*/*"),
            PATH,
            FILTER,
        ),
        (*_SLICE, *columns(TEXT, "delta_files")),
        _show_all,
    ),
    "show_fsview_latest": Procedure(
        (
            *_UNTIL,
            Argument("include_inflight", bool, False, built=False),
            Argument("exclude_compaction", bool, False),
            LIMIT,
            Argument("partition_path", str, "ALL_PARTITIONS"),
            Argument("merge", bool, True),
            Argument("path_regex", str, "ALL_PARTITIONS"),
            _PENDING,
            PATH,
            FILTER,
        ),
        (
            *_SLICE,
            *columns(LONG, "delta_size_compaction_scheduled delta_size_compaction_unscheduled"),
            ("delta_to_base_radio_compaction_scheduled", DOUBLE),
            ("delta_to_base_radio_compaction_unscheduled", DOUBLE),
            *columns(TEXT, "delta_files_compaction_scheduled delta_files_compaction_unscheduled"),
        ),
        _show_latest,
    ),
    "stats_file_sizes": Procedure(
        (TABLE, Argument("partition_path", str, ""), LIMIT),
        (
            *columns(TEXT, "commit_time"),
            *columns(LONG, "min"),
            *columns(DOUBLE, "10th 50th avg 95th"),
            *columns(LONG, "max"),
            *columns(INT, "num_files"),
            *columns(DOUBLE, "std_dev"),
        ),
        _sizes,
    ),
    "show_file_status": Procedure(
        (TABLE, PATH, Argument("partition", str, None), Argument("file"), FILTER),
        columns(TEXT, "status action instant timeline full_path"),
        _file_status,
    ),
    "show_logfile_metadata": Procedure(
        (TABLE, _PATTERN, LIMIT, PATH, FILTER),
        (
            *columns(TEXT, "instant_time"),
            *columns(INT, "record_count"),
            *columns(TEXT, "block_type header_metadata footer_metadata"),
        ),
        _log_metadata,
    ),
    "show_logfile_records": Procedure(
        (TABLE, _PATTERN, Argument("merge", bool, False, built=False), LIMIT, PATH, FILTER),
        columns(TEXT, "records"),
        _log_records,
    ),
    "show_invalid_parquet": Procedure(
        (
            Argument("path"),
            Argument("parallelism", int, 100),
            Argument("limit", int, -1),
            Argument("needDelete", bool, False, built=False),
            Argument("partitions", str, None, built=False),
            Argument("instants", str, None, built=False),
            FILTER,
        ),
        columns(TEXT, "path"),
        _invalid,
    ),
    "show_fs_path_detail": Procedure(
        (
            Argument("path"),
            Argument("is_sub", bool, False),
            Argument("sort", bool, True),
            Argument("limit", int, 100),
            FILTER,
        ),
        (
            *columns(LONG, "path_num file_num storage_size"),
            *columns(TEXT, "storage_size(unit) storage_path"),
            *columns(LONG, "space_consumed quota space_quota"),
        ),
        _folder_sizes,
    ),
}

"""Procedures that show commits, active and archived ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_format.timeline.metadata import CommitMetadata, WriteStat
from skep_sql.procedures.contract import (
    FILTER,
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
    completed_times,
    time_of,
    write_at,
)
from skep_table.table import HudiTable


def _writes(table: HudiTable, limit: int) -> list[tuple[Instant, CommitMetadata]]:
    """The newest completed writes, newest first."""
    instants = table.timeline.data().completed().instants
    return [
        (instant, table.commit_metadata(instant)) for instant in reversed(instants[-limit:] if limit >= 0 else instants)
    ]


def _totals(stats: Sequence[WriteStat]) -> dict[str, int]:
    return {
        "bytes": sum(each.total_write_bytes for each in stats),
        "added": sum(each.prev_commit == "null" for each in stats),
        "updated": sum(each.prev_commit != "null" for each in stats),
        "partitions": len({each.partition_path for each in stats}),
        "written": sum(each.num_writes for each in stats),
        "updates": sum(each.num_update_writes for each in stats),
        "errors": sum(each.total_write_errors for each in stats),
    }


def _commit_row(done: str, instant: Instant, metadata: CommitMetadata) -> list[object]:
    return [instant.requested_time, done, instant.action.value, *_totals(metadata.stats).values()]


def _stat_row(done: str, instant: Instant, stat: WriteStat) -> list[object]:
    return [
        instant.requested_time,
        done,
        instant.action.value,
        stat.partition_path,
        stat.file_id,
        stat.prev_commit,
        stat.num_writes,
        stat.num_inserts,
        stat.num_deletes,
        stat.num_update_writes,
        stat.total_write_errors,
        stat.total_log_blocks,
        stat.total_corrupt_log_block,
        stat.total_rollback_blocks,
        stat.total_log_records,
        stat.total_updated_records_compacted,
        stat.total_write_bytes,
    ]


def _show_commits(context: Context) -> Rows:
    table = context.target.hudi
    times = completed_times(table)
    return [_commit_row(time_of(times, one), one, found) for one, found in _writes(table, context["limit"])]


def _show_commits_metadata(context: Context) -> Rows:
    table = context.target.hudi
    times = completed_times(table)
    found = _writes(table, context["limit"])
    return [_stat_row(time_of(times, one), one, stat) for one, metadata in found for stat in metadata.stats]


def _archived(context: Context) -> list[tuple[str, Instant, CommitMetadata]]:
    """Completed writes of the archived timeline, newest first, between the times that are given: with their times."""
    table = context.target.hudi
    start, end = (InstantTime(context[name] or "") for name in ("start_ts", "end_ts"))
    found = [
        instant
        for instant in reversed(table.timeline.archived())
        if instant.is_completed
        and instant.action in DATA_ACTIONS
        and (not start or instant.requested_time.is_at_or_after(start))
        and (not end or instant.requested_time.is_at_or_before(end))
    ]
    limited = found[: context["limit"]] if context["limit"] >= 0 else found
    return [(str(one.completion_time or one.requested_time), one, table.commit_metadata(one)) for one in limited]


def _show_archived_commits(context: Context) -> Rows:
    found = _archived(context)
    return [[one.requested_time, done, *_totals(metadata.stats).values()] for done, one, metadata in found]


def _show_archived_commits_metadata(context: Context) -> Rows:
    return [_stat_row(done, instant, stat) for done, instant, metadata in _archived(context) for stat in metadata.stats]


def _show_commit_files(context: Context) -> Rows:
    table = context.target.hudi
    instant, metadata = write_at(context, table)
    rows: list[list[object]] = [
        [
            instant.action.value,
            stat.partition_path,
            stat.file_id,
            stat.prev_commit,
            stat.num_update_writes,
            stat.num_writes,
            stat.total_write_bytes,
            stat.total_write_errors,
            stat.file_size_in_bytes,
        ]
        for stat in metadata.stats
    ]
    return context.limited(rows)


def _show_commit_partitions(context: Context) -> Rows:
    table = context.target.hudi
    instant, metadata = write_at(context, table)
    rows: list[list[object]] = []
    for path in sorted({stat.partition_path for stat in metadata.stats}):
        stats = [stat for stat in metadata.stats if stat.partition_path == path]
        total = _totals(stats)
        inserted = sum(stat.num_inserts for stat in stats)
        rows.append(
            [
                instant.action.value,
                path,
                total["added"],
                total["updated"],
                inserted,
                total["updates"],
                total["bytes"],
                total["errors"],
            ]
        )
    return context.limited(rows)


def _show_commit_write_stats(context: Context) -> Rows:
    instant, metadata = write_at(context, context.target.hudi)
    total = _totals(metadata.stats)
    average = -(-total["bytes"] // total["written"]) if total["written"] else 0
    return [[instant.action.value, total["bytes"], total["written"], average]]


def _show_commit_extra_metadata(context: Context) -> Rows:
    table = context.target.hudi
    if context["instant_time"] is None:
        last = table.timeline.data().completed().last()
        found = [] if last is None else [(last, table.commit_metadata(last))]
    else:
        found = [write_at(context, table)]
    rows: list[list[object]] = [
        [instant.requested_time, instant.action.value, key, value]
        for instant, metadata in found
        for key, value in metadata.extra_metadata.items()
        if context["metadata_key"] in (None, key)
    ]
    return context.limited(rows)


def _write_amplification(context: Context) -> Rows:
    """Rows written for each row that was updated, by commit and in all."""
    rows: list[list[object]] = []
    updated = written = 0
    for instant, metadata in _writes(context.target.hudi, context["limit"]):
        total = _totals(metadata.stats)
        rows.append([instant.requested_time, total["updates"], total["written"], _ratio(total)])
        updated, written = updated + total["updates"], written + total["written"]
    return [*rows, ["Total", updated, written, _ratio({"updates": updated, "written": written})]]


def _ratio(total: Mapping[str, int]) -> str:
    return f"{total['written'] / total['updates']:.2f}" if total["updates"] else "0"


def _show_timeline(context: Context) -> Rows:
    table = context.target.hudi
    times = completed_times(table)
    rows: list[list[object]] = []
    for instant in table.timeline.instants[-context["limit"] :]:
        shown = _minute(instant.requested_time)
        done = _minute(times.get(instant.requested_time)) if instant.is_completed else None
        started = shown if instant.state.name != "REQUESTED" else None
        rows.append(
            [instant.requested_time, instant.action.value, instant.state.name, shown, started, done, "ACTIVE", None]
        )
    return rows


def _minute(time: object) -> str | None:
    text = str(time or "")
    return f"{text[4:6]}-{text[6:8]} {text[8:10]}:{text[10:12]}:{text[12:14]}" if len(text) >= 14 else None


def _show_table_properties(context: Context) -> Rows:
    return context.limited(sorted(map(list, context.target.hudi.config.raw.items())))


_INSTANT: Final = Argument("instant_time")
_COMMIT: Final = columns(TEXT, "commit_time state_transition_time action")
_TOTALS: Final = columns(
    LONG,
    "total_bytes_written total_files_added total_files_updated total_partitions_written total_records_written"
    " total_update_records_written total_errors",
)
_COMMITS: Final = (*_COMMIT, *_TOTALS)
_ARCHIVED: Final = (*_COMMIT[:2], *_TOTALS)
_STATS: Final = (
    *_COMMIT,
    *columns(TEXT, "partition file_id previous_commit"),
    *columns(
        LONG,
        "num_writes num_inserts num_deletes num_update_writes total_errors total_log_blocks total_corrupt_log_blocks"
        " total_rollback_blocks total_log_records total_updated_records_compacted total_bytes_written",
    ),
)
_BETWEEN: Final = (TABLE, LIMIT, Argument("start_ts", str, None), Argument("end_ts", str, None))

PROCEDURES: Final[Mapping[str, Procedure]] = {
    "show_commits": Procedure((TABLE, LIMIT), _COMMITS, _show_commits),
    "show_commits_metadata": Procedure((TABLE, LIMIT), _STATS, _show_commits_metadata),
    "show_archived_commits": Procedure(_BETWEEN, _ARCHIVED, _show_archived_commits),
    "show_archived_commits_metadata": Procedure(_BETWEEN, _STATS, _show_archived_commits_metadata),
    "show_commit_files": Procedure(
        (TABLE, LIMIT, _INSTANT),
        (
            *columns(TEXT, "action partition_path file_id previous_commit"),
            *columns(LONG, "total_records_updated total_records_written total_bytes_written total_errors file_size"),
        ),
        _show_commit_files,
    ),
    "show_commit_partitions": Procedure(
        (TABLE, LIMIT, _INSTANT),
        (
            *columns(TEXT, "action partition_path"),
            *columns(
                LONG,
                "total_files_added total_files_updated total_records_inserted total_records_updated"
                " total_bytes_written total_errors",
            ),
        ),
        _show_commit_partitions,
    ),
    "show_commit_write_stats": Procedure(
        (TABLE, LIMIT, _INSTANT),
        (*columns(TEXT, "action"), *columns(LONG, "total_bytes_written total_records_written avg_record_size")),
        _show_commit_write_stats,
    ),
    "show_commit_extra_metadata": Procedure(
        (TABLE, Argument("limit", int, 100), Argument("instant_time", str, None), Argument("metadata_key", str, None)),
        columns(TEXT, "instant_time action metadata_key metadata_value"),
        _show_commit_extra_metadata,
    ),
    "stats_wa": Procedure(
        (TABLE, LIMIT),
        (
            *columns(TEXT, "commit_time"),
            *columns(LONG, "total_upserted total_written"),
            *columns(TEXT, "write_amplification_factor"),
        ),
        _write_amplification,
    ),
    "show_timeline": Procedure(
        (
            TABLE,
            PATH,
            Argument("limit", int, 20),
            Argument("showArchived", bool, False, built=False),
            FILTER,
            Argument("startTime", str, None, built=False),
            Argument("endTime", str, None, built=False),
        ),
        columns(
            TEXT, "instant_time action state requested_time inflight_time completed_time timeline_type rollback_info"
        ),
        _show_timeline,
    ),
    "show_table_properties": Procedure(
        (TABLE, PATH, LIMIT, FILTER), columns(TEXT, "key value"), _show_table_properties
    ),
}

"""Procedures that show commits, active and archived ones."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_format.timeline.metadata import CommitMetadata, stats_by_partition, write_totals
from skep_sql.procedures.contract import Context, Rows, completed_times, procedure, time_of, write_at
from skep_table.reports.commits import compare_commits, completed_writes, write_amplification
from skep_table.table import HudiTable

_TOTALS: Final = """total_bytes_written:long, total_files_added:long, total_files_updated:long,
    total_partitions_written:long, total_records_written:long, total_update_records_written:long, total_errors:long"""
_STATS: Final = """commit_time, state_transition_time, action, partition, file_id, previous_commit, num_writes:long,
    num_inserts:long, num_deletes:long, num_update_writes:long, total_errors:long, total_log_blocks:long,
    total_corrupt_log_blocks:long, total_rollback_blocks:long, total_log_records:long,
    total_updated_records_compacted:long, total_bytes_written:long"""
_STAT_FIELDS: Final = attrgetter(
    *("partition_path", "file_id", "prev_commit", "num_writes", "num_inserts", "num_deletes", "num_update_writes"),
    *("total_write_errors", "total_log_blocks", "total_corrupt_log_block", "total_rollback_blocks"),
    *("total_log_records", "total_updated_records_compacted", "total_write_bytes"),
)
_FILE_FIELDS: Final = attrgetter(
    *("partition_path", "file_id", "prev_commit", "num_update_writes", "num_writes", "total_write_bytes"),
    *("total_write_errors", "file_size_in_bytes"),
)


def _stat_rows(done: str, instant: Instant, metadata: CommitMetadata) -> list[list[object]]:
    return [[instant.requested_time, done, instant.action.value, *_STAT_FIELDS(stat)] for stat in metadata.stats]


@procedure(f"show_commits(table, limit=10) -> commit_time, state_transition_time, action, {_TOTALS}")
def _show_commits(context: Context) -> Rows:
    table = context.table
    times = completed_times(table)
    return [
        [one.requested_time, time_of(times, one), one.action.value, *write_totals(metadata.stats).values()]
        for one, metadata in completed_writes(table, context["limit"])
    ]


@procedure(f"show_commits_metadata(table, limit=10) -> {_STATS}")
def _show_commits_metadata(context: Context) -> Rows:
    table = context.table
    times, found = completed_times(table), completed_writes(table, context["limit"])
    return [row for one, metadata in found for row in _stat_rows(time_of(times, one), one, metadata)]


def _archived(context: Context) -> list[tuple[str, Instant, CommitMetadata]]:
    """Completed writes of the archived timeline, newest first, between the times that are given: with their times."""
    table = context.table
    start, end = (InstantTime(context[name] or "") for name in ("start_ts", "end_ts"))
    found = [
        instant
        for instant in reversed(table.timeline.archived())
        if instant.is_completed
        and instant.action in DATA_ACTIONS
        and (not start or instant.requested_time.is_at_or_after(start))
        and (not end or instant.requested_time.is_at_or_before(end))
    ]
    limited = context.limited(found)
    return [(str(one.completion_time or one.requested_time), one, table.commit_metadata(one)) for one in limited]


@procedure(f"""show_archived_commits(table, limit=10, start_ts?, end_ts?) -> commit_time, state_transition_time,
    {_TOTALS}""")
def _show_archived_commits(context: Context) -> Rows:
    found = _archived(context)
    return [[one.requested_time, done, *write_totals(metadata.stats).values()] for done, one, metadata in found]


@procedure(f"show_archived_commits_metadata(table, limit=10, start_ts?, end_ts?) -> {_STATS}")
def _show_archived_commits_metadata(context: Context) -> Rows:
    return [row for found in _archived(context) for row in _stat_rows(*found)]


@procedure("""show_commit_files(table, limit=10, instant_time) -> action, partition_path, file_id, previous_commit,
    total_records_updated:long, total_records_written:long, total_bytes_written:long, total_errors:long,
    file_size:long""")
def _show_commit_files(context: Context) -> Rows:
    instant, metadata = write_at(context)
    return context.limited([[instant.action.value, *_FILE_FIELDS(stat)] for stat in metadata.stats])


@procedure("""show_commit_partitions(table, limit=10, instant_time) -> action, partition_path, total_files_added:long,
    total_files_updated:long, total_records_inserted:long, total_records_updated:long, total_bytes_written:long,
    total_errors:long""")
def _show_commit_partitions(context: Context) -> Rows:
    instant, metadata = write_at(context)
    rows: list[list[object]] = []
    for path, stats in sorted(stats_by_partition(metadata.stats).items()):
        total = write_totals(stats) | {"inserted": sum(stat.num_inserts for stat in stats)}
        wanted = ("added", "updated", "inserted", "updates", "bytes", "errors")
        rows.append([instant.action.value, path, *map(total.get, wanted)])
    return context.limited(rows)


@procedure("""show_commit_write_stats(table, limit=10, instant_time) -> action, total_bytes_written:long,
    total_records_written:long, avg_record_size:long""")
def _show_commit_write_stats(context: Context) -> Rows:
    instant, metadata = write_at(context)
    total = write_totals(metadata.stats)
    average = -(-total["bytes"] // total["written"]) if total["written"] else 0
    return [[instant.action.value, total["bytes"], total["written"], average]]


@procedure("""show_commit_extra_metadata(table, limit=100, instant_time?, metadata_key?) -> instant_time, action,
    metadata_key, metadata_value""")
def _show_commit_extra_metadata(context: Context) -> Rows:
    found = completed_writes(context.table, 1) if context["instant_time"] is None else [write_at(context)]
    rows = [
        [instant.requested_time, instant.action.value, key, value]
        for instant, metadata in found
        for key, value in metadata.extra_metadata.items()
        if context["metadata_key"] in (None, key)
    ]
    return context.limited(rows)


@procedure("""stats_wa(table, limit=10) -> commit_time, total_upserted:long, total_written:long,
    write_amplification_factor""")
def _write_amplification(context: Context) -> Rows:
    """Rows written for each row that was updated, by commit and in all."""
    found = write_amplification(context.table, context["limit"])
    return [[each.commit, each.updated, each.written, each.factor] for each in found]


@procedure("""show_timeline(table, path!, limit=20, showArchived=False!, filter!, startTime!, endTime!)
    -> instant_time, action, state, requested_time, inflight_time, completed_time, timeline_type, rollback_info""")
def _show_timeline(context: Context) -> Rows:
    table = context.table
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


@procedure("show_table_properties(table, path!, limit=10, filter!) -> key, value")
def _show_table_properties(context: Context) -> Rows:
    return context.limited(sorted(map(list, context.table.config.raw.items())))


@procedure("commits_compare(table, path) -> compare_detail")
def _compare(context: Context) -> Rows:
    """Which of two tables is ahead of the other one, by their last commits."""
    other = HudiTable.open(str(context["path"]), context.session.settings.hoodie)
    return [[str(compare_commits(context.table, other))]]

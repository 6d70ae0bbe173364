"""CALL: Hudi's procedures, by its names, with its arguments and result columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from skep_sql.answer import Answer, answer
from skep_sql.bind import Scope, look_up
from skep_sql.names import nearest
from skep_sql.protocols import Target
from skep_sql.settings import Settings
from skep_sql.statements import Call, Name, Truncate
from skep_sql.tables import truncate
from skep_table.errors import InputError, UnsupportedError
from skep_table.instant_time import CompletionTime, InstantTime
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.metadata import CommitMetadata, WriteStat
from skep_table.timeline.timeline import completion_times

_TEXT, _INT, _LONG, _BOOL = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_REQUIRED: Final = object()
# Hudi's other procedures: known by name, so that an error distinguishes them from a wrong name.
_KNOWN: Final = frozenset(
    [
        "archive_commits",
        "cleanup_audit_lock",
        "commits_compare",
        "copy_to_table",
        "copy_to_temp_view",
        "create_metadata_table",
        "delete_marker",
        "delete_metadata_table",
        "downgrade_table",
        "export_instants",
        "hdfs_parquet_import",
        "help",
        "init_metadata_table",
        "partition_bucket_index_manager",
        "repair_add_partition_meta",
        "repair_corrupted_clean_files",
        "repair_deduplicate",
        "repair_migrate_partition_meta",
        "repair_overwrite_hoodie_props",
        "run_bootstrap",
        "run_clean",
        "run_clustering",
        "run_rollback_inflight_tableservice",
        "run_ttl",
        "set_audit_lock",
        "show_archived_commits",
        "show_archived_commits_metadata",
        "show_audit_lock_status",
        "show_bootstrap_mapping",
        "show_bootstrap_partitions",
        "show_clean_plans",
        "show_cleans",
        "show_cleans_metadata",
        "show_clustering",
        "show_file_status",
        "show_fs_path_detail",
        "show_fsview_all",
        "show_fsview_latest",
        "show_invalid_parquet",
        "show_logfile_metadata",
        "show_logfile_records",
        "show_metadata_column_stats_overlap",
        "show_metadata_table_column_stats",
        "show_metadata_table_files",
        "show_metadata_table_partitions",
        "show_metadata_table_stats",
        "show_rollback_detail",
        "show_rollbacks",
        "stats_file_sizes",
        "stats_wa",
        "sync_validate",
        "upgrade_table",
        "validate_audit_lock",
        "validate_metadata_table_files",
    ]
)


@dataclass(frozen=True, slots=True)
class Argument:
    """One of a procedure's; without a default it is required."""

    name: str
    kind: type = str
    default: Any = _REQUIRED


@dataclass(frozen=True, slots=True)
class Context:
    """What a procedure works with."""

    scope: Scope
    settings: Settings
    given: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    @property
    def target(self) -> Target:
        """The table that the argument names."""
        name = Name(tuple(part.strip("`") for part in str(self["table"]).split(".")))
        return self.scope.catalog.table(look_up(self.scope.catalog, name))


Column = tuple[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class Procedure:
    """Arguments in the order of positions, columns of the result, and what computes its rows."""

    arguments: tuple[Argument, ...]
    columns: tuple[Column, ...]
    run: Callable[[Context], Sequence[Sequence[object]]]


def call(statement: Call, scope: Scope, settings: Settings) -> Answer:
    """UnsupportedError for procedures of Hudi's that are not built, InputError for unknown ones and wrong arguments."""
    found = PROCEDURES.get(statement.name)
    if found is None:
        if statement.name in _KNOWN:
            raise UnsupportedError(
                f"procedure {statement.name} is not supported", hint=f"there are: {', '.join(sorted(PROCEDURES))}"
            )
        near = nearest(statement.name, PROCEDURES)
        raise InputError(
            f"there is no procedure {statement.name}",
            hint=f"did you mean {near}?" if near else f"there are: {', '.join(sorted(PROCEDURES))}",
            found=statement.name,
        )
    context = Context(scope, settings, _arguments(statement, found))
    return answer(found.columns, found.run(context))


def _arguments(statement: Call, procedure: Procedure) -> dict[str, Any]:
    """By name, or by position. Unknown names are passed over, as Hudi does."""
    if len(statement.arguments) > len(procedure.arguments):
        raise InputError(
            f"CALL {statement.name} takes {len(procedure.arguments)} arguments, found {len(statement.arguments)}"
        )
    given = dict(zip((each.name for each in procedure.arguments), statement.arguments, strict=False))
    given |= dict(statement.named)
    found = {}
    for argument in procedure.arguments:
        value = given.get(argument.name, argument.default)
        if value is _REQUIRED or (value is None and argument.default is _REQUIRED):
            raise InputError(f"CALL {statement.name}: argument {argument.name} is required", option=argument.name)
        if (
            argument.name in given
            and value is not None
            and (not isinstance(value, argument.kind) or (argument.kind is int and isinstance(value, bool)))
        ):
            raise InputError(
                f"CALL {statement.name}: argument {argument.name} is {value!r}",
                option=argument.name,
                found=type(value).__name__,
                expected=argument.kind.__name__,
            )
        found[argument.name] = value
    return found


# -- commits


def _writes(table: HudiTable, limit: int) -> list[tuple[Instant, CommitMetadata]]:
    """The newest completed writes, newest first."""
    instants = table.timeline.data().completed().instants
    return [
        (instant, table.commit_metadata(instant)) for instant in reversed(instants[-limit:] if limit >= 0 else instants)
    ]


def _one(context: Context, table: HudiTable) -> tuple[Instant, CommitMetadata]:
    time = str(context["instant_time"])
    for instant in table.timeline.data().completed().instants:
        if instant.requested_time == time:
            return instant, table.commit_metadata(instant)
    raise InputError(f"table {table.config.name}: commit {time} is not on the active timeline", instant=time)


def _completed(table: HudiTable) -> dict[InstantTime, CompletionTime]:
    return completion_times(table.storage, table.timeline, table.config.timezone)


def _time(times: Mapping[InstantTime, CompletionTime], instant: Instant) -> str:
    return str(times.get(instant.requested_time, instant.requested_time))


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


def _show_commits(context: Context) -> list[list[object]]:
    table = context.target.hudi
    times = _completed(table)
    rows: list[list[object]] = []
    for instant, metadata in _writes(table, context["limit"]):
        rows.append(
            [instant.requested_time, _time(times, instant), instant.action.value, *_totals(metadata.stats).values()]
        )
    return rows


def _show_commits_metadata(context: Context) -> list[list[object]]:
    table = context.target.hudi
    times = _completed(table)
    return [
        [
            instant.requested_time,
            _time(times, instant),
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
        for instant, metadata in _writes(table, context["limit"])
        for stat in metadata.stats
    ]


def _limited(context: Context, rows: list[list[object]]) -> list[list[object]]:
    return rows[: context["limit"]] if context["limit"] >= 0 else rows


def _show_commit_files(context: Context) -> list[list[object]]:
    table = context.target.hudi
    instant, metadata = _one(context, table)
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
    return _limited(context, rows)


def _show_commit_partitions(context: Context) -> list[list[object]]:
    table = context.target.hudi
    instant, metadata = _one(context, table)
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
    return _limited(context, rows)


def _show_commit_write_stats(context: Context) -> list[list[object]]:
    instant, metadata = _one(context, context.target.hudi)
    total = _totals(metadata.stats)
    average = -(-total["bytes"] // total["written"]) if total["written"] else 0
    return [[instant.action.value, total["bytes"], total["written"], average]]


def _show_commit_extra_metadata(context: Context) -> list[list[object]]:
    table = context.target.hudi
    if context["instant_time"] is None:
        last = table.timeline.data().completed().last()
        found = [] if last is None else [(last, table.commit_metadata(last))]
    else:
        found = [_one(context, table)]
    rows: list[list[object]] = [
        [instant.requested_time, instant.action.value, key, value]
        for instant, metadata in found
        for key, value in metadata.extra_metadata.items()
        if context["metadata_key"] in (None, key)
    ]
    return _limited(context, rows)


# -- savepoints and rollbacks


def _show_savepoints(context: Context) -> list[list[object]]:
    return [[str(time)] for time in sorted(context.target.hudi.savepoints(), reverse=True)]


def _create_savepoint(context: Context) -> list[list[object]]:
    target: Any = context.target
    target.savepoint(context["commit_time"] or None, user=context["user"], comments=context["comments"])
    return [[True]]


def _delete_savepoint(context: Context) -> list[list[object]]:
    target: Any = context.target
    target.delete_savepoint(_savepoint(context))
    return [[True]]


def _rollback_to_savepoint(context: Context) -> list[list[object]]:
    target: Any = context.target
    target.restore(_savepoint(context))
    return [[True]]


def _savepoint(context: Context) -> str:
    """The one that is named, else the newest."""
    if context["instant_time"]:
        return str(context["instant_time"])
    found = sorted(context.target.hudi.savepoints())
    if not found:
        raise InputError(f"table {context.target.name} has no savepoint")
    return str(found[-1])


def _rollback_to_instant(context: Context) -> list[list[object]]:
    target: Any = context.target
    target.rollback(str(context["instant_time"]))
    return [[True]]


# -- services


def _compactions(table: HudiTable, limit: int) -> list[list[object]]:
    """Pending and completed ones, newest first."""
    rows: list[list[object]] = []
    for instant in reversed(table.timeline.instants):
        if instant.action is Action.COMPACTION:
            plan = table.plan(instant)
            rows.append([instant.requested_time, len(getattr(plan, "operations", ())), instant.state.name])
        elif instant.action is Action.COMMIT and table.config.is_mor and instant.is_completed:
            metadata = table.commit_metadata(instant)
            if metadata.operation_type is not None and metadata.operation_type.value == "COMPACT":
                rows.append([instant.requested_time, len(metadata.stats), "COMPLETED"])
    return rows[:limit]


def _show_compaction(context: Context) -> list[list[object]]:
    return _compactions(context.target.hudi, context["limit"])


def _run_compaction(context: Context) -> list[list[object]]:
    operation, target = str(context["op"]).lower(), context.target
    service: Any = target
    if operation == "schedule":
        done = service.compact(schedule=True, **context.settings.hoodie)
    elif operation in ("run", "execute"):
        done = service.compact(execute=str(context["timestamp"]) if context["timestamp"] else True)
    elif operation == "scheduleandexecute":
        done = service.compact(**context.settings.hoodie)
    else:
        raise InputError(
            f"CALL run_compaction: op is {operation!r}",
            found=operation,
            expected="schedule, run, execute, scheduleAndExecute",
        )
    times = {each.instant for each in done if each.instant is not None}
    return [row for row in _compactions(target.hudi, len(target.hudi.timeline)) if row[0] in times]


def _drop_partition(context: Context) -> list[list[object]]:
    context.target.drop_partitions(str(context["partition"]).split(","), context.settings.hoodie)
    return [["Success"]]


def _truncate(context: Context) -> list[list[object]]:
    target = context.target
    if context["partitions"]:
        target.drop_partitions(str(context["partitions"]).split(","), context.settings.hoodie)
        return [["SUCCESS", "0"]]
    truncate(Truncate(Name(tuple(target.name.split(".")))), context.scope, context.settings)
    return [["SUCCESS", "0"]]


def _hive_sync(context: Context) -> list[list[object]]:
    context.target.sync()
    return [["Hive Sync Success"]]


def _show_timeline(context: Context) -> list[list[object]]:
    if context["showArchived"] or context["filter"] or context["startTime"] or context["endTime"]:
        raise UnsupportedError(
            "CALL show_timeline with showArchived, filter, startTime or endTime is not supported", hint="skep timeline"
        )
    table = context.target.hudi
    times = _completed(table)
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


_TABLE: Final = Argument("table")
_LIMIT: Final = Argument("limit", int, 10)
_COMMIT: Final = (("commit_time", _TEXT), ("state_transition_time", _TEXT), ("action", _TEXT))
_COMPACTION: Final = (("timestamp", _TEXT), ("operation_size", _INT), ("state", _TEXT))


def _columns(kind: pa.DataType, names: str) -> tuple[Column, ...]:
    return tuple((name, kind) for name in names.split())


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "show_commits": Procedure(
        (_TABLE, _LIMIT),
        (
            *_COMMIT,
            *_columns(
                _LONG,
                "total_bytes_written total_files_added total_files_updated total_partitions_written"
                " total_records_written total_update_records_written total_errors",
            ),
        ),
        _show_commits,
    ),
    "show_commits_metadata": Procedure(
        (_TABLE, _LIMIT),
        (
            *_COMMIT,
            *_columns(_TEXT, "partition file_id previous_commit"),
            *_columns(
                _LONG,
                "num_writes num_inserts num_deletes num_update_writes total_errors total_log_blocks"
                " total_corrupt_log_blocks total_rollback_blocks total_log_records total_updated_records_compacted"
                " total_bytes_written",
            ),
        ),
        _show_commits_metadata,
    ),
    "show_commit_files": Procedure(
        (_TABLE, _LIMIT, Argument("instant_time")),
        (
            *_columns(_TEXT, "action partition_path file_id previous_commit"),
            *_columns(_LONG, "total_records_updated total_records_written total_bytes_written total_errors file_size"),
        ),
        _show_commit_files,
    ),
    "show_commit_partitions": Procedure(
        (_TABLE, _LIMIT, Argument("instant_time")),
        (
            *_columns(_TEXT, "action partition_path"),
            *_columns(
                _LONG,
                "total_files_added total_files_updated total_records_inserted total_records_updated"
                " total_bytes_written total_errors",
            ),
        ),
        _show_commit_partitions,
    ),
    "show_commit_write_stats": Procedure(
        (_TABLE, _LIMIT, Argument("instant_time")),
        (("action", _TEXT), *_columns(_LONG, "total_bytes_written total_records_written avg_record_size")),
        _show_commit_write_stats,
    ),
    "show_commit_extra_metadata": Procedure(
        (_TABLE, Argument("limit", int, 100), Argument("instant_time", str, None), Argument("metadata_key", str, None)),
        _columns(_TEXT, "instant_time action metadata_key metadata_value"),
        _show_commit_extra_metadata,
    ),
    "show_timeline": Procedure(
        (
            _TABLE,
            Argument("path", str, None),
            Argument("limit", int, 20),
            Argument("showArchived", bool, False),
            Argument("filter", str, None),
            Argument("startTime", str, None),
            Argument("endTime", str, None),
        ),
        _columns(
            _TEXT,
            "instant_time action state requested_time inflight_time completed_time timeline_type rollback_info",
        ),
        _show_timeline,
    ),
    "show_savepoints": Procedure((_TABLE,), (("savepoint_time", _TEXT),), _show_savepoints),
    "create_savepoint": Procedure(
        (_TABLE, Argument("commit_time", str, None), Argument("user", str, ""), Argument("comments", str, "")),
        (("create_savepoint_result", _BOOL),),
        _create_savepoint,
    ),
    "delete_savepoint": Procedure(
        (_TABLE, Argument("instant_time", str, None)), (("delete_savepoint_result", _BOOL),), _delete_savepoint
    ),
    "rollback_to_savepoint": Procedure(
        (_TABLE, Argument("instant_time", str, None)), (("rollback_savepoint_result", _BOOL),), _rollback_to_savepoint
    ),
    "rollback_to_instant": Procedure(
        (_TABLE, Argument("instant_time")), (("rollback_result", _BOOL),), _rollback_to_instant
    ),
    "run_compaction": Procedure(
        (Argument("op"), _TABLE, Argument("path", str, None), Argument("timestamp", int, None)),
        _COMPACTION,
        _run_compaction,
    ),
    "show_compaction": Procedure(
        (_TABLE, Argument("path", str, None), Argument("limit", int, 20)), _COMPACTION, _show_compaction
    ),
    "drop_partition": Procedure((_TABLE, Argument("partition")), (("result", _TEXT),), _drop_partition),
    "truncate_table": Procedure(
        (_TABLE, Argument("partitions", str, None)), _columns(_TEXT, "result time_cost"), _truncate
    ),
    "hive_sync": Procedure((_TABLE,), (("result", _TEXT),), _hive_sync),
}

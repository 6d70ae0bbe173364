"""Procedures about savepoints and rollbacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from skep_format.errors import InputError
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import RollbackMetadata
from skep_sql.procedures.contract import (
    BOOL,
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
from skep_table.table import HudiTable


def _show_savepoints(context: Context) -> Rows:
    return [[str(time)] for time in sorted(context.target.hudi.savepoints(), reverse=True)]


def _create_savepoint(context: Context) -> Rows:
    target: Any = context.target
    target.savepoint(context["commit_time"] or None, user=context["user"], comments=context["comments"])
    return [[True]]


def _delete_savepoint(context: Context) -> Rows:
    target: Any = context.target
    target.delete_savepoint(_savepoint(context))
    return [[True]]


def _rollback_to_savepoint(context: Context) -> Rows:
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


def _rollback_to_instant(context: Context) -> Rows:
    target: Any = context.target
    target.rollback(str(context["instant_time"]))
    return [[True]]


def _rollbacks(table: HudiTable) -> Iterator[tuple[Instant, RollbackMetadata]]:
    """The completed ones, newest first."""
    for instant in reversed(table.timeline.completed().of(Action.ROLLBACK).instants):
        found = table.plan(instant)
        if isinstance(found, RollbackMetadata):
            yield instant, found


def _show_rollbacks(context: Context) -> Rows:
    rows = [
        [
            instant.requested_time,
            str(undone),
            found.total_files_deleted,
            found.time_taken_in_millis,
            len(found.partition_metadata),
        ]
        for instant, found in _rollbacks(context.target.hudi)
        for undone in found.commits_rollback
    ]
    return context.limited(rows)


def _show_rollback_detail(context: Context) -> Rows:
    table, time = context.target.hudi, str(context["instant_time"])
    details = next((found for instant, found in _rollbacks(table) if instant.requested_time == time), None)
    if details is None:
        raise InputError(f"table {table.config.name}: there is no rollback {time}", instant=time)
    rows = [
        [time, ",".join(details.commits_rollback), each.partition_path, file, deleted]
        for each in details.partition_metadata.values()
        for files, deleted in ((each.success_delete_files, True), (each.failed_delete_files, False))
        for file in files
    ]
    return context.limited(rows)


_INSTANT: Final = Argument("instant_time", str, None)

PROCEDURES: Final[Mapping[str, Procedure]] = {
    "show_savepoints": Procedure((TABLE, PATH), columns(TEXT, "savepoint_time"), _show_savepoints),
    "create_savepoint": Procedure(
        (TABLE, Argument("commit_time", str, None), Argument("user", str, ""), Argument("comments", str, ""), PATH),
        columns(BOOL, "create_savepoint_result"),
        _create_savepoint,
    ),
    "delete_savepoint": Procedure((TABLE, _INSTANT, PATH), columns(BOOL, "delete_savepoint_result"), _delete_savepoint),
    "rollback_to_savepoint": Procedure(
        (TABLE, _INSTANT, PATH), columns(BOOL, "rollback_savepoint_result"), _rollback_to_savepoint
    ),
    "rollback_to_instant": Procedure(
        (TABLE, Argument("instant_time")), columns(BOOL, "rollback_result"), _rollback_to_instant
    ),
    "show_rollbacks": Procedure(
        (TABLE, LIMIT),
        (
            *columns(TEXT, "instant rollback_instant"),
            *columns(INT, "total_files_deleted"),
            *columns(LONG, "time_taken_in_millis"),
            *columns(INT, "total_partitions"),
        ),
        _show_rollbacks,
    ),
    "show_rollback_detail": Procedure(
        (TABLE, LIMIT, Argument("instant_time")),
        (*columns(TEXT, "instant rollback_instant partition deleted_file"), *columns(BOOL, "succeeded")),
        _show_rollback_detail,
    ),
}

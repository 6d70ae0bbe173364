"""Procedures about savepoints and rollbacks."""

from __future__ import annotations

from skep_format.errors import InputError
from skep_format.timeline.instant import Action
from skep_format.timeline.plans import RollbackMetadata
from skep_sql.procedures.contract import Context, Rows, completed_plans, procedure


@procedure("show_savepoints(table, path!) -> savepoint_time")
def _show_savepoints(context: Context) -> Rows:
    return [[str(time)] for time in sorted(context.table.savepoints(), reverse=True)]


@procedure("create_savepoint(table, commit_time?, user='', comments='', path!) -> create_savepoint_result:boolean")
def _create_savepoint(context: Context) -> None:
    context.services.savepoint(context["commit_time"] or None, user=context["user"], comments=context["comments"])


@procedure("delete_savepoint(table, instant_time?, path!) -> delete_savepoint_result:boolean")
def _delete_savepoint(context: Context) -> None:
    context.services.delete_savepoint(_savepoint(context))


@procedure("rollback_to_savepoint(table, instant_time?, path!) -> rollback_savepoint_result:boolean")
def _rollback_to_savepoint(context: Context) -> Rows:
    context.services.restore(_savepoint(context))
    return [[True]]


def _savepoint(context: Context) -> str:
    """The one that is named, else the newest."""
    if context["instant_time"]:
        return str(context["instant_time"])
    found = sorted(context.table.savepoints())
    if not found:
        raise InputError(f"table {context.target.name} has no savepoint")
    return str(found[-1])


@procedure("rollback_to_instant(table, instant_time) -> rollback_result:boolean")
def _rollback_to_instant(context: Context) -> None:
    context.services.rollback(str(context["instant_time"]))


@procedure("""show_rollbacks(table, limit=10) -> instant, rollback_instant, total_files_deleted:int,
    time_taken_in_millis:long, total_partitions:int""")
def _show_rollbacks(context: Context) -> Rows:
    rows: list[list[object]] = []
    for instant, found in completed_plans(context.table, RollbackMetadata, Action.ROLLBACK):
        counts = found.total_files_deleted, found.time_taken_in_millis, len(found.partition_metadata)
        rows += ([instant.requested_time, str(undone), *counts] for undone in found.commits_rollback)
    return context.limited(rows)


@procedure("""show_rollback_detail(table, limit=10, instant_time) -> instant, rollback_instant, partition,
    deleted_file, succeeded:boolean""")
def _show_rollback_detail(context: Context) -> Rows:
    table, time = context.table, str(context["instant_time"])
    rollbacks = completed_plans(table, RollbackMetadata, Action.ROLLBACK)
    details = next((found for instant, found in rollbacks if instant.requested_time == time), None)
    if details is None:
        raise table.error(InputError, f"there is no rollback {time}", instant=time)
    rows = [
        [time, ",".join(details.commits_rollback), each.partition_path, file, deleted]
        for each in details.partition_metadata.values()
        for files, deleted in ((each.success_delete_files, True), (each.failed_delete_files, False))
        for file in files
    ]
    return context.limited(rows)

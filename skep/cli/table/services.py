"""`skep clean`, `archive`, `rollback`, `savepoint` and `restore`: table services that need no JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given, ManyGiven, OptionalTarget, TableTarget, running
from skep.cli.table import rewrite
from skep.cli.table.rewrite import ExecuteOption, InstantOption, PlanOption, Row, ScheduleOption
from skep_format.errors import InputError
from skep_format.instant_time import InstantTime

if TYPE_CHECKING:
    from skep.handles.table import Table
    from skep.services.modes import Mode
    from skep_format.timeline.instant import Instant
    from skep_format.timeline.plans import CleanerPlan, RollbackMetadata, RollbackPlan
    from skep_table.table import HudiTable

InstantArgument = Annotated[str, typer.Argument(metavar="INSTANT", help="The requested time of the instant.")]

_CLEAN_COLUMNS = ("table", "instant", "state", "partition", "file")
_INSTANT_COLUMNS = ("table", "requested_time", "action", "state")
_FILE_COLUMNS = ("instant", "rolled_back", "partition", "what", "file")
_SAVEPOINT_COLUMNS = ("savepoint", "partition", "file")


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    rewrite.register(app)
    app.command("clean")(clean)
    app.command("archive")(archive)
    app.command("rollback")(rollback)
    app.command("savepoint")(savepoint)
    app.command("restore")(restore)


def clean(
    table: OptionalTarget = None,
    plan: PlanOption = False,
    schedule: ScheduleOption = False,
    execute: ExecuteOption = False,
    instant: InstantOption = None,
    *,
    given: ManyGiven,
) -> None:
    """Delete the files that no read within the retention needs.

    hoodie.cleaner.policy and hoodie.cleaner.commits.retained (hours.retained, fileversions.retained) define what stays.
    """
    with given.opened(table) as tables:
        mode = rewrite.mode_of(plan=plan, schedule=schedule, execute=execute, instant=instant)

        def one(table: Table) -> Iterator[Row]:
            with running(table) as services:
                found = _clean(services.on(table.hudi), mode)
            return ({"table": table.name, **row} for row in found)

        tables.print_each(one, given.output, _CLEAN_COLUMNS)


def _clean(table: HudiTable, mode: Mode) -> list[Row]:
    from skep.services.modes import cleaned
    from skep_format.timeline.plans import CleanerPlan
    from skep_table.services.cleaning import clean as service

    if mode.plan:
        return _planned(None, "planned", service.plan_clean(table))
    if mode.schedule:
        instant = service.schedule_clean(table)
        written = table.reload().requested_plan(CleanerPlan, instant) if instant else None
        return _planned(instant.requested_time, "requested", written) if instant and written else []
    return [
        {"instant": each.instant.requested_time, "state": "completed", **_place(file)}
        for each in cleaned(table, mode)
        for file in each.deleted
    ]


def _planned(instant: str | None, state: str, plan: CleanerPlan) -> list[Row]:
    from skep_table.services.preview import clean_rows

    return [{"instant": instant, "state": state, **row} for row in clean_rows(plan)]


def archive(table: OptionalTarget = None, plan: PlanOption = False, *, given: ManyGiven) -> None:
    """Move old instants from the active timeline into the archive.

    More than hoodie.keep.max.commits commits are archived down to hoodie.keep.min.commits.
    """
    with given.opened(table) as tables:
        from skep_table.services.cleaning.archive import archive as run
        from skep_table.services.cleaning.archive_plan import plan_archive

        def one(table: Table) -> Iterator[Row]:
            with running(table) as services:
                hudi = services.on(table.hudi)
                found = plan_archive(hudi) if plan else run(hudi)
            if found.held_back:
                typer.echo(f"{table.name}: no more is archived: {found.held_back}", err=True)
            state = "planned" if plan else "archived"
            return ({"table": table.name, **_instant(each), "state": state} for each in found.instants)

        tables.print_each(one, given.output, _INSTANT_COLUMNS)


def _instant(instant: Instant) -> dict[str, Any]:
    return {"requested_time": instant.requested_time, "action": instant.action.value}


def rollback(table: TableTarget, instant: InstantArgument, plan: PlanOption = False, *, given: Given) -> None:
    """Roll back a pending write, or the newest completed one."""
    with given.opened(table) as one:
        from skep_table.services.undo.rollback import preview_rollback, roll_back_instant

        time = InstantTime(instant)
        if plan:
            rows = _to_roll_back(instant, preview_rollback(one.services().on(one.hudi), time))
        else:
            with running(one) as services:
                rows = _rolled_back(roll_back_instant(services.on(one.hudi), time))
            one.sync_changed()
        given.print(rows, _FILE_COLUMNS)


def _to_roll_back(instant: str, plan: RollbackPlan) -> list[Row]:
    return [
        {"rolled_back": instant, "partition": request.partition_path, "what": what, "file": _name(uri)}
        for request in plan.rollback_requests
        for what, uris in (("delete", request.files_to_be_deleted), ("command", request.log_blocks_to_be_deleted or {}))
        for uri in uris
    ]


def _rolled_back(*rollbacks: RollbackMetadata | None) -> list[Row]:
    return [
        {
            "instant": rollback.start_rollback_time,
            "rolled_back": rollback.commits_rollback[0],
            "partition": partition,
            "what": what,
            "file": _name(uri),
        }
        for rollback in rollbacks
        if rollback is not None
        for partition, found in rollback.partition_metadata.items()
        for what, uris in (("deleted", found.success_delete_files), ("command", found.rollback_log_files or {}))
        for uri in uris
    ]


def savepoint(
    table: TableTarget,
    instant: Annotated[str | None, typer.Argument(metavar="[INSTANT]", help="[default: the last commit]")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete this savepoint instead.")] = False,
    user: Annotated[str, typer.Option(help="Who makes it.")] = "",
    comments: Annotated[str, typer.Option(help="What for.")] = "",
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Keep a commit's files from being cleaned, so that the table can be restored to it."""
    with given.opened(table) as one:
        from skep_table.services.undo import savepoint as service

        _only_one(plan=plan, delete=delete)
        hudi = one.services().on(one.hudi)
        if delete:
            if instant is None:
                raise InputError("--delete needs the savepoint's INSTANT", option="--delete")
            kept = hudi.savepoints().get(InstantTime(instant))
            service.delete_savepoint(hudi, InstantTime(instant))
            partitions: Mapping[str, Any] = kept.partition_metadata if kept else {}
        else:
            time = service.check_savepoint(hudi, InstantTime(instant) if instant else None).requested_time
            if plan:
                partitions = service.plan_savepoint(hudi, time).partition_metadata
            else:
                partitions = service.create_savepoint(hudi, time, user=user, comments=comments).partition_metadata
            instant = time
        rows = [
            {"savepoint": instant, "partition": partition, "file": name}
            for partition, found in partitions.items()
            for name in found.savepoint_data_file
        ]
        given.print(rows, _SAVEPOINT_COLUMNS)


def restore(
    table: TableTarget,
    savepoint: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The savepoint's instant.")],
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Roll back every write after a savepoint, newest first."""
    with given.opened(table) as one:
        from skep_table.services.undo.restore import plan_restore
        from skep_table.services.undo.restore import restore as run

        if plan:
            found = plan_restore(one.hudi, InstantTime(savepoint)).instants_to_rollback
            planned = [{"requested_time": i.commit_time, "action": i.action, "state": "planned"} for i in found]
            given.print(planned, _INSTANT_COLUMNS)
            return
        with running(one) as services:
            restored = run(services.on(one.hudi), InstantTime(savepoint))
        one.sync_changed()
        rollbacks = restored.hoodie_restore_metadata.values() if restored else ()
        given.print(_rolled_back(*(each for found in rollbacks for each in found)), _FILE_COLUMNS)


def _only_one(**flags: bool) -> None:
    given = [f"--{name}" for name, flag in flags.items() if flag]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", option=given[0])


def _place(path: str) -> dict[str, str]:
    partition, _, name = path.rpartition("/")
    return {"partition": partition, "file": name}


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]

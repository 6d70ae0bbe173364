"""`skep clean`, `archive`, `rollback`, `savepoint` and `restore`: table services by the table's path, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.output import Output, OutputOption, print_rows, reported
from skep.cli.read import TablePath, settings_of
from skep_table.errors import InputError

if TYPE_CHECKING:
    from skep_table.commit.setting import CommitSetting
    from skep_table.table import HudiTable
    from skep_table.timeline.plans import RollbackMetadata, RollbackPlan

PlanOption = Annotated[bool, typer.Option("--plan", help="Print what would be done; change nothing.")]
ServiceSettings = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="A Hudi key of the service or a storage setting; repeatable."),
]
InstantArgument = Annotated[str, typer.Argument(metavar="INSTANT", help="The requested time of the instant.")]

_CLEAN_COLUMNS = ("instant", "state", "partition", "file")
_INSTANT_COLUMNS = ("requested_time", "action", "state")
_FILE_COLUMNS = ("instant", "rolled_back", "partition", "what", "file")
_SAVEPOINT_COLUMNS = ("savepoint", "partition", "file")


def register(app: typer.Typer) -> None:
    app.command("clean")(clean)
    app.command("archive")(archive)
    app.command("rollback")(rollback)
    app.command("savepoint")(savepoint)
    app.command("restore")(restore)


def clean(
    path: TablePath,
    plan: PlanOption = False,
    schedule: Annotated[bool, typer.Option("--schedule", help="Only write the plan onto the timeline.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Only carry out what is planned already.")] = False,
    option: ServiceSettings = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the files that no read within the retention needs.

    hoodie.cleaner.policy and hoodie.cleaner.commits.retained (hours.retained, fileversions.retained) say what stays.
    """
    with reported():
        from skep_table.services import clean as service
        from skep_table.timeline.plans import CleanerPlan

        _only_one(plan=plan, schedule=schedule, execute=execute)
        table, setting = _opened(path, option)
        if plan:
            found = service.plan_clean(table, setting)
            print_rows(_planned(None, "planned", found), output, _CLEAN_COLUMNS)
        elif schedule:
            instant = service.schedule_clean(table, setting)
            written = table.reload().requested_plan(CleanerPlan, instant) if instant else None
            rows = _planned(instant.requested_time, "requested", written) if instant and written else []
            print_rows(rows, output, _CLEAN_COLUMNS)
        else:
            done = service.execute_pending_cleans(table, setting) if execute else service.clean(table, setting)
            rows = [
                {"instant": each.instant.requested_time, "state": "completed", **_place(file)}
                for each in done
                for file in each.deleted
            ]
            print_rows(rows, output, _CLEAN_COLUMNS)


def _planned(instant: str | None, state: str, plan: Any) -> list[dict[str, Any]]:
    return [
        {"instant": instant, "state": state, "partition": partition, "file": file.file_path.rpartition("/")[2]}
        for partition, files in (plan.file_paths_to_be_deleted_per_partition or {}).items()
        for file in files
    ]


def archive(
    path: TablePath,
    plan: PlanOption = False,
    option: ServiceSettings = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move old instants from the active timeline into the archive.

    More than hoodie.keep.max.commits commits are archived down to hoodie.keep.min.commits.
    """
    with reported():
        from skep_table.services.archive import archive as run
        from skep_table.services.archive_plan import plan_archive

        table, setting = _opened(path, option)
        found = plan_archive(table, setting.options, setting.runner) if plan else run(table, setting)
        rows = [
            {
                "requested_time": instant.requested_time,
                "action": instant.action.value,
                "state": "planned" if plan else "archived",
            }
            for instant in found.instants
        ]
        print_rows(rows, output, _INSTANT_COLUMNS)
        if found.held_back:
            typer.echo(f"no more is archived: {found.held_back}", err=True)


def rollback(
    path: TablePath,
    instant: InstantArgument,
    plan: PlanOption = False,
    option: ServiceSettings = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take back a pending write, or the newest completed one."""
    with reported():
        from skep_table.services.rollback import preview_rollback, roll_back_instant

        table, setting = _opened(path, option)
        if plan:
            rows = _to_roll_back(instant, preview_rollback(table, instant, setting))
        else:
            rows = _rolled_back(roll_back_instant(table, instant, setting))
        print_rows(rows, output, _FILE_COLUMNS)


def _to_roll_back(instant: str, plan: RollbackPlan) -> list[dict[str, Any]]:
    return [
        {"rolled_back": instant, "partition": request.partition_path, "what": what, "file": _name(uri)}
        for request in plan.rollback_requests
        for what, uris in (("delete", request.files_to_be_deleted), ("command", request.log_blocks_to_be_deleted or {}))
        for uri in uris
    ]


def _rolled_back(*accounts: RollbackMetadata | None) -> list[dict[str, Any]]:
    return [
        {
            "instant": account.start_rollback_time,
            "rolled_back": account.commits_rollback[0],
            "partition": partition,
            "what": what,
            "file": _name(uri),
        }
        for account in accounts
        if account is not None
        for partition, found in account.partition_metadata.items()
        for what, uris in (("deleted", found.success_delete_files), ("command", found.rollback_log_files or {}))
        for uri in uris
    ]


def savepoint(
    path: TablePath,
    instant: Annotated[str | None, typer.Argument(metavar="[INSTANT]", help="[default: the last commit]")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete this savepoint instead.")] = False,
    user: Annotated[str, typer.Option(help="Who makes it.")] = "",
    comments: Annotated[str, typer.Option(help="What for.")] = "",
    plan: PlanOption = False,
    option: ServiceSettings = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Keep a commit's files from being cleaned, so that the table can be restored to it."""
    with reported():
        from skep_table.services import savepoint as service

        _only_one(plan=plan, delete=delete)
        table, setting = _opened(path, option)
        if delete:
            if instant is None:
                raise InputError("--delete needs the savepoint's INSTANT", option="--delete")
            kept = table.savepoints().get(instant)
            service.delete_savepoint(table, instant, setting)
            partitions: Mapping[str, Any] = kept.partition_metadata if kept else {}
        else:
            time = service.check_savepoint(table, instant).requested_time
            if plan:
                partitions = service.plan_savepoint(table, setting, time).partition_metadata
            else:
                account = service.create_savepoint(table, setting, time, user=user, comments=comments)
                partitions = account.partition_metadata
            instant = time
        rows = [
            {"savepoint": instant, "partition": partition, "file": name}
            for partition, found in partitions.items()
            for name in found.savepoint_data_file
        ]
        print_rows(rows, output, _SAVEPOINT_COLUMNS)


def restore(
    path: TablePath,
    savepoint: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The savepoint's instant.")],
    plan: PlanOption = False,
    option: ServiceSettings = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take back every write after a savepoint, newest first."""
    with reported():
        from skep_table.services.restore import plan_restore
        from skep_table.services.restore import restore as run

        table, setting = _opened(path, option)
        if plan:
            found = plan_restore(table, savepoint).instants_to_rollback
            planned = [{"requested_time": i.commit_time, "action": i.action, "state": "planned"} for i in found]
            print_rows(planned, output, _INSTANT_COLUMNS)
            return
        account = run(table, savepoint, setting)
        accounts = account.hoodie_restore_metadata.values() if account else ()
        print_rows(_rolled_back(*(each for found in accounts for each in found)), output, _FILE_COLUMNS)


def _opened(path: str, pairs: Iterable[str] | None) -> tuple[HudiTable, CommitSetting]:
    from skep.locking import lock_by_path
    from skep_table.commit.setting import CommitSetting
    from skep_table.options import Options
    from skep_table.table import HudiTable

    settings = Options(settings_of(list(pairs or ())))
    settings.check()
    table = HudiTable.open(path, settings)
    return table, CommitSetting(lock=lock_by_path(table, settings, purpose="service"), options=settings)


def _only_one(**flags: bool) -> None:
    given = [f"--{name}" for name, flag in flags.items() if flag]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", option=given[0])


def _place(path: str) -> dict[str, str]:
    partition, _, name = path.rpartition("/")
    return {"partition": partition, "file": name}


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]

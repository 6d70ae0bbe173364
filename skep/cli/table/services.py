"""The table services as commands: each calls the method of its name, for one table or for all of the metastore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skep.cli.opened import Given, ManyGiven, OnSpark, OptionalTarget, TableTarget
from skep.cli.output import FAILED
from skep_format.errors import InputError
from skep_format.instant_time import InstantTime

if TYPE_CHECKING:
    from skep.handles.table import Table
    from skep_format.timeline.plans import RollbackMetadata, RollbackPlan, SavepointMetadata
    from skep_table.services.done import Done
    from skep_table.upgrade import VersionPlan

PlanOption = Annotated[bool, typer.Option("--plan", help="Print what would be done; change nothing.")]
InstantArgument = Annotated[str, typer.Argument(metavar="INSTANT", help="The requested time of the instant.")]
Row = dict[str, Any]
FileRow = tuple[str | None, str, str, str, str]

DONE_COLUMNS = ("service", "instant", "state", "what")
_COMPACT_COLUMNS = ("partition", "file_id", "base_instant", "log_files", "log_bytes")
_CLUSTER_COLUMNS = ("group", "partition", "file_id", "log_files", "becomes")
_INSTANT_COLUMNS = ("requested_time", "action", "state")
_FILE_COLUMNS = ("instant", "rolled_back", "partition", "what", "file")
_VERSION_COLUMNS = ("before", "after", "step", "what")


@dataclass(frozen=True, slots=True)
class ServiceMode:
    """How much of a service a command does, see `skep_table.services.service.Mode`."""

    plan: PlanOption = False
    schedule: Annotated[bool, typer.Option("--schedule", help="Only write the plan onto the timeline.")] = False
    execute: Annotated[bool, typer.Option("--execute", help="Only execute pending plans.")] = False
    instant: Annotated[
        str | None, typer.Option("--instant", metavar="INSTANT", help="With --execute: only the plan of this instant.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """As methods take them. InputError for flags that exclude each other."""
        from skep_table.services.service import Mode

        if self.instant is not None and not self.execute:
            raise InputError("--instant goes with --execute", option="--instant")
        found: dict[str, Any] = {
            "plan": self.plan,
            "schedule": self.schedule,
            "execute": self.instant or self.execute,
        }
        Mode.of(**found)
        return found


def compact(
    table: OptionalTarget = None,
    logs: Annotated[bool, typer.Option("--logs", help="Only merge the log files of each slice into one.")] = False,
    *,
    mode: ServiceMode,
    spark: OnSpark = False,
    given: ManyGiven,
) -> None:
    """Fold the log files of a merge-on-read table into base files.

    hoodie.compaction.strategy selects the file slices.
    """
    arguments = mode.arguments()

    def one(found: Table) -> Iterable[Row]:
        if given.every and not found.hudi.config.is_mor:
            return []
        return _rows(found.compact(logs=logs, **arguments), mode.plan)

    given.print_each(table, one, _COMPACT_COLUMNS if mode.plan else DONE_COLUMNS, spark=spark and not mode.plan)


def cluster(
    table: OptionalTarget = None,
    sort_by: Annotated[str | None, typer.Option(metavar="A,B,…", help="Order rows by these columns.")] = None,
    curve: Annotated[str | None, typer.Option(metavar="linear|z-order|hilbert", help="How columns count.")] = None,
    partitions: Annotated[str | None, typer.Option(metavar="P,Q,…", help="Only these partition paths.")] = None,
    *,
    mode: ServiceMode,
    spark: OnSpark = False,
    given: ManyGiven,
) -> None:
    """Make large files of small ones, with rows that are queried together stored together.

    hoodie.clustering.plan.strategy.… define which files are small, how large they become, and which partitions are
    considered.
    """
    arguments = {"sort_by": sort_by, "curve": curve, "partitions": partitions, **mode.arguments()}
    columns = _CLUSTER_COLUMNS if mode.plan else DONE_COLUMNS
    given.print_each(
        table, lambda one: _rows(one.cluster(**arguments), mode.plan), columns, spark=spark and not mode.plan
    )


def expire(
    table: OptionalTarget = None,
    days: Annotated[int | None, typer.Option(help="Drop partitions not written to for so many days.", min=1)] = None,
    plan: PlanOption = False,
    *,
    given: ManyGiven,
) -> None:
    """Drop expired partitions; the next clean deletes their files."""
    columns = ("partition",) if plan else DONE_COLUMNS
    given.print_each(table, lambda one: _rows(one.expire(days, plan=plan), plan), columns)


def maintain(
    table: OptionalTarget = None, plan: PlanOption = False, spark: OnSpark = False, *, given: ManyGiven
) -> None:
    """Run what is due: pending plans, compaction, clustering and expiry where configured, clean, archive.

    Services that other processes are running are postponed. One that fails does not keep the others from running.
    """
    failed = []

    def one(found: Table) -> Iterator[Row]:
        from skep_table.services.automatic import maintain as steps_of

        if plan:
            return _rows(found.maintain(plan=True))
        services = found.services()
        hudi = services.on(found.hudi)
        done = services.run(hudi, steps_of(hudi))
        for each in done:
            if each.error is not None:
                failed.append(each)
                typer.echo(f"error: {found.name}: {each.service}: {each.error}", err=True)
        return _rows(each for each in done if each.error is None)

    given.print_each(table, one, DONE_COLUMNS, spark=spark and not plan)
    if failed:
        raise typer.Exit(FAILED)


def clean(table: OptionalTarget = None, *, mode: ServiceMode, given: ManyGiven) -> None:
    """Delete the files that no read within the retention needs.

    hoodie.cleaner.policy and hoodie.cleaner.commits.retained (hours.retained, fileversions.retained) define what stays.
    """
    arguments = mode.arguments()

    def one(found: Table) -> Iterator[Row]:
        done = found.clean(**arguments)
        return ({"instant": each.instant, "state": each.state, **row} for each in done for row in each.details)

    given.print_each(table, one, ("instant", "state", "partition", "file"))


def archive(table: OptionalTarget = None, plan: PlanOption = False, *, given: ManyGiven) -> None:
    """Move old instants from the active timeline into the archive.

    More than hoodie.keep.max.commits commits are archived down to hoodie.keep.min.commits.
    """

    def one(found: Table) -> Iterator[Row]:
        moved = found.archive(plan=plan)
        if moved.held_back:
            typer.echo(f"{found.name}: no more is archived: {moved.held_back}", err=True)
        return (_instant(each.requested_time, each.action.value, plan, "archived") for each in moved.instants)

    given.print_each(table, one, _INSTANT_COLUMNS)


def rollback(table: TableTarget, instant: InstantArgument, plan: PlanOption = False, *, given: Given) -> None:
    """Roll back a pending write, or the newest completed one."""
    with given.running(table) as one:
        rows = _to_roll_back(instant, one.rollback(instant, dry_run=True)) if plan else _undone(one.rollback(instant))
    given.print(rows, _FILE_COLUMNS)


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
    if delete and (plan or instant is None):
        raise InputError("--delete takes the savepoint's INSTANT, and no --plan", option="--delete")
    with given.opened(table) as one:
        from skep_table.services.undo.rollback import check_savepoint, plan_savepoint

        time = InstantTime(instant) if instant else None
        kept: SavepointMetadata | None
        if delete and time is not None:
            kept = one.savepoints().get(time)
            one.delete_savepoint(time)
        else:
            hudi = one.services().on(one.hudi)
            time = check_savepoint(hudi, time).requested_time
            kept = plan_savepoint(hudi, time) if plan else one.savepoint(time, user=user, comments=comments)
    rows = [
        (time, partition, name)
        for partition, found in (kept.partition_metadata if kept else {}).items()
        for name in found.savepoint_data_file
    ]
    given.print(rows, ("savepoint", "partition", "file"))


def restore(
    table: TableTarget,
    savepoint: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The savepoint's instant.")],
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Roll back every write after a savepoint, newest first."""
    with given.running(table) as one:
        if plan:
            planned = one.restore(savepoint, dry_run=True).instants_to_rollback
            given.print([_instant(each.commit_time, each.action, plan) for each in planned], _INSTANT_COLUMNS)
            return
        restored = one.restore(savepoint)
    undone = restored.hoodie_restore_metadata.values() if restored else ()
    given.print(_undone(*(each for found in undone for each in found if each is not None)), _FILE_COLUMNS)


def upgrade(
    table: OptionalTarget = None,
    to: Annotated[int, typer.Option("--to", metavar="6|8|9", help="The version that the table gets.")] = 9,
    plan: PlanOption = False,
    *,
    given: ManyGiven,
) -> None:
    """Bring a table to a newer version: 6 as Hudi 0.14 and 0.15 write it, 8 as 1.0 does, 9 as 1.1 and later do.

    What the settings of a table before version 6 lack is stated by options, such as
    hoodie.datasource.write.recordkey.field. Of an interrupted change of version it deletes what is left.
    """
    given.print_each(table, lambda one: _steps(one.upgrade(to, plan=plan), plan), _VERSION_COLUMNS)


def downgrade(
    table: TableTarget,
    to: Annotated[int, typer.Option("--to", metavar="6|8", help="The version that the table gets.")],
    plan: PlanOption = False,
    *,
    given: Given,
) -> None:
    """Bring a table to an older version: 6 for readers and writers of Hudi 0.14 and 0.15, 8 for those of 1.0.

    The plan names what is lost.
    """
    given.print_each(table, lambda one: _steps(one.downgrade(to, plan=plan), plan), _VERSION_COLUMNS)


def _rows(done: Iterable[Done], details: bool = False) -> Iterator[Row]:
    if details:
        return (dict(row) for each in done for row in each.details)
    return ({name: getattr(each, name) for name in DONE_COLUMNS} for each in done)


def _instant(time: str, action: str, plan: bool, done: str = "") -> Row:
    return {"requested_time": time, "action": action, "state": "planned" if plan else done}


def _to_roll_back(instant: str, plan: RollbackPlan) -> list[FileRow]:
    return [
        (None, instant, request.partition_path, what, uri.rpartition("/")[2])
        for request in plan.rollback_requests
        for what, uris in (("delete", request.files_to_be_deleted), ("command", request.log_blocks_to_be_deleted or {}))
        for uri in uris
    ]


def _undone(*rollbacks: RollbackMetadata) -> list[FileRow]:
    return [
        (rollback.start_rollback_time, rollback.commits_rollback[0], partition, what, uri.rpartition("/")[2])
        for rollback in rollbacks
        for partition, found in rollback.partition_metadata.items()
        for what, uris in (("deleted", found.success_delete_files), ("command", found.rollback_log_files or {}))
        for uri in uris
    ]


def _steps(found: VersionPlan, plan: bool) -> list[Row]:
    """The steps of a plan; of a change that was made one row, and none where there was nothing to do."""
    steps = [(each.step, each.what) for each in found.steps]
    if steps and not plan:
        is_same = found.before == found.after
        made = "the files of an interrupted change are deleted" if is_same else f"the table has version {found.after}"
        steps = [("completed", made)]
    return [{"before": found.before, "after": found.after, "step": step, "what": what} for step, what in steps]

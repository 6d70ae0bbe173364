"""The table services as methods of a table: each runs one service and returns what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from skep.base.arguments import checks_arguments
from skep.base.keywords import takes_options
from skep.base.specs import Text
from skep.base.times import Moment, instant_of
from skep.services.handle import TableHandle
from skep_format.errors import InputError
from skep_format.instant_time import InstantTime
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_format.timeline.plans import (
        RestoreMetadata,
        RestorePlan,
        RollbackMetadata,
        RollbackPlan,
        SavepointMetadata,
    )
    from skep_table.services.cleaning.archive import ArchivePlan
    from skep_table.services.done import Done
    from skep_table.services.service import TableService
    from skep_table.upgrade import VersionPlan

_PLAN = "hoodie.clustering.plan.strategy."


@checks_arguments
class ServiceMethods(TableHandle):
    """Mixed into `Table`. Options are Hudi's: `**{"hoodie.…": …}`; they apply to the one call.

    `dry_run` returns what a call would do, and changes nothing; services that have plans know it as `plan`, too.
    """

    @takes_options
    def compact(
        self,
        *,
        logs: bool = False,
        plan: bool = False,
        dry_run: bool = False,
        schedule: bool = False,
        execute: bool | Moment = False,
        **options: object,
    ) -> list[Done]:
        """Merges log files into base files: executes pending plans, then plans a compaction and executes it.

        `logs`: merges the log files of each slice into one log file only. `plan`: a preview, nothing changes;
        `schedule`: only writes the plan; `execute`: only executes pending plans, or that of one instant.
        """
        from skep_table.services.service import COMPACTION, LOG_COMPACTION

        return self._run(LOG_COMPACTION if logs else COMPACTION, options, plan or dry_run, schedule, execute)

    @takes_options
    def cluster(
        self,
        *,
        sort_by: Text | None = None,
        curve: str | None = None,
        partitions: Text | None = None,
        plan: bool = False,
        dry_run: bool = False,
        schedule: bool = False,
        execute: bool | Moment = False,
        **options: object,
    ) -> list[Done]:
        """Rewrites small files into large ones, rows sorted by `sort_by`, or along a `curve` (z-order, hilbert)
        through these columns. `plan`, `schedule`, `execute`: as of `compact`."""
        from skep_table.services.service import CLUSTERING

        named: dict[str, object | None] = {
            f"{_PLAN}sort.columns": _joined(sort_by),
            "hoodie.layout.optimize.strategy": curve,
            f"{_PLAN}partition.selected": _joined(partitions),
        }
        given = {key: value for key, value in named.items() if value is not None}
        return self._run(CLUSTERING, {**given, **options}, plan or dry_run, schedule, execute)

    @takes_options
    def clean(
        self,
        *,
        plan: bool = False,
        dry_run: bool = False,
        schedule: bool = False,
        execute: bool | Moment = False,
        **options: object,
    ) -> list[Done]:
        """Deletes the files that no read within the retention needs. `plan`, `schedule`, `execute`: as of `compact`."""
        from skep_table.services.service import CLEANING

        return self._run(CLEANING, options, plan or dry_run, schedule, execute)

    @takes_options
    def archive(self, *, plan: bool = False, dry_run: bool = False, **options: object) -> ArchivePlan:
        """Moves old instants out of the active timeline; returns what was moved, and what held the rest back.

        `plan`: returns what would be moved and changes nothing.
        """
        from skep_table.services.cleaning.archive import archive, plan_archive

        table = self._locked(options)
        return plan_archive(table.reload()) if plan or dry_run else archive(table)

    @takes_options
    def expire(
        self, days: int | None = None, *, plan: bool = False, dry_run: bool = False, **options: object
    ) -> list[Done]:
        """Drops the partitions that were not written to for `days` days. `plan`: returns them and changes nothing."""
        from skep_table.services.cleaning.ttl import TTL_DAYS
        from skep_table.services.service import EXPIRY

        given = {TTL_DAYS.key: days} if days is not None else {}
        return self._run(EXPIRY, {**given, **options}, plan or dry_run)

    @overload
    def rollback(self, instant: Moment, *, dry_run: Literal[False] = False, **options: object) -> RollbackMetadata: ...

    @overload
    def rollback(self, instant: Moment, *, dry_run: Literal[True], **options: object) -> RollbackPlan: ...

    @takes_options
    def rollback(self, instant: Moment, *, dry_run: bool = False, **options: object) -> RollbackMetadata | RollbackPlan:
        """Rolls back a pending write, or the newest completed one. `dry_run`: returns the plan and changes nothing."""
        from skep_table.services.undo.rollback import preview_rollback, roll_back_instant

        time = instant_of(self._hudi, instant, "instant")
        if dry_run:
            return preview_rollback(self._on_services(options), time)
        done = roll_back_instant(self._locked(options), time)
        self.sync_changed()
        return done

    def savepoint(self, instant: Moment | None = None, *, user: str = "", comments: str = "") -> SavepointMetadata:
        """Keeps the files of a commit (the last one) from being cleaned, so that the table can be restored to it."""
        from skep_table.services.undo.rollback import create_savepoint

        time = None if instant is None else instant_of(self._hudi, instant, "instant")
        return create_savepoint(self._locked({}), time, user=user, comments=comments)

    def savepoints(self) -> dict[InstantTime, SavepointMetadata]:
        """The files that each savepoint keeps, by its instant."""
        return self._hudi.reload().savepoints()

    def delete_savepoint(self, instant: Moment) -> None:
        """Deletes a savepoint: the commit may be cleaned and archived again."""
        from skep_table.services.undo.rollback import delete_savepoint

        delete_savepoint(self._locked({}), instant_of(self._hudi, instant, "instant"))

    @overload
    def restore(
        self, savepoint: Moment, *, dry_run: Literal[False] = False, **options: object
    ) -> RestoreMetadata | None: ...

    @overload
    def restore(self, savepoint: Moment, *, dry_run: Literal[True], **options: object) -> RestorePlan: ...

    @takes_options
    def restore(
        self, savepoint: Moment, *, dry_run: bool = False, **options: object
    ) -> RestoreMetadata | RestorePlan | None:
        """Rolls back every write after a savepoint, newest first. None when there are none.

        `dry_run`: returns the plan and changes nothing.
        """
        from skep_table.services.undo.rollback import plan_restore, restore

        time = instant_of(self._hudi, savepoint, "savepoint")
        if dry_run:
            return plan_restore(self._on_services(options), time)
        done = restore(self._locked(options), time)
        self.sync_changed()
        return done

    @takes_options
    def maintain(self, *, plan: bool = False, dry_run: bool = False, **options: object) -> list[Done]:
        """Runs what is due: pending plans, compaction, clustering and expiry where options enable them, clean, archive.

        `plan`: returns what is due and changes nothing. A service that an active writer blocks is left for later; the
        error of a service that fails is raised when the others are done.
        """
        from skep_table.services.automatic import maintain, preview_maintenance

        table = self._on_services(options)
        if plan or dry_run:
            return list(preview_maintenance(table))
        done = self._services.run(table, maintain(table))
        for each in done:
            if each.error is not None:
                raise each.error
        return done

    @takes_options
    def upgrade(self, to: int = 9, *, plan: bool = False, dry_run: bool = False, **options: object) -> VersionPlan:
        """Brings the table to a newer version, 8 or 9; see docs/versions.md for what changes. Returns the steps.

        `plan`: returns the steps and changes nothing. Where the table has the version, what an interrupted change left
        is deleted. A table of a version before 6 may become 6, too; options state what its settings lack, such as
        `hoodie.datasource.write.recordkey.field`. VersionChangeError where the table can't have that version.
        """
        return self._change_version(to, plan or dry_run, options, newer=True)

    @takes_options
    def downgrade(self, to: int, *, plan: bool = False, dry_run: bool = False, **options: object) -> VersionPlan:
        """Brings the table to an older version, 6 or 8; as `upgrade`. The plan names what is lost."""
        return self._change_version(to, plan or dry_run, options, newer=False)

    def _change_version(self, to: int, plan: bool, options: Mapping[str, object], *, newer: bool) -> VersionPlan:
        from skep_table.upgrade import change_version, plan_version_change

        table = self._on_services(options)
        before = table.config.version
        if before != to and newer is not (to > before):
            raise InputError(
                f"table {table.config.name} has version {before}: {to} is a{'n older' if newer else ' newer'} one",
                hint="downgrade brings it there" if newer else "upgrade brings it there",
                option="to",
                found=to,
            )
        steps = plan_version_change(table, to)
        if not plan and steps.steps:
            self._hudi = change_version(table, to).in_context_of(self._hudi)
            self.sync_changed()
        return steps

    def _on_services(self, options: Mapping[str, object]) -> HudiTable:
        """A new snapshot, with the options, lock and runner of one call."""
        return self._locked(options).reload()

    def _run(
        self,
        service: TableService[Any],
        options: Mapping[str, object],
        plan: bool,
        schedule: bool = False,
        execute: bool | Moment = False,
    ) -> list[Done]:
        from skep_table.services.service import Mode

        chosen = execute if isinstance(execute, bool) else instant_of(self._hudi, execute, "execute")
        mode = Mode.of(plan=plan, schedule=schedule, execute=chosen)
        table = self._on_services(options)
        done = service(table, mode)
        self._services.call_hooks(table, done)
        return done


def _joined(names: Text | None) -> str | None:
    return names if names is None or isinstance(names, str) else ",".join(names)

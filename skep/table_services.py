"""What users call on a table to keep it fast and small: each does one service and says what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skep.service_work import Mode, Work, cleaning, clustering, compaction, expiry, log_compaction
from skep.services import Services
from skep_table.services.done import Done
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_table.services.archive_plan import ArchivePlan
    from skep_table.timeline.plans import RestoreMetadata, RollbackMetadata, SavepointMetadata

_PLAN = "hoodie.clustering.plan.strategy."
Text = str | Sequence[str]


class ServiceMethods:
    """Mixed into `Table`. Options are Hudi's: `**{"hoodie.…": …}`."""

    _hudi: HudiTable
    _sync: Callable[[], Any] | None

    def services(self, options: Mapping[str, object] | None = None) -> Services:
        raise NotImplementedError

    def compact(
        self,
        *,
        logs: bool = False,
        plan: bool = False,
        schedule: bool = False,
        execute: bool | str = False,
        **options: object,
    ) -> list[Done]:
        """Folds log files into base files: carries out what is planned, then plans a compaction and carries it out.

        `logs`: only puts the log files of each slice together. `plan`: only says what would be done; `schedule`: only
        writes the plan; `execute`: only carries out what is planned, or the plan of one instant.
        """
        mode = Mode.of(plan=plan, schedule=schedule, execute=execute)
        return self._run(options, log_compaction(mode) if logs else compaction(mode))

    def cluster(
        self,
        *,
        sort_by: Text | None = None,
        curve: str | None = None,
        partitions: Text | None = None,
        plan: bool = False,
        schedule: bool = False,
        execute: bool | str = False,
        **options: object,
    ) -> list[Done]:
        """Makes large files of small ones, rows in the order of `sort_by`, or along a `curve` (z-order, hilbert)
        through these columns. `plan`, `schedule`, `execute`: as of `compact`."""
        named: dict[str, object | None] = {
            f"{_PLAN}sort.columns": _joined(sort_by),
            "hoodie.layout.optimize.strategy": curve,
            f"{_PLAN}partition.selected": _joined(partitions),
        }
        given = {key: value for key, value in named.items() if value is not None}
        return self._run({**given, **options}, clustering(Mode.of(plan=plan, schedule=schedule, execute=execute)))

    def clean(
        self, *, plan: bool = False, schedule: bool = False, execute: bool | str = False, **options: object
    ) -> list[Done]:
        """Deletes the files that no read within the retention needs. `plan`, `schedule`, `execute`: as of `compact`."""
        return self._run(options, cleaning(Mode.of(plan=plan, schedule=schedule, execute=execute)))

    def archive(self, *, plan: bool = False, **options: object) -> ArchivePlan:
        """Moves old instants out of the active timeline; answers what was moved, and what held the rest back.

        `plan`: only answers what would be moved.
        """
        from skep_table.services.archive import archive
        from skep_table.services.archive_plan import plan_archive

        setting = self.services(options).setting()
        if plan:
            return plan_archive(self._hudi.reload(), setting.options, setting.runner)
        return archive(self._hudi, setting)

    def expire(self, days: int | None = None, *, plan: bool = False, **options: object) -> list[Done]:
        """Drops the partitions that were not written to for so many days. `plan`: only says how many."""
        from skep_table.services.ttl import TTL_DAYS

        given = {TTL_DAYS.key: days} if days is not None else {}
        return self._run({**given, **options}, expiry(Mode(plan=plan)))

    def rollback(self, instant: str, **options: object) -> RollbackMetadata:
        """Takes back a pending write, or the newest completed one."""
        from skep_table.services.rollback import roll_back_instant

        account = roll_back_instant(self._hudi, instant, self.services(options).setting())
        self.sync_changed()
        return account

    def savepoint(self, instant: str | None = None, *, user: str = "", comments: str = "") -> SavepointMetadata:
        """Keeps the files of a commit (the last one) from being cleaned, so that the table can be restored to it."""
        from skep_table.services.savepoint import create_savepoint

        return create_savepoint(self._hudi, self.services().setting(), instant, user=user, comments=comments)

    def savepoints(self) -> dict[str, SavepointMetadata]:
        """What each savepoint keeps, by its instant."""
        return self._hudi.reload().savepoints()

    def delete_savepoint(self, instant: str) -> None:
        """Lets the cleaner and the archiver have the commit again."""
        from skep_table.services.savepoint import delete_savepoint

        delete_savepoint(self._hudi, instant, self.services().setting())

    def restore(self, savepoint: str, **options: object) -> RestoreMetadata | None:
        """Takes back every write after a savepoint, newest first. None when there are none."""
        from skep_table.services.restore import restore

        account = restore(self._hudi, savepoint, self.services(options).setting())
        self.sync_changed()
        return account

    def maintain(self, *, plan: bool = False, **options: object) -> list[Done]:
        """Does what is due: plans that wait, compaction, clustering and expiry where asked for, clean, archive.

        `plan`: only says what that is. What has to wait for others who are at work is put off; a service that fails
        raises its error when the others are done.
        """
        from skep_table.services.automatic import maintain
        from skep_table.services.preview import preview_maintenance

        services = self.services(options)
        table = self._hudi.reload()
        if plan:
            return list(preview_maintenance(table, services.setting()))
        done = services.run(table, maintain(table, services.setting()))
        for each in done:
            if each.error is not None:
                raise each.error
        return done

    def _run(self, options: Mapping[str, object], work: Work) -> list[Done]:
        services = self.services(options)
        table = self._hudi.reload()
        done = work(table, services.setting())
        services.tell(table, done)
        return done

    def sync_changed(self) -> None:
        """After commits were taken back. Nothing, for a table that belongs to no lake."""
        if self._sync is not None:
            self._sync()


def _joined(names: Text | None) -> str | None:
    return names if names is None or isinstance(names, str) else ",".join(names)

"""What users call on a table to keep it fast and small: each does one service and says what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skep.services import Services
from skep_table.commit.setting import CommitSetting
from skep_table.errors import InputError
from skep_table.services.done import Done
from skep_table.table import HudiTable

if TYPE_CHECKING:
    from skep_table.services.archive_plan import ArchivePlan
    from skep_table.timeline.instant import Instant
    from skep_table.timeline.plans import RestoreMetadata, RollbackMetadata, SavepointMetadata

_PLAN = "hoodie.clustering.plan.strategy."
Text = str | Sequence[str]


class ServiceMethods:
    """Mixed into `Table`. Options are Hudi's: `**{"hoodie.…": …}`."""

    _hudi: HudiTable
    _sync: Callable[[], Any] | None

    def services(self, options: Mapping[str, object] | None = None) -> Services:
        raise NotImplementedError

    def compact(self, *, schedule: bool = False, execute: bool = False, **options: object) -> list[Done]:
        """Folds log files into base files: carries out what is planned, then plans a compaction and carries it out.

        `schedule`: only plan; `execute`: only carry out what is planned.
        """
        from skep_table.services import compact as service
        from skep_table.services.compact_strategy import chooser
        from skep_table.services.done import compacted

        def all_of(table: HudiTable, setting: CommitSetting) -> list[Done]:
            if execute:
                return [compacted(each) for each in service.execute_pending_compactions(table, setting)]
            choose = chooser(setting.options, setting.clock.now())
            if schedule:
                return _planned("compact", service.schedule_compaction(table, setting, choose))
            return [compacted(each) for each in service.compact(table, setting, choose)]

        _one_of(schedule=schedule, execute=execute)
        return self._run(options, all_of)

    def cluster(
        self,
        *,
        sort_by: Text | None = None,
        curve: str | None = None,
        partitions: Text | None = None,
        schedule: bool = False,
        execute: bool = False,
        **options: object,
    ) -> list[Done]:
        """Makes large files of small ones, rows in the order of `sort_by`, or along a `curve` (z-order, hilbert)
        through these columns. `schedule`: only plan; `execute`: only carry out what is planned."""
        from skep_table.services import cluster as service
        from skep_table.services.done import clustered

        def all_of(table: HudiTable, setting: CommitSetting) -> list[Done]:
            if execute:
                return [clustered(each) for each in service.execute_pending_clusterings(table, setting)]
            if schedule:
                return _planned("cluster", service.schedule_clustering(table, setting))
            return [clustered(each) for each in service.cluster(table, setting)]

        _one_of(schedule=schedule, execute=execute)
        named: dict[str, object | None] = {
            f"{_PLAN}sort.columns": _joined(sort_by),
            "hoodie.layout.optimize.strategy": curve,
            f"{_PLAN}partition.selected": _joined(partitions),
        }
        return self._run({**{key: value for key, value in named.items() if value is not None}, **options}, all_of)

    def clean(self, *, schedule: bool = False, execute: bool = False, **options: object) -> list[Done]:
        """Deletes the files that no read within the retention needs. `schedule`: only plan; `execute`: only carry out
        what is planned."""
        from skep_table.services import clean as service
        from skep_table.services.done import cleaned

        def all_of(table: HudiTable, setting: CommitSetting) -> list[Done]:
            if schedule:
                return _planned("clean", service.schedule_clean(table, setting))
            run = service.execute_pending_cleans if execute else service.clean
            return [cleaned(each) for each in run(table, setting)]

        _one_of(schedule=schedule, execute=execute)
        return self._run(options, all_of)

    def archive(self, **options: object) -> ArchivePlan:
        """Moves old instants out of the active timeline; answers what was moved, and what held the rest back."""
        from skep_table.services.archive import archive

        return archive(self._hudi, self.services(options).setting())

    def expire(self, days: int | None = None, **options: object) -> list[Done]:
        """Drops the partitions that were not written to for so many days."""
        from skep_table.services.done import expired
        from skep_table.services.ttl import TTL_DAYS, expire_partitions

        def all_of(table: HudiTable, setting: CommitSetting) -> list[Done]:
            return [expired(each) for each in expire_partitions(table, setting)]

        return self._run({**({TTL_DAYS.key: days} if days is not None else {}), **options}, all_of)

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

    def maintain(self, **options: object) -> list[Done]:
        """Does what is due: plans that wait, compaction, clustering and expiry where asked for, clean, archive."""
        from skep_table.services.automatic import maintain

        services = self.services(options)
        table = self._hudi.reload()
        return services.run(table, maintain(table, services.setting()))

    def _run(self, options: Mapping[str, object], do: Callable[[HudiTable, CommitSetting], list[Done]]) -> list[Done]:
        services = self.services(options)
        done = do(self._hudi, services.setting())
        services.tell(self._hudi, done)
        return done

    def sync_changed(self) -> None:
        """After commits were taken back. Nothing, for a table that belongs to no lake."""
        if self._sync is not None:
            self._sync()


def _planned(service: str, instant: Instant | None) -> list[Done]:
    from skep_table.services.done import scheduled

    return [scheduled(service, instant)] if instant is not None else []


def _one_of(**flags: bool) -> None:
    given = [name for name, flag in flags.items() if flag]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", option=given[0])


def _joined(names: Text | None) -> str | None:
    return names if names is None or isinstance(names, str) else ",".join(names)

"""The modes of a service call, for methods and commands: preview, schedule, execute, or all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from skep_format.errors import InputError
from skep_format.instant_time import InstantTime

if TYPE_CHECKING:
    from skep_format.timeline.instant import Instant
    from skep_table.services.cleaning.clean import CleanResult
    from skep_table.services.compaction.plan import Choose
    from skep_table.services.done import Done
    from skep_table.table import HudiTable

Work = Callable[["HudiTable"], "list[Done]"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mode:
    """How much of a service a call does; by default all: pending plans are executed, then what is due.

    `plan`: a preview, nothing changes; `schedule`: a plan is written; `execute`: pending plans are executed, or only
    that of `instant`.
    """

    plan: bool = False
    schedule: bool = False
    execute: bool = False
    instant: InstantTime | None = None

    @classmethod
    def of(cls, *, plan: bool = False, schedule: bool = False, execute: bool | str = False) -> Mode:
        """InputError for modes that exclude each other."""
        found = cls(plan, schedule, bool(execute), InstantTime(execute) if isinstance(execute, str) else None)
        given = [name for name in ("plan", "schedule", "execute") if getattr(found, name)]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} exclude each other", option=given[0])
        return found


@dataclass(frozen=True, slots=True)
class _Planned(Generic[T]):
    """The functions of a service that writes plans onto the timeline; `form` turns a result into a row."""

    name: str
    form: Callable[[T], Done]
    preview: Work
    pending: Callable[[HudiTable], Iterable[Instant]]
    execute: Callable[[HudiTable, Instant], T | None]
    execute_all: Callable[[HudiTable], Iterable[T]]
    schedule: Callable[[HudiTable], Instant | None]
    run: Callable[[HudiTable], Iterable[T]]

    def work(self, mode: Mode) -> Work:
        """The function that runs the service in a mode."""

        def work(table: HudiTable) -> list[Done]:
            if mode.plan:
                return self.preview(table)
            if mode.instant is not None:
                wanted = _one(table, mode.instant, self.pending(table))
                return _each(self.form, [self.execute(table, wanted)])
            if mode.execute:
                return _each(self.form, self.execute_all(table))
            if mode.schedule:
                return _scheduled(self.name, self.schedule(table))
            return _each(self.form, self.run(table))

        return work


def compaction(mode: Mode) -> Work:
    """Compaction in a mode; the strategy that the options name chooses the slices."""
    from skep_table.services.compaction import compact as service
    from skep_table.services.compaction.strategy import chooser
    from skep_table.services.done import compacted
    from skep_table.services.preview import preview_compaction

    def choose(table: HudiTable) -> Choose:
        return chooser(table.options, table.context.clock.now())

    return _Planned(
        "compact",
        compacted,
        preview_compaction,
        service.pending_compactions,
        service.execute_compaction,
        service.execute_pending_compactions,
        lambda table: service.schedule_compaction(table, choose(table)),
        lambda table: service.compact(table, choose(table)),
    ).work(mode)


def log_compaction(mode: Mode) -> Work:
    """Log compaction in a mode."""
    from skep_table.services.compaction import log_compact as service
    from skep_table.services.done import logs_compacted
    from skep_table.services.preview import preview_log_compaction

    return _Planned(
        "log-compact",
        logs_compacted,
        preview_log_compaction,
        service.pending_log_compactions,
        service.execute_log_compaction,
        service.execute_pending_log_compactions,
        service.schedule_log_compaction,
        service.compact_logs,
    ).work(mode)


def clustering(mode: Mode) -> Work:
    """Clustering in a mode."""
    from skep_table.services.clustering import cluster as service
    from skep_table.services.done import clustered
    from skep_table.services.preview import preview_clustering

    return _Planned(
        "cluster",
        clustered,
        preview_clustering,
        service.pending_clusterings,
        service.execute_clustering,
        service.execute_pending_clusterings,
        service.schedule_clustering,
        service.cluster,
    ).work(mode)


def expiry(mode: Mode) -> Work:
    """Expiry of partitions in a mode; it is planned and executed in one step."""
    from skep_table.services.cleaning.ttl import expire_partitions
    from skep_table.services.done import expired
    from skep_table.services.preview import preview_expiry

    def work(table: HudiTable) -> list[Done]:
        if mode.plan:
            return preview_expiry(table)
        return _each(expired, expire_partitions(table))

    return work


def cleaning(mode: Mode) -> Work:
    """Cleaning in a mode."""
    from skep_table.services.cleaning import clean as service
    from skep_table.services.done import cleaned as form
    from skep_table.services.preview import preview_clean

    def work(table: HudiTable) -> list[Done]:
        if mode.plan:
            return preview_clean(table)
        if mode.schedule:
            return _scheduled("clean", service.schedule_clean(table))
        return _each(form, cleaned(table, mode))

    return work


def cleaned(table: HudiTable, mode: Mode) -> list[CleanResult]:
    """Executes cleans as the mode asks for, and returns them."""
    from skep_format.timeline.instant import Action
    from skep_table.services.cleaning import clean as service

    if mode.instant is not None:
        wanted = _one(table, mode.instant, table.timeline.pending().of(Action.CLEAN))
        return service.execute_pending_cleans(table, wanted)
    return service.execute_pending_cleans(table) if mode.execute else service.clean(table)


def _each(form: Callable[[T], Done], found: Iterable[T | None]) -> list[Done]:
    return [form(each) for each in found if each is not None]


def _scheduled(service: str, instant: Instant | None) -> list[Done]:
    from skep_table.services.done import scheduled

    return [scheduled(service, instant)] if instant is not None else []


def _one(table: HudiTable, time: InstantTime, pending: Iterable[Instant]) -> Instant:
    times = {instant.requested_time: instant for instant in pending}
    if time not in times:
        hint = f"there are {', '.join(sorted(times))}" if times else "nothing is planned"
        raise InputError(f"table {table.config.name}: there is no plan {time}", hint=hint, instant=time)
    return times[time]

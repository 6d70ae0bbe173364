"""The file slices that the plan of a log compaction or clustering names, as long as they are as it names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from skep_format.errors import CommitConflictError
from skep_format.names import FileGroupId, join
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.plans import NamedSlice
from skep_format.timeline.timeline import WRITE_ACTIONS
from skep_table.commit.concurrency.changes import completed_since, touched_groups
from skep_table.commit.parts.markers import list_markers
from skep_table.services.execution import pending_instant
from skep_table.table import HudiTable
from skep_table.view import FileSlice


def inputs_of(planned: Iterable[NamedSlice]) -> dict[FileGroupId, frozenset[str]]:
    """The names of the files of each slice that a plan takes."""
    return {each.group: frozenset(each.file_names) for each in planned}


_UNDOING = frozenset({Action.ROLLBACK, Action.RESTORE})


class PlannedSlices:
    """Partitions are listed before the executor takes the table's lock, and under the lock only where something ran
    beside it since: a write, a rollback, or another service that writes.

    `planned` maps each file group to the names of the files that the plan takes. What the plan's own executors wrote
    does not count. A log compaction loses a slice, too, for which a compaction is planned.
    """

    def __init__(
        self,
        table: HudiTable,
        instant: Instant,
        planned: Mapping[FileGroupId, frozenset[str]],
        after: Mapping[FileGroupId, frozenset[FileGroupId]] = MappingProxyType({}),
    ) -> None:
        """`after`: of a group the ones that a resize makes of it. A write that has its rows in these, too, changes
        nothing of the plan."""
        self._instant = instant
        self._planned = planned
        self._after = after
        self._seen: HudiTable | None = None
        self._executed: HudiTable | None = None
        self.slices: Mapping[FileGroupId, FileSlice] = {}
        """The slices in the order of `planned`, with the files that the plan names only."""
        with suppress(CommitConflictError):  # decided under the lock, where the plan is taken off the timeline
            self._read(table)

    def check(self, table: HudiTable) -> None:
        """Raises CommitConflictError where a slice of this snapshot, taken under the lock, is not as planned.

        The first snapshot is the one whose rows the executor takes.
        """
        if self._seen is None or not _is_quiet(self._seen, table, self._instant):
            self._read(table)
        if self._executed is None:
            self._executed = table
        for write in completed_since(self._executed, table):
            # In version 6 its log files were there, under the same names, when the plan was made.
            touched = touched_groups(table, write)
            for group in self._planned.keys() & touched:
                if not self._after.get(group, frozenset()) & touched:
                    raise self._conflict(table, group)

    def _read(self, table: HudiTable) -> None:
        self._seen = None
        view = table.view(metadata=False)
        partitions = sorted({group.partition_path for group in self._planned})
        own = _own_files(table, self._instant)
        current = {
            slice_.group: slice_
            for of_partition in table.context.threads.map(view.slices, partitions)
            for slice_ in of_partition
        }
        of_logs = self._instant.action is Action.LOG_COMPACTION
        taken = view.pending_compaction if of_logs else {}
        found = {}
        doubled = self._written_twice(table)
        for group, names in self._planned.items():
            slice_ = current.get(group)
            if slice_ is not None and group in doubled:
                slice_ = replace(slice_, log_files=tuple(log for log in slice_.log_files if str(log.name) in names))
            if slice_ is not None and own:
                slice_ = replace(slice_, log_files=tuple(log for log in slice_.log_files if str(log.name) not in own))
            if slice_ is None or frozenset(slice_.file_names) != names or group in taken:
                raise self._conflict(table, group)
            found[group] = slice_
        self._seen, self.slices = table, found

    def _written_twice(self, table: HudiTable) -> frozenset[FileGroupId]:
        """The groups of a resize whose later rows are in those that it makes, too: of all writes that completed.

        Other log files than these have put nothing there: those of a write that goes on, or that was rolled back.
        """
        once = set[FileGroupId]()
        if self._after:
            for write in table.timeline.data().completed().after(self._instant.requested_time):
                touched = touched_groups(table, write)
                once |= {
                    group
                    for group in self._planned.keys() & touched
                    if not self._after.get(group, frozenset()) & touched
                }
        return frozenset(self._after.keys() - once)

    def _conflict(self, table: HudiTable, group: FileGroupId) -> CommitConflictError:
        happened, service = (
            ("written to, or planned for a compaction,", "log compaction")
            if self._instant.action is Action.LOG_COMPACTION
            else ("written to or replaced", "clustering")
        )
        return CommitConflictError(
            f"table {table.config.name}: {join(*group)} was {happened} since its {service} was planned",
            hint="plan it again",
            table=table.config.name,
            path=join(*group),
        )


def _own_files(table: HudiTable, instant: Instant) -> frozenset[str]:
    """The names of the files that executors of the plan have written, or started to write."""
    now = pending_instant(table, instant)
    if now is None or now.state is State.REQUESTED:
        return frozenset()
    return frozenset(marker.file_name for marker in list_markers(table.storage, instant.requested_time) or ())


def _is_quiet(before: HudiTable, now: HudiTable, own: Instant) -> bool:
    """Whether nothing has changed data files between two snapshots, but the executors of the plan `own`."""
    found = _changing(now, own)
    return found == _changing(before, own) and not any(
        instant.action in DATA_ACTIONS | _UNDOING and not instant.is_completed for instant in found
    )


def _changing(table: HudiTable, own: Instant) -> frozenset[Instant]:
    return frozenset(
        instant
        for instant in table.timeline
        if instant.action in WRITE_ACTIONS | _UNDOING and instant.requested_time != own.requested_time
    )

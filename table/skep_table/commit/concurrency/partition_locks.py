"""Locks of single partitions, on request: held during a whole write, so that writes to one partition queue up.

The table's lock is held for moments only, and of two writes to the same files one fails. Writers that name the
partitions which they are going to write have no such conflict with each other: they wait before they begin. Others are
not excluded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from skep_format.errors import InputError, LeaseLostError, OptionError
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.options import LOCK_PARTITIONS
from skep_table.context import TableContext
from skep_table.lock import Lock, unguarded


@runtime_checkable
class HasPartitions(Protocol):
    """A table's lock whose provider locks single partitions, too."""

    def of_partition(self, partition_path: str, on_lost: Callable[[LeaseLostError], None]) -> Lock:
        """A lock of its own, which neither waits for the table's lock nor blocks it."""


class PartitionLocks:
    """The locks of the partitions that the options name; none, most times."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._lost: LeaseLostError | None = None
        named = context.options.value(LOCK_PARTITIONS)
        # All writers take several in the same order: no two wait for each other.
        self._partitions = tuple(sorted(set(named)))
        self._locks: list[Lock] = []
        self._provider = unguarded(context.lock)
        if self._partitions and not isinstance(self._provider, HasPartitions):
            raise OptionError(
                f"{LOCK_PARTITIONS.key} needs the lock provider metastore: others lock whole tables",
                option=LOCK_PARTITIONS.key,
            )

    def acquire(self) -> None:
        """Waits for all of them. LockTimeoutError, and none is held."""
        try:
            for partition in self._partitions:
                assert isinstance(self._provider, HasPartitions)
                lock = self._provider.of_partition(partition, self._on_lost)
                lock.acquire(self._context.lock_timeout_seconds)
                self._locks.append(lock)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Releases those that are held. Repeatable."""
        while self._locks:
            self._locks.pop().release()

    def ensure_alive(self) -> None:
        """LeaseLostError when one is known to be lost."""
        if self._lost is not None:
            raise self._lost

    def ensure_held(self, metadata: CommitMetadata) -> None:
        """Verifies them with the provider.

        LeaseLostError when one is lost; InputError for a write to another partition.
        """
        if not self._partitions:
            return
        beyond = sorted(set(metadata.partitions) - set(self._partitions))
        if beyond:
            raise InputError(
                f"{len(beyond)} partitions were written to that {LOCK_PARTITIONS.key} does not name, {beyond[0]!r}"
                " among them",
                option=LOCK_PARTITIONS.key,
                partitions=beyond[:10],
            )
        self.ensure_alive()
        for lock in self._locks:
            lock.ensure_held()

    def _on_lost(self, error: LeaseLostError) -> None:
        self._lost = error
        self._context.on_lost(error)

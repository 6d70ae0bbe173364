"""Commit hooks: what a writer calls when an instant has completed. Sync, services and callbacks are hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from skep_format.schema.types import Schema
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class Committed:
    """A completed instant with its commit metadata, and the table's schema after it.

    `table` is the snapshot that the commit ended with, in the context of the write: taken under the lock, with this
    instant completed. Others may have committed since; what depends on that takes a lock and reloads.
    """

    table: HudiTable
    instant: Instant
    metadata: CommitMetadata
    schema: Schema | None

    @property
    def base_path(self) -> str:
        """The root of the table's storage."""
        return self.table.storage.root

    @property
    def table_name(self) -> str:
        """The table's own name, which an entry in a metastore need not have."""
        return self.table.config.name


CommitHook = Callable[[Committed], Committed | None]
"""A hook that changed the table returns the event with the snapshot after that, for the hooks that follow."""


@runtime_checkable
class EarlyHook(Protocol):
    """A hook that can do a part of its work while the files of a commit are written."""

    def before(self, table: HudiTable, partitions: Collection[str]) -> CommitHook:
        """The hook to be called in its place after a commit into these partitions, by their paths, if there is one.

        Returns at once, and raises nothing. `table` is the snapshot that the commit is based on.
        """


def started(hooks: Iterable[CommitHook], table: HudiTable, partitions: Collection[str]) -> Iterator[CommitHook]:
    """The hooks to be called after a commit: those that can have started before it."""
    for hook in hooks:
        any_hook: object = hook
        yield any_hook.before(table, partitions) if isinstance(any_hook, EarlyHook) else hook

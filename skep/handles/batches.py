"""The writes of tables that are batched: in turns with others of this process, and small ones in one commit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from skep_table.commit.options import Concurrency
from skep_table.table import HudiTable
from skep_table.write.joint import Part
from skep_table.write.result import WriteResult
from skep_table.write.turns import Outcome, WriteTurns, turns_of

if TYPE_CHECKING:
    from skep.services.runner import Services
    from skep_table.write.flow import TableWriter


@dataclass(frozen=True, slots=True)
class Batches:
    """The queue of a table. Calls of an equal `owner` may be one commit: their lake, name and options are the same."""

    turns: WriteTurns
    owner: Hashable

    @classmethod
    def of(cls, table: HudiTable, owner: Hashable) -> Batches:
        """That of this process for a table."""
        return cls(turns_of(table.storage.root), (owner, table.options))

    def commit(
        self,
        table: HudiTable,
        services: Services,
        write: Callable[[TableWriter], WriteResult],
        options: Mapping[str, object],
        alone: Callable[[], WriteResult],
    ) -> WriteResult:
        """The write by `alone` in its turn, or in a commit with others."""
        joins = isinstance(write, Part) and not options and _can_join(table, services)
        part = write if joins and isinstance(write, Part) else None
        return self.turns.take(part, self.owner, alone, partial(_together, table, services))


def _can_join(table: HudiTable, services: Services) -> bool:
    """Not where Spark writes, where rows name no file, and where other writers' columns of a row must stay."""
    return (
        services.spark.given is None
        and table.config.populate_meta_fields
        and not Concurrency.of(table.options).is_non_blocking
    )


def _together(table: HudiTable, services: Services, parts: Sequence[Part]) -> Sequence[Outcome]:
    from skep.handles.writing import writer_for
    from skep_table.write.local import LocalWriter

    writer = writer_for(None, table, services)
    assert isinstance(writer, LocalWriter)
    return writer.together(parts)

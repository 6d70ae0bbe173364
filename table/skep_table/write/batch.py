"""Batches with an id: each is committed once, whoever writes it and however often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from skep_table.errors import InputError
from skep_table.table import HudiTable
from skep_table.timeline.instant import DATA_ACTIONS, Instant
from skep_table.write.result import WriteResult

BATCH_ID: Final = "skep.batch_id"
"""In a commit's extra metadata: the id of the batch that it holds."""


class NoCommit(InputError):
    """A write that is to leave no trace, since its batch was committed or it has nothing to say: `result` answers."""

    def __init__(self, result: WriteResult) -> None:
        super().__init__(f"nothing is committed as {result.instant.requested_time}")
        self.result = result


class Label:
    """What a commit says of itself beside its account, and what was looked through for the batch id that it bears."""

    def __init__(self, extra: Mapping[str, str], batch_id: str | None = None) -> None:
        self.batch_id = batch_id
        self.extra = dict(extra) if batch_id is None else {**extra, BATCH_ID: batch_id}
        self._looked: set[Instant] | None = None

    def check(self, table: HudiTable) -> None:
        """NoCommit when a commit bears the id, archived ones included. Commits seen before are not read again."""
        if self.batch_id is None:
            return
        active = table.timeline.data().completed().instants
        if self._looked is None:
            self._look(table, reversed(active))
            self._look(table, reversed(table.timeline.archived_holding(self.batch_id)))
            self._looked = set(active)
        else:
            new = [instant for instant in active if instant not in self._looked]
            self._look(table, new)
            self._looked.update(new)

    def _look(self, table: HudiTable, instants: Iterable[Instant]) -> None:
        for instant in instants:
            if instant.action in DATA_ACTIONS:
                metadata = table.commit_metadata(instant)
                if metadata.extra_metadata.get(BATCH_ID) == self.batch_id:
                    raise NoCommit(WriteResult(instant, metadata, table.schema(), repeated=True))

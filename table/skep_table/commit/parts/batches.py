"""Batches with an id: each is committed once, by whichever writer and however often it is written.

A commit has its batch id in its extra metadata. Beside the timeline, `.hoodie/.skep_batches/<hash of the id>/` holds
one small file for each instant that was about to commit the batch: written before the instant completes, without
effect until then. So one listing of that folder shows whether a batch was committed, however long ago; the archive is
read only for an id that an archived commit may have. The ids of commits from before this record began are added to it
by the first write that needs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from skep_format.errors import InputError
from skep_format.instant_time import InstantTime
from skep_format.names import META_FOLDER
from skep_format.schema.types import Schema
from skep_format.timeline.instant import DATA_ACTIONS, Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_table.commit.parts.participant import Participant
from skep_table.table import HudiTable

BATCH_ID: Final = "skep.batch_id"
"""In a commit's extra metadata: the id of the batch that it holds."""
BATCHES_FOLDER: Final = f"{META_FOLDER}/.skep_batches"
_COMPLETE: Final = f"{BATCHES_FOLDER}/complete"


class NoCommit(InputError):
    """A write that ends without a commit: it is empty, or `instant` has committed its batch before (`repeated`)."""

    def __init__(self, instant: Instant, metadata: CommitMetadata, schema: Schema, *, repeated: bool) -> None:
        super().__init__(f"nothing is committed as {instant.requested_time}")
        self.instant, self.metadata, self.schema, self.repeated = instant, metadata, schema, repeated


class CommitLabel:
    """The extra metadata of a commit, and the check that no other commit holds its batch."""

    at: InstantTime | None = None
    """The time of the commit's instant, where Hudi gives that kind of commit one."""

    def __init__(self, extra: Mapping[str, str], batch_id: str | None = None) -> None:
        self.batch_id = batch_id
        self.extra = dict(extra) if batch_id is None else {**extra, BATCH_ID: batch_id}
        self._checked: set[Instant] | None = None
        self._start: InstantTime | None = None  # of the active timeline that was checked

    def check(self, table: HudiTable) -> None:
        """NoCommit when a completed commit holds the batch, an archived one too.

        The first call reads the record of batches; later ones the commits that completed since.
        """
        if self.batch_id is None:
            return
        active = table.timeline.data().completed().instants
        start, self._start = self._start, table.timeline.first_time
        # Instants that were archived since a call may have completed since, too.
        if self._checked is None or start != self._start:
            self._check_recorded(table, self.batch_id)
            self._checked = set(active)
        else:
            self._refuse_repeated(table, [instant for instant in active if instant not in self._checked])
            self._checked.update(active)

    @property
    def participants(self) -> tuple[Participant, ...]:
        """What takes part in the commit: the record of its batch, where it has a batch id."""
        return () if self.batch_id is None else (BatchRecord(self.batch_id),)

    def _check_recorded(self, table: HudiTable, batch_id: str) -> None:
        times = _recorded(table, batch_id)
        if not times and not table.storage.exists(_COMPLETE):
            _record_history(table)
            times = _recorded(table, batch_id)
        completed = table.timeline.data().completed().instants
        self._refuse_repeated(table, [instant for instant in completed if instant.requested_time in times])
        if any(map(table.timeline.is_archived, times)):
            self._refuse_repeated(table, table.timeline.archived_holding(batch_id))

    def _refuse_repeated(self, table: HudiTable, instants: Iterable[Instant]) -> None:
        for instant, batch_id in _batches(table, instants):
            if batch_id == self.batch_id:
                raise NoCommit(instant, table.commit_metadata(instant), table.schema(), repeated=True)


@dataclass(frozen=True, slots=True)
class BatchRecord(Participant):
    """The record of one batch as a participant: written before the instant completes, without effect until then.

    So a rollback by another process has nothing to undo.
    """

    batch_id: str

    def prepare(self, table: HudiTable, instant: Instant, metadata: CommitMetadata) -> None:  # noqa: ARG002
        """Records that the instant is about to commit the batch."""
        _record(table, self.batch_id, instant.requested_time)

    def abort(self, table: HudiTable, instant: Instant) -> None:
        """Deletes the record."""
        table.storage.delete(_path(self.batch_id, instant.requested_time))


def _record_history(table: HudiTable) -> None:
    """Adds the batches of all commits, archived ones too: of a table that was written before there was a record."""
    instants = (*table.timeline.archived_holding(BATCH_ID), *table.timeline.data().completed().instants)
    found = [(batch_id, instant.requested_time) for instant, batch_id in _batches(table, instants)]
    table.context.threads.map(lambda each: _record(table, *each), found)
    table.storage.replace_atomic(_COMPLETE, b"")


def _batches(table: HudiTable, instants: Iterable[Instant]) -> Iterator[tuple[Instant, str]]:
    """The commits among the instants that hold a batch, with its id."""
    for instant in instants:
        if instant.action in DATA_ACTIONS:
            batch_id = table.commit_metadata(instant).extra_metadata.get(BATCH_ID)
            if batch_id is not None:
                yield instant, batch_id


def _recorded(table: HudiTable, batch_id: str) -> set[InstantTime]:
    """The instants that were about to commit a batch."""
    return {InstantTime(file.name) for file in table.storage.list_prefix(_folder(batch_id))}


def _record(table: HudiTable, batch_id: str, instant_time: InstantTime) -> None:
    table.storage.replace_atomic(_path(batch_id, instant_time), batch_id.encode())


def _path(batch_id: str, instant_time: InstantTime) -> str:
    return f"{_folder(batch_id)}/{instant_time}"


def _folder(batch_id: str) -> str:
    return f"{BATCHES_FOLDER}/{hashlib.sha256(batch_id.encode()).hexdigest()[:40]}"

"""Instants as other writers leave them: their files, in the layout of the table at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata
from skep_table.table import HudiTable


def add(table: HudiTable, time: InstantTime, action: Action, metadata: CommitMetadata) -> Instant:
    """A write that was requested at `time` and completed a millisecond later, with the files of all its states."""
    layout = table.layout
    for state in (State.REQUESTED, State.INFLIGHT):
        table.storage.replace_atomic(layout.path(Instant(time, action, state)), b"")
    completed = CompletionTime(time.plus_milliseconds(1)) if layout.has_completion_times else None
    done = Instant(time, action, State.COMPLETED, completed)
    table.storage.replace_atomic(layout.path(done), layout.encode_commit(metadata))
    return done


def rewrite(table: HudiTable, instant: Instant, change: Callable[[CommitMetadata], CommitMetadata]) -> None:
    """Changes the metadata of a completed write."""
    layout = table.layout
    content = layout.encode_commit(change(table.commit_metadata(instant)))
    table.storage.replace_atomic(layout.path(instant), content)


def with_extra(metadata: CommitMetadata, **extra: str) -> CommitMetadata:
    """The metadata with more, or other, extra metadata."""
    return replace(metadata, extra_metadata={**metadata.extra_metadata, **extra})

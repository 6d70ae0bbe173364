"""Moving completed instants into the archive: the steps that are the archive's, for each layout.

An archive is complete before any instant file is deleted; what a crash left on the timeline is archived again, to the
same effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from skep_format.batching import in_groups
from skep_format.errors import FormatError
from skep_format.runner import Runner
from skep_format.storage import FileStatus, Storage
from skep_format.table_config import TimelineZone
from skep_format.timeline.codec import is_json
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.layout import TimelineLayout
from skep_format.timeline.lsm_history import LsmHistory
from skep_format.timeline.lsm_rows import HistoryRow
from skep_format.timeline.ocf import check_whole

_PLANNED: Final = {Action.CLEAN, Action.COMPACTION, Action.LOG_COMPACTION, Action.REPLACE_COMMIT, Action.CLUSTERING}
_REPLACES: Final = {Action.REPLACE_COMMIT, Action.CLUSTERING}
_READ_BYTES: Final = 8 << 20
_READ_FILES: Final = 100

log = logging.getLogger("skep.archive")


@dataclass(frozen=True, slots=True)
class InstantFiles:
    """A completed instant with its files, in the order of their states."""

    instant: Instant
    files: tuple[tuple[Instant, FileStatus], ...]

    def paths(self, *, completed: bool) -> list[str]:
        """The paths of the completed files, or of those of earlier states."""
        return [file.path for state, file in self.files if state.is_completed is completed]


@dataclass(frozen=True, slots=True)
class ArchiveSetting:
    """What an archive's writer works with.

    `check` raises where the caller must not go on. `block_entries` are the entries of a block of layout 1;
    `files_per_level` and `manifests_kept` see LsmHistory.
    """

    storage: Storage
    layout: TimelineLayout
    zone: TimelineZone
    runner: Runner
    check: Callable[[], object]
    block_entries: int
    files_per_level: int
    manifests_kept: int


class ArchiveWriter(Protocol):
    """Writes the archive of one layout, for the holder of the table's lock."""

    def add(self, instants: Sequence[InstantFiles]) -> str | None:
        """Adds completed instants, oldest first; durable when it returns. The new file; None where all are in it."""

    def merge(self) -> None:
        """Merges files of the archive, and deletes what no reader needs, after the instants left the timeline."""


class HistoryWriter:
    """The history of layout 2: one row for each instant, with the bytes of its files (format guide 3.2)."""

    def __init__(self, setting: ArchiveSetting) -> None:
        self._setting = setting
        self._history = LsmHistory(
            setting.storage,
            setting.layout.archive_folder,
            setting.files_per_level,
            setting.manifests_kept,
            setting.check,
            setting.layout.release,
        )

    def add(self, instants: Sequence[InstantFiles]) -> str | None:
        """A file of level 0. Contents are read in parts, so that some megabytes of them are in memory."""
        by_instant = {each.instant: each for each in instants}
        missing = self._history.missing(list(by_instant))
        if not missing:
            return None
        return self._history.add(missing, self._rows([by_instant[instant] for instant in missing]))

    def merge(self) -> None:
        """Merges levels that are full, and deletes outdated states of the history."""
        self._history.merge()

    def _rows(self, instants: Sequence[InstantFiles]) -> Iterator[HistoryRow]:
        def size(instant: InstantFiles) -> int:
            return sum(file.size_bytes for _, file in instant.files)

        for part in in_groups(instants, size, _READ_BYTES, _READ_FILES):
            yield from self._setting.runner.map(self._row, part)

    def _row(self, found: InstantFiles) -> HistoryRow:
        storage, layout = self._setting.storage, self._setting.layout
        done = next(
            file
            for state, file in found.files
            if state.completion_time in (found.instant.completion_time, None) and state.is_completed
        )
        content = storage.read(done.path)
        if is_json(content):
            content = layout.encode_commit(layout.decode_commit(content, done.path))
        check_whole(content, done.path)
        return HistoryRow(found.instant, content, self._plan(found))

    def _plan(self, found: InstantFiles) -> bytes | None:
        """The requested file; of a replace commit the inflight one, where it has content.

        What is not readable is left out with a warning: nobody needs the plan of a completed action. Inflight files
        that were JSON before an upgrade are.
        """
        plan = None
        for state, file in found.files:
            wanted = state.state is State.REQUESTED and state.action in _PLANNED
            if wanted or (state.state is State.INFLIGHT and state.action in _REPLACES):
                content = self._setting.storage.read(file.path) if file.size_bytes else b""
                try:
                    check_whole(content, file.path)
                except FormatError as error:
                    log.warning("archived without this plan: %s", error.message)
                else:
                    plan = content or plan
        return plan

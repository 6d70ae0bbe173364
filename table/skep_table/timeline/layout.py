"""The two layouts of the timeline: how instants are spelt as file names, and in which encoding they keep what they say.

Format guide 2.2 and 3. Whatever depends on the layout asks this object; nothing else looks at version numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skep_table.names import META_FOLDER
from skep_table.table_config import ARCHIVE_FOLDER as ARCHIVE_FOLDER_KEY
from skep_table.table_config import HISTORY_PATH, TIMELINE_PATH, TableConfig
from skep_table.timeline.codec import (
    base_files_of_json,
    decode_avro,
    decode_json,
    encode_avro,
    encode_json,
    extra_of_avro,
    extra_of_json,
    partitions_of_json,
)
from skep_table.timeline.instant import Action, Instant, State
from skep_table.timeline.metadata import BaseFilesWritten, CommitMetadata

_Ending = tuple[Action, State]


def _endings(clustering_is_an_action: bool) -> dict[str, _Ending]:
    """What follows the time in an instant's file name: one table for both directions."""
    found: dict[str, _Ending] = {}
    for action in Action:
        if action is Action.CLUSTERING and not clustering_is_an_action:
            continue
        inflight = ".inflight" if action is Action.COMMIT else f".{action.value}.inflight"
        found[inflight] = (action, State.INFLIGHT)
        if action is not Action.SAVEPOINT:
            found[f".{action.value}.requested"] = (action, State.REQUESTED)
        if action.completed_as is action:
            found[f".{action.value}"] = (action, State.COMPLETED)
    return found


_FILE_NAME = re.compile(r"(\d+)(?:_(\d+))?(\.\D+)", re.ASCII)


@dataclass(frozen=True)
class Layout:
    """One layout. Folders are relative to the table's base.

    `release` is the Hudi release whose records are written. `logs_bear_delta_commit` says what the instant in a log
    file's name is: its own delta commit's, or else the base instant of its slice.
    """

    version: int
    folder: str
    archive_folder: str
    release: str
    has_completion_times: bool
    logs_bear_delta_commit: bool
    _ending_of: Mapping[str, _Ending]
    _text_of: Mapping[_Ending, str]

    def parse(self, file_name: str) -> Instant | None:
        """The instant that a file of the timeline's folder stands for; None for any other file."""
        match = _FILE_NAME.fullmatch(file_name)
        if match is None:
            return None
        time, completion_time, text = match.groups()
        ending = self._ending_of.get(text)
        if ending is None:
            return None
        action, state = ending
        if completion_time is not None and not (self.has_completion_times and state is State.COMPLETED):
            return None
        return Instant(time, action, state, completion_time)

    def file_name(self, instant: Instant) -> str:
        """The name of an instant's file in its state: a completed compaction is a commit's, and so on."""
        action = instant.action
        if instant.is_completed or (action, instant.state) not in self._text_of:
            action = action.completed_as
        time = instant.requested_time
        if instant.is_completed and self.has_completion_times and instant.completion_time:
            time = f"{time}_{instant.completion_time}"
        return time + self._text_of[action, instant.state]

    def path(self, instant: Instant) -> str:
        """The instant's file, relative to the table's base."""
        return f"{self.folder}/{self.file_name(instant)}"

    def decode_commit(self, data: bytes, path: str) -> CommitMetadata:
        """Commit metadata of a completed or inflight instant. FormatError naming `path`."""
        return decode_avro(data, path) if self.has_completion_times else decode_json(data, path)

    def decode_partitions(self, data: bytes, path: str) -> tuple[str, ...]:
        """The partition paths of a completed instant, sorted: much cheaper than all it says. FormatError."""
        return decode_avro(data, path).partitions if self.has_completion_times else partitions_of_json(data, path)

    def decode_base_files(self, data: bytes, path: str) -> BaseFilesWritten:
        """The base files that a completed instant wrote, together: cheaper than each one's stat. FormatError."""
        return decode_avro(data, path).base_files if self.has_completion_times else base_files_of_json(data, path)

    def decode_extra(self, data: bytes, path: str) -> Mapping[str, str]:
        """The extra metadata of a completed instant, its schema among them, and nothing of its files. FormatError."""
        return extra_of_avro(data, path) if self.has_completion_times else extra_of_json(data, path)

    def encode_commit(self, metadata: CommitMetadata) -> bytes:
        return encode_avro(metadata, self.release) if self.has_completion_times else encode_json(metadata)


_ENDINGS_1: Final = _endings(clustering_is_an_action=False)
_ENDINGS_2: Final = _endings(clustering_is_an_action=True)


def layout_1(archive: str = "archived") -> Layout:
    """The layout of table version 6."""
    return Layout(
        version=1,
        folder=META_FOLDER,
        archive_folder=f"{META_FOLDER}/{archive}",
        release="0.15.0",
        has_completion_times=False,
        logs_bear_delta_commit=False,
        _ending_of=_ENDINGS_1,
        _text_of={ending: text for text, ending in _ENDINGS_1.items()},
    )


def layout_2(timeline: str = "timeline", history: str = "history") -> Layout:
    """The layout of table versions 8 and 9."""
    return Layout(
        version=2,
        folder=f"{META_FOLDER}/{timeline}",
        archive_folder=f"{META_FOLDER}/{timeline}/{history}",
        release="1.0.2",
        has_completion_times=True,
        logs_bear_delta_commit=True,
        _ending_of=_ENDINGS_2,
        _text_of={ending: text for text, ending in _ENDINGS_2.items()},
    )


def layout_of(config: TableConfig) -> Layout:
    """The layout of a table, with the folders that its properties name."""
    raw = config.raw
    if config.layout_version == 1:
        return layout_1(raw.get(ARCHIVE_FOLDER_KEY) or "archived")
    return layout_2(raw.get(TIMELINE_PATH) or "timeline", raw.get(HISTORY_PATH) or "history")

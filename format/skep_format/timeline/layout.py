"""The two timeline layouts: folders, names of instant files, encoding of commit metadata (format guide 2.2 and 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import META_FOLDER
from skep_format.timeline.codec import (
    AVRO,
    JSON,
    CommitCodec,
    base_files_of,
    commit_of,
    is_json,
    part_of,
    partitions_of,
)
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import BaseFilesWritten, CommitMetadata

MOVED: Final = "timeline.moved"
"""A file in the folder of a timeline that is being copied or deleted: the settings name the one that the table has."""


class Suffixed(NamedTuple):
    """What the part of an instant's file name after the time states."""

    action: Action
    state: State


NamedInstant = tuple[str, str | None, Suffixed]
"""What the name of an instant's file states: when it was requested, when it completed, and what follows."""


def _suffixes(clustering_is_an_action: bool) -> dict[str, Suffixed]:
    """The part of an instant's file name after the time: one table for both directions."""
    found: dict[str, Suffixed] = {}
    for action in Action:
        if action is Action.CLUSTERING and not clustering_is_an_action:
            continue
        inflight = ".inflight" if action is Action.COMMIT else f".{action.value}.inflight"
        found[inflight] = Suffixed(action, State.INFLIGHT)
        if action is not Action.SAVEPOINT:
            found[f".{action.value}.requested"] = Suffixed(action, State.REQUESTED)
        if action.completed_as is action:
            found[f".{action.value}"] = Suffixed(action, State.COMPLETED)
    return found


@dataclass(frozen=True)
class TimelineLayout:
    """One layout (Hudi: TimelineLayout). Folders are relative to the table's base path.

    `release` is the Hudi release whose Avro records are written. `has_completion_times`: the name of a completed file
    states when the instant completed. `placeholder`: a file that keeps the folders there while they hold no instant,
    since Hudi lists them without asking whether they are; names like this one are no instants to it.
    `clustering`: the action under which a clustering is requested. `repeats_clean_plan`: the inflight file of a clean
    holds its plan, too; readers of that release want it there.
    """

    folder: str
    archive_folder: str
    release: str
    has_completion_times: bool
    placeholder: str | None
    clustering: Action
    repeats_clean_plan: bool
    codec: CommitCodec
    _action_of: Mapping[str, Suffixed]
    _suffix_of: Mapping[tuple[Action, State], str]

    @property
    def one_completed_name(self) -> bool:
        """Whether an instant has one name once it is completed, so that creating the file excludes another one."""
        return not self.has_completion_times

    def parse(self, file_name: str) -> Instant | None:
        """The instant of a file in the timeline's folder; None for any other file."""
        named = self.parse_name(file_name)
        return None if named is None else instant_of(named)

    def parse_name(self, file_name: str) -> NamedInstant | None:
        """The same without the types of an instant: a timeline may have very many names, three of each instant."""
        times, dot, suffix = file_name.partition(".")
        found = self._action_of.get(dot + suffix)
        if found is None or not times.isascii():
            return None
        if times.isdecimal():
            return times, None, found
        requested, _, completed = times.partition("_")
        if not (requested.isdecimal() and completed.isdecimal()):
            return None
        return (requested, completed, found) if self.has_completion_times and found.state is State.COMPLETED else None

    def file_name(self, instant: Instant) -> str:
        """The name of an instant's file in its state; that of a completed compaction is a commit's."""
        action = instant.action
        if instant.is_completed or (action, instant.state) not in self._suffix_of:
            action = action.completed_as
        time: str = instant.requested_time
        in_name = self.has_completion_times and not instant.by_modification
        if instant.is_completed and in_name and instant.completion_time:
            time = f"{time}_{instant.completion_time}"
        return time + self._suffix_of[action, instant.state]

    def path(self, instant: Instant) -> str:
        """The path of the instant's file, relative to the table's base path."""
        return f"{self.folder}/{self.file_name(instant)}"

    def decode_commit(self, data: bytes, path: str) -> CommitMetadata:
        """Commit metadata of a completed or inflight instant. FormatError naming `path`."""
        return commit_of(self._codec_of(data).read, data, path)

    def decode_partitions(self, data: bytes, path: str) -> tuple[str, ...]:
        """The partition paths of a completed instant, sorted; nothing else is decoded. FormatError."""
        return part_of(partitions_of, self._codec_of(data).read, data, path)

    def decode_base_files(self, data: bytes, path: str) -> BaseFilesWritten:
        """The base files that a completed instant wrote, summed up; their stats are not decoded. FormatError."""
        return part_of(base_files_of, self._codec_of(data).read, data, path)

    def decode_extra(self, data: bytes, path: str) -> Mapping[str, str]:
        """The extra metadata of a completed instant, the schema included; no stats are decoded. FormatError."""
        return commit_of(self._codec_of(data).read_extra, data, path).extra_metadata

    def encode_commit(self, metadata: CommitMetadata) -> bytes:
        """The bytes of an instant file with commit metadata."""
        return self.codec.encode(metadata, self.release)

    def _codec_of(self, data: bytes) -> CommitCodec:
        """Upgrades by Hudi leave JSON: in inflight files, and in completed files that keep their names of layout 1."""
        return JSON if is_json(data) else self.codec


def instant_of(named: NamedInstant) -> Instant:
    """The instant that a name states."""
    requested, completed, (action, state) = named
    return Instant(InstantTime(requested), action, state, None if completed is None else CompletionTime(completed))


_SUFFIXES_1: Final = _suffixes(clustering_is_an_action=False)
_SUFFIXES_2: Final = _suffixes(clustering_is_an_action=True)


def layout_1(archive: str = "archived") -> TimelineLayout:
    """Layout 1, of table versions up to 6."""
    return TimelineLayout(
        folder=META_FOLDER,
        archive_folder=f"{META_FOLDER}/{archive}",
        release="0.15.0",
        has_completion_times=False,
        placeholder=None,
        clustering=Action.REPLACE_COMMIT,
        repeats_clean_plan=True,
        codec=JSON,
        _action_of=_SUFFIXES_1,
        _suffix_of={action: suffix for suffix, action in _SUFFIXES_1.items()},
    )


def layout_2(
    timeline: str = "timeline", history: str = "history", *, repeats_clean_plan: bool = False
) -> TimelineLayout:
    """Layout 2, of table versions 8 and 9."""
    return TimelineLayout(
        folder=f"{META_FOLDER}/{timeline}",
        archive_folder=f"{META_FOLDER}/{timeline}/{history}",
        release="1.0.2",
        has_completion_times=True,
        placeholder=f"{META_FOLDER}/{timeline}/{history}/.keep",
        clustering=Action.CLUSTERING,
        repeats_clean_plan=repeats_clean_plan,
        codec=AVRO,
        _action_of=_SUFFIXES_2,
        _suffix_of={action: suffix for suffix, action in _SUFFIXES_2.items()},
    )


_FIRST: Final = layout_1()
_SECOND: Final = layout_2()


def name_in_any(instant: Instant) -> str:
    """The name of an instant's file outside of the timeline's folder, without a completion time: a commit does not know
    it before it completes, and Hudi reads such names in every version of tables."""
    return _FIRST.file_name(instant)


def parse_any(file_name: str) -> Instant | None:
    """The instant of such a file, also where Hudi has named it by the layout of a version; None for any other file."""
    return _SECOND.parse(file_name)

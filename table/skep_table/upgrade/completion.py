"""When the instants of timeline layout 1 completed: it is in no file, so it is derived (format guide 14.8).

An instant completed when its completed file was modified. Copies of a table have later times, and some storage cuts
times to seconds. What slices files holds in any case: an instant completed after it was requested, and before the next
slice of a file group that it began was requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final

from skep_format.instant_time import DIGITS, CompletionTime, InstantTime
from skep_format.names import BaseFileName, FileGroupId, LogFileName
from skep_format.table_config import TimelineZone
from skep_format.timeline.metadata import CommitMetadata

_DIGITS_OF_MICROSECONDS: Final = "000"


def modification_of_time(time: CompletionTime, zone: TimelineZone) -> int:
    """The reverse of `time_of_modification`, in milliseconds. ValueError for a text that is no time of a calendar."""
    text = time[:DIGITS].ljust(DIGITS, "0")
    moment = datetime.strptime(text + _DIGITS_OF_MICROSECONDS, "%Y%m%d%H%M%S%f")
    aware = moment.replace(tzinfo=timezone.utc) if zone is TimelineZone.UTC else moment.astimezone()
    return round(aware.timestamp() * 1000)


@dataclass(slots=True)
class CompletionTimes:
    """Collects the writes of a timeline, oldest first, and bounds the times at which they completed."""

    _slices: dict[FileGroupId, InstantTime] = field(default_factory=dict)
    _before: dict[InstantTime, InstantTime] = field(default_factory=dict)

    def add(self, requested: InstantTime, metadata: CommitMetadata) -> None:
        """A completed write: its slices end those before them."""
        for group in _new_slices(requested, metadata):
            earlier = self._slices.get(group)
            if earlier is not None:
                self._before[earlier] = min(self._before.get(earlier, requested), requested)
            self._slices[group] = requested

    def bounded(self, requested: InstantTime, found: CompletionTime) -> CompletionTime:
        """The completion time of an instant for which `found` was recorded."""
        end = self._before.get(requested)
        if end is not None and not found.is_before(CompletionTime(end)):
            found = CompletionTime(end.plus_milliseconds(-1))
        least = CompletionTime(requested.plus_milliseconds(1))
        return max(found, least)


def _new_slices(requested: InstantTime, metadata: CommitMetadata) -> Iterable[FileGroupId]:
    """The file groups in which a write began a slice: by a base file, or by a log file named by its own time."""
    for partition, stats in metadata.partition_to_write_stats.items():
        for stat in stats:
            name = stat.path.rpartition("/")[2]
            log = LogFileName.parse(name)
            if log.instant_time == requested if log is not None else BaseFileName.parse(name) is not None:
                yield FileGroupId(partition, stat.file_id)

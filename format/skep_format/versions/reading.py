"""How queries read a table of one version, where Hudi's releases differ (format guide 8)."""

from __future__ import annotations

from dataclasses import dataclass

from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Instant


@dataclass(frozen=True, slots=True)
class ReadRules:
    """Each release answers the tables of its own version; these are the rules of Hudi 0.15 (6), 1.0 (8) and 1.1 (9).

    `ranges_by_completion_time`: incremental and cdc ranges are of completion times, otherwise of requested times.
    `scans_fully_when_cleaned`: an incremental query whose files were cleaned is read from the whole table.
    `filters_commits_after_merge`: such an answer keeps the rows of the range after merging. Otherwise the log blocks of
    other commits are left out before.
    `has_partial_updates`: log blocks may hold some of the columns, which are completed from the slice below them.
    `partition_values_from_path`: partition columns have their values from the folders, undecoded in incremental and cdc
    queries; otherwise it depends on the query and the table type.
    `widens_floats_exactly`: a float in an Avro block that is read as a double keeps its value; otherwise it goes
    through its decimal text.
    `compact_change_images`: the images of a cdc query are JSON without spaces, otherwise Avro's JSON.
    """

    ranges_by_completion_time: bool
    scans_fully_when_cleaned: bool
    filters_commits_after_merge: bool
    has_partial_updates: bool
    partition_values_from_path: bool
    widens_floats_exactly: bool
    compact_change_images: bool

    def time_in_range(self, instant: Instant) -> InstantTime:
        """The time of a completed instant by which a range of an incremental or cdc query includes it."""
        if not self.ranges_by_completion_time or instant.completion_time is None:
            return instant.requested_time
        return InstantTime(instant.completion_time)

"""Options of the table services, by Hudi's names and with Hudi's defaults."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from skep_table.options import boolean, one_of, option


class CleanPolicy(str, Enum):
    """What a clean leaves: slices that the last commits need, those of the last hours, or so many of each group."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            raise ValueError(f"a number of at least {least}")
        return number

    return parse


CLEAN_POLICY = option(
    "hoodie.cleaner.policy",
    one_of(CleanPolicy),
    CleanPolicy.KEEP_LATEST_COMMITS,
    "What a clean leaves",
    "hoodie.clean.policy",
)
COMMITS_RETAINED = option(
    "hoodie.cleaner.commits.retained",
    _at_least(1),
    10,
    "KEEP_LATEST_COMMITS: the table as of each of so many last commits stays readable",
    "hoodie.clean.commits.retained",
)
HOURS_RETAINED = option(
    "hoodie.cleaner.hours.retained",
    _at_least(1),
    24,
    "KEEP_LATEST_BY_HOURS: the table as of any moment of so many hours stays readable",
    "hoodie.clean.hours.retained",
)
FILE_VERSIONS_RETAINED = option(
    "hoodie.cleaner.fileversions.retained",
    _at_least(1),
    3,
    "KEEP_LATEST_FILE_VERSIONS: so many slices of each file group stay",
    "hoodie.clean.fileversions.retained",
)
INCREMENTAL_CLEAN = option(
    "hoodie.cleaner.incremental.mode",
    boolean,
    True,
    "A clean looks only into partitions that were written to since the last one",
    "hoodie.clean.incremental.enabled",
)
KEEP_MAX_COMMITS = option("hoodie.keep.max.commits", _at_least(2), 30, "More commits than these start an archiving")
KEEP_MIN_COMMITS = option("hoodie.keep.min.commits", _at_least(1), 20, "Archiving leaves so many commits active")
ARCHIVE_BATCH = option("hoodie.commits.archival.batch", _at_least(1), 10, "Entries of one block of an archive file")
COMPACT_DELTA_COMMITS = option(
    "hoodie.compact.inline.max.delta.commits",
    _at_least(1),
    5,
    "Delta commits that start a compaction; archiving leaves these active",
)

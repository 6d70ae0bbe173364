"""How the metadata table of one table version is made and timed (format guide 7.2, 7.3 and 16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skep_format.instant_time import DIGITS, InstantTime

_NO_INSTANT: Final = "00000000000000"
_FIRST_SUFFIX: Final = 10
_INDEX_SUFFIX: Final = 4
_SUFFIX_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class MetadataRules:
    """The metadata tables of one table version.

    `release`: the Hudi release whose record schema they have. `properties`: their settings that no other version has
    alike. `appends_suffixes`: what a metadata table does on its own has the time of an action on the
    data table, with three more digits; otherwise it has a time of its own, and what makes its partitions has
    the first times there are. `column_stats_version` is what the definition of column statistics states; that of
    a record index is V1 then. `partitions_record_index`: the record index may have groups for each partition.
    """

    release: str
    properties: Mapping[str, str]
    appends_suffixes: bool
    column_stats_version: str | None = None
    partitions_record_index: bool = False

    @property
    def defines_indexes(self) -> bool:
        """Whether files of the table state what its indexes hold; otherwise only the records do."""
        return not self.appends_suffixes

    @property
    def first_when_quiet(self) -> bool:
        """Whether one is made only while nothing is pending: its times would come after those of pending actions."""
        return self.appends_suffixes

    def is_first(self, time: InstantTime) -> bool:
        """Whether a delta commit of this time makes a partition."""
        if time.startswith(_NO_INSTANT):
            return True
        if not self.appends_suffixes or len(time) != DIGITS + _SUFFIX_DIGITS:
            return False  # the last digits of a time without a suffix are its milliseconds
        suffix = int(time[-_SUFFIX_DIGITS:])
        return suffix >= _FIRST_SUFFIX or suffix == _INDEX_SUFFIX

    def first_instant(self, last: InstantTime | None, number: int = 0) -> InstantTime:
        """The time of the delta commit that makes the partition `number`, after `last` completed on the data table."""
        if self.appends_suffixes:
            return InstantTime(f"{last or _NO_INSTANT}{_FIRST_SUFFIX + number:03d}")
        return InstantTime(f"{number:017d}")

    def indexing_instant(self, until: InstantTime, number: int = 0) -> InstantTime:
        """The time of the delta commit that begins partitions to be built of what is there until `until`."""
        if self.appends_suffixes:
            return InstantTime(f"{until}{_INDEX_SUFFIX:03d}")
        return self.first_instant(until, number)


_STRATEGY_OF_PAYLOADS: Final = "00000000-0000-0000-0000-000000000000"


def _properties_of_1x(version: int) -> Mapping[str, str]:
    return {
        "hoodie.table.version": str(version),
        "hoodie.timeline.layout.version": "2",
        "hoodie.archivelog.folder": "history",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": _STRATEGY_OF_PAYLOADS,
        "hoodie.table.initial.version": str(version),
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.timeline.history.path": "history",
        "hoodie.timeline.path": "timeline",
    }


RULES_OF_0_15: Final = MetadataRules(
    release="0.15.0",
    properties={
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.archivelog.folder": "archived",
        "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        "hoodie.table.keygenerator.class": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
    },
    appends_suffixes=True,
)
RULES_OF_1_0: Final = MetadataRules(release="1.0.2", properties=_properties_of_1x(8), appends_suffixes=False)
RULES_OF_1_1: Final = MetadataRules(
    release="1.1.1",
    properties=_properties_of_1x(9),
    appends_suffixes=False,
    column_stats_version="V2",
    partitions_record_index=True,
)

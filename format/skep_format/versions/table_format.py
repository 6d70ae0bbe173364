"""The format of a table by its version: one frozen object, composed of the parts that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from skep_format.distribution import OLDER_TABLE_VERSIONS, TABLE_VERSIONS
from skep_format.names import DEFAULT_PARTITION, META_FOLDER, MarkerType
from skep_format.storage import Storage
from skep_format.table_config import ARCHIVE_FOLDER, HISTORY_PATH, TIMELINE_PATH, TableConfig
from skep_format.table_config.keys import BOOTSTRAP_INDEX_CLASS, BOOTSTRAP_INDEX_TYPE
from skep_format.table_config.merging import (
    MergeRequest,
    MergeSettings,
    by_mode,
    by_mode_and_payload,
    by_payload_class,
)
from skep_format.timeline.archive import ArchivedLog
from skep_format.timeline.layout import TimelineLayout, layout_1, layout_2
from skep_format.timeline.lsm_archive import LsmArchive
from skep_format.timeline.timeline import Archive
from skep_format.versions.logs import LogNaming
from skep_format.versions.metadata import RULES_OF_0_15, RULES_OF_1_0, RULES_OF_1_1, MetadataRules
from skep_format.versions.reading import ReadRules

if TYPE_CHECKING:
    from skep_format.timeline.archive_writer import ArchiveSetting, ArchiveWriter


class MergeSource(Enum):
    """Which table settings determine how rows with one key merge."""

    PAYLOAD_CLASS = "hoodie.compaction.payload.class"
    MERGE_MODE = "hoodie.record.merge.mode"


@dataclass(frozen=True, slots=True)
class StreamerKeys:
    """Keys in a commit's extra metadata: the checkpoint of a streamer, and the one that its caller last set."""

    checkpoint: str
    reset: str


@dataclass(frozen=True, slots=True)
class TableFormat:
    """What differs by table version.

    `version` is the value of `hoodie.table.version`, `first_release` the release of Hudi that brought it: those before
    refuse such a table, in engines too. `merge_settings`: how a new table states what its maker requests
    of merging; OptionError for what contradicts itself or what this version can't hold. `keeps_partition_types`: the
    table's partition fields have the types of a CUSTOM key generator; otherwise the option that gave them is kept.
    `prefixes_single_keys`: the COMPLEX key generator writes `id:k1` for one record key field too, not `k1`.
    `chooses_times_under_lock`: every writer chooses both times of an instant under the lock, and none lies before one
    that is there; otherwise others may choose requested times without it (`commit/instants.py`).
    `compactions_have_change_logs`: in a table with change data, a compaction writes what its merge changed.
    `marks_rings_in_partitions`: the marker of a hash ring lies among the data files (`hashing_metadata.marker_path`).
    `streamer_keys`: in the extra metadata of commits, how far a streamer has read its source.
    `null_partition`: the folder, or its value, in which writers put rows without partition value.
    `has_checksum`: whether the settings state theirs.
    `is_written`: whether it can be written. Tables of older versions are read, by listing their folders: what their
    metadata tables hold, and whether these are up to date, follows other rules. Before a write they are upgraded.
    `bootstrap_index`: the settings by which a bootstrapped table states that it has an index in HFiles.
    """

    version: int
    first_release: str
    logs: LogNaming
    merge_source: MergeSource
    merge_settings: Callable[[MergeRequest], MergeSettings]
    keeps_partition_types: bool
    prefixes_single_keys: bool
    chooses_times_under_lock: bool
    compactions_have_change_logs: bool
    marks_rings_in_partitions: bool
    streamer_keys: StreamerKeys
    bootstrap_index: tuple[str, str]
    reads: ReadRules
    metadata: MetadataRules
    _layout: Callable[[TableConfig], TimelineLayout]
    _archive: Callable[[Storage, str], Archive]
    _archive_writer: Callable[[ArchiveSetting], ArchiveWriter]
    null_partition: str = DEFAULT_PARTITION
    has_checksum: bool = True
    is_written: bool = True

    def __reduce__(self) -> tuple[object, ...]:
        return format_of_version, (self.version,)

    def timeline_layout(self, config: TableConfig) -> TimelineLayout:
        """Names and encodings of the timeline's files, in the folders that the table's properties name."""
        return self._layout(config)

    def open_archive(self, storage: Storage, config: TableConfig) -> Archive:
        """The archived timeline. Nothing is read before it is used."""
        return self._archive(storage, self._layout(config).archive_folder)

    def archive_writer(self, setting: ArchiveSetting) -> ArchiveWriter:
        """What moves instants into the archive, for the holder of the table's lock."""
        return self._archive_writer(setting)


def _log_writer(setting: ArchiveSetting) -> ArchiveWriter:
    from skep_format.timeline.archive_log_writer import LogWriter  # reading a timeline does not need it

    return LogWriter(setting)


def _history_writer(setting: ArchiveSetting) -> ArchiveWriter:
    from skep_format.timeline.archive_writer import HistoryWriter

    return HistoryWriter(setting)


def _layout_2(config: TableConfig, *, repeats_clean_plan: bool = False) -> TimelineLayout:
    folder, history = config.raw.get(TIMELINE_PATH) or "timeline", config.raw.get(HISTORY_PATH) or "history"
    return layout_2(folder, history, repeats_clean_plan=repeats_clean_plan)


_READS_OF_0_15: Final = ReadRules(
    ranges_by_completion_time=False,
    scans_fully_when_cleaned=False,
    filters_commits_after_merge=False,
    has_partial_updates=False,
    partition_values_from_path=False,
    widens_floats_exactly=True,
    compact_change_images=False,
)
_READS_OF_1_0: Final = ReadRules(
    ranges_by_completion_time=True,
    scans_fully_when_cleaned=True,
    filters_commits_after_merge=True,
    has_partial_updates=True,
    partition_values_from_path=True,
    widens_floats_exactly=True,
    compact_change_images=True,
)
_READS_OF_1_1: Final = replace(_READS_OF_1_0, widens_floats_exactly=False)

_STREAMER_OF_0_15: Final = StreamerKeys("deltastreamer.checkpoint.key", "deltastreamer.checkpoint.reset_key")
_STREAMER_OF_1_0: Final = StreamerKeys("streamer.checkpoint.key.v2", "streamer.checkpoint.reset.key.v2")
STREAMER_KEYS: Final = (_STREAMER_OF_1_0, _STREAMER_OF_0_15)
"""Those of all versions: a table that was upgraded has commits with the older ones."""

_INDEX_BY_CLASS: Final = (BOOTSTRAP_INDEX_CLASS, "org.apache.hudi.common.bootstrap.index.hfile.HFileBootstrapIndex")
_INDEX_BY_TYPE: Final = (BOOTSTRAP_INDEX_TYPE, "HFILE")

_VERSION_6: Final = TableFormat(
    version=6,
    first_release="0.14",
    logs=LogNaming(of_delta_commit=False, marker_type=MarkerType.APPEND, has_positions=False),
    merge_source=MergeSource.PAYLOAD_CLASS,
    merge_settings=by_payload_class,
    keeps_partition_types=False,
    prefixes_single_keys=False,
    chooses_times_under_lock=False,
    compactions_have_change_logs=False,
    marks_rings_in_partitions=True,
    streamer_keys=_STREAMER_OF_0_15,
    bootstrap_index=_INDEX_BY_CLASS,
    reads=_READS_OF_0_15,
    metadata=RULES_OF_0_15,
    _layout=lambda config: layout_1(config.raw.get(ARCHIVE_FOLDER) or "archived"),
    _archive=ArchivedLog,
    _archive_writer=_log_writer,
)
_VERSION_8: Final = TableFormat(
    version=8,
    first_release="1.0",
    logs=LogNaming(of_delta_commit=True, marker_type=MarkerType.CREATE, has_positions=True),
    merge_source=MergeSource.MERGE_MODE,
    merge_settings=by_mode_and_payload,
    keeps_partition_types=True,
    prefixes_single_keys=False,
    chooses_times_under_lock=True,
    compactions_have_change_logs=True,
    marks_rings_in_partitions=False,
    streamer_keys=_STREAMER_OF_1_0,
    bootstrap_index=_INDEX_BY_TYPE,
    reads=_READS_OF_1_0,
    metadata=RULES_OF_1_0,
    _layout=partial(_layout_2, repeats_clean_plan=True),
    _archive=LsmArchive,
    _archive_writer=_history_writer,
)
_VERSION_9: Final = replace(
    _VERSION_8,
    version=9,
    first_release="1.1",
    merge_settings=by_mode,
    prefixes_single_keys=True,
    reads=_READS_OF_1_1,
    metadata=RULES_OF_1_1,
    _layout=_layout_2,
)
_OLD_NULL_PARTITION: Final = "default"
_OLDER: Final = (
    ("0.1", _OLD_NULL_PARTITION, False),
    ("0.6", _OLD_NULL_PARTITION, False),
    ("0.9", _OLD_NULL_PARTITION, False),
    ("0.10", _OLD_NULL_PARTITION, False),
    ("0.11", _OLD_NULL_PARTITION, True),
    ("0.12", DEFAULT_PARTITION, True),
)
"""Of each older version: first release, folder of rows without partition value, whether settings have a checksum."""
_FORMATS: Final[Mapping[int, TableFormat]] = {
    **{
        version: replace(
            _VERSION_6,
            version=version,
            first_release=release,
            null_partition=folder,
            has_checksum=has_checksum,
            is_written=False,
            # Hudi 0.9 puts it beside the timeline, whatever is stated.
            _archive=lambda storage, folder: ArchivedLog(storage, folder, META_FOLDER),
        )
        for version, (release, folder, has_checksum) in zip(OLDER_TABLE_VERSIONS, _OLDER, strict=True)
    },
    **dict(zip(TABLE_VERSIONS, (_VERSION_6, _VERSION_8, _VERSION_9), strict=True)),
}
DEFAULT: Final = _VERSION_6
"""The format of new tables for which no version is chosen: every engine reads it."""


def format_of_version(version: int) -> TableFormat:
    """The format of one of the known versions."""
    return _FORMATS[version]


def format_of(config: TableConfig) -> TableFormat:
    """The format of a table. A TableConfig has one of the known versions."""
    return format_of_version(config.version)


def known_versions() -> tuple[int, ...]:
    """The table versions that are read and written, oldest first."""
    return TABLE_VERSIONS

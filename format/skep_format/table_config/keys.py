"""Table settings by name: the keys of `hoodie.properties`, enumerations and class names that are their values."""

from __future__ import annotations

from enum import Enum
from typing import Final

from skep_format.names import META_FOLDER

PROPERTIES_PATH: Final = f"{META_FOLDER}/hoodie.properties"
BACKUP_PATH: Final = f"{META_FOLDER}/hoodie.properties.backup"
TIMELINE_FOLDER: Final = f"{META_FOLDER}/timeline"
"""Of layout 2, unless the settings name another one."""

NAME: Final = "hoodie.table.name"
DATABASE: Final = "hoodie.database.name"
TYPE: Final = "hoodie.table.type"
VERSION: Final = "hoodie.table.version"
INITIAL_VERSION: Final = "hoodie.table.initial.version"
LAYOUT_VERSION: Final = "hoodie.timeline.layout.version"
TIMELINE_PATH: Final = "hoodie.timeline.path"
HISTORY_PATH: Final = "hoodie.timeline.history.path"
ARCHIVE_FOLDER: Final = "hoodie.archivelog.folder"
CHECKSUM: Final = "hoodie.table.checksum"
BASE_FORMAT: Final = "hoodie.table.base.file.format"
RECORD_KEY_FIELDS: Final = "hoodie.table.recordkey.fields"
PARTITION_FIELDS: Final = "hoodie.table.partition.fields"
PRECOMBINE_FIELD: Final = "hoodie.table.precombine.field"
ORDERING_FIELDS: Final = "hoodie.table.ordering.fields"
KEY_GENERATOR_CLASS: Final = "hoodie.table.keygenerator.class"
KEY_GENERATOR_TYPE: Final = "hoodie.table.keygenerator.type"
PAYLOAD_CLASS: Final = "hoodie.compaction.payload.class"
MERGE_MODE: Final = "hoodie.record.merge.mode"
MERGE_STRATEGY_ID: Final = "hoodie.record.merge.strategy.id"
LEGACY_MERGE_STRATEGY_ID: Final = "hoodie.compaction.record.merger.strategy"
LEGACY_PAYLOAD_CLASS: Final = "hoodie.table.legacy.payload.class"
PARTIAL_UPDATE_MODE: Final = "hoodie.table.partial.update.mode"
MERGE_PROPERTY_PREFIX: Final = "hoodie.record.merge.property."
DELETE_FIELD: Final = "hoodie.payload.delete.field"
DELETE_MARKER: Final = "hoodie.payload.delete.marker"
UNAVAILABLE_VALUE: Final = "hoodie.write.partial.update.unavailable.value"
BOOTSTRAP_INDEX_CLASS: Final = "hoodie.bootstrap.index.class"
BOOTSTRAP_INDEX_TYPE: Final = "hoodie.bootstrap.index.type"
TIMEZONE: Final = "hoodie.table.timeline.timezone"
POPULATE_META_FIELDS: Final = "hoodie.populate.meta.fields"
HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
DROP_PARTITION_COLUMNS: Final = "hoodie.datasource.write.drop.partition.columns"
METAFILE_AS_BASE_FORMAT: Final = "hoodie.partition.metafile.use.base.format"
CDC_ENABLED: Final = "hoodie.table.cdc.enabled"
CDC_MODE: Final = "hoodie.table.cdc.supplemental.logging.mode"
MULTIPLE_BASE_FORMATS: Final = "hoodie.table.multiple.base.file.formats.enable"
METADATA_PARTITIONS: Final = "hoodie.table.metadata.partitions"
METADATA_PARTITIONS_INFLIGHT: Final = "hoodie.table.metadata.partitions.inflight"
CREATE_SCHEMA: Final = "hoodie.table.create.schema"
TABLE_FORMAT: Final = "hoodie.table.format"


class TableType(str, Enum):
    """Hudi: HoodieTableType."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class MergeMode(str, Enum):
    """Which of two rows with one key stays (format guide 8)."""

    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class PartialUpdateMode(str, Enum):
    """Which columns of the newer row are filled from the older one when rows merge (table version 9)."""

    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


class CdcMode(str, Enum):
    """Which images of a changed row a change data log file contains."""

    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


class TimelineZone(str, Enum):
    """The time zone of instant times; LOCAL is the machine's."""

    UTC = "UTC"
    LOCAL = "LOCAL"


_MODEL: Final = "org.apache.hudi.common.model."
OVERWRITE_WITH_LATEST: Final = _MODEL + "OverwriteWithLatestAvroPayload"
DEFAULT_PAYLOAD: Final = _MODEL + "DefaultHoodieRecordPayload"
_MODE_OF_PAYLOAD: Final = {
    "OverwriteWithLatestAvroPayload": MergeMode.COMMIT_TIME_ORDERING,
    "DefaultHoodieRecordPayload": MergeMode.EVENT_TIME_ORDERING,
    "EventTimeAvroPayload": MergeMode.EVENT_TIME_ORDERING,
}
STRATEGY_OF_MODE: Final = {
    MergeMode.COMMIT_TIME_ORDERING: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
    MergeMode.EVENT_TIME_ORDERING: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    MergeMode.CUSTOM: "00000000-0000-0000-0000-000000000000",
}
PAYLOAD_STRATEGY: Final = STRATEGY_OF_MODE[MergeMode.CUSTOM]
"""The merge strategy of tables that a payload class merges; any other than Hudi's three is a merger's own."""
MODE_OF_STRATEGY: Final = {strategy: mode for mode, strategy in STRATEGY_OF_MODE.items()}

_KEYGEN: Final = "org.apache.hudi.keygen."
TIMESTAMP_KEY_GENERATOR: Final = "TIMESTAMP"  # folder names are formatted times
CLASS_OF_KEY_GENERATOR: Final = {
    "SIMPLE": _KEYGEN + "SimpleKeyGenerator",
    "COMPLEX": _KEYGEN + "ComplexKeyGenerator",
    "NON_PARTITION": _KEYGEN + "NonpartitionedKeyGenerator",
    TIMESTAMP_KEY_GENERATOR: _KEYGEN + "TimestampBasedKeyGenerator",
    "CUSTOM": _KEYGEN + "CustomKeyGenerator",
    "GLOBAL_DELETE": _KEYGEN + "GlobalDeleteKeyGenerator",
    "HOODIE_TABLE_METADATA": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
}
KEY_GENERATOR_OF_CLASS: Final = {name: kind for kind, name in CLASS_OF_KEY_GENERATOR.items()}
USER_PROVIDED: Final = "USER_PROVIDED"
"""The key generator's type when its class is not one of Hudi's."""
PAYLOAD_OF_MODE: Final = {
    MergeMode.COMMIT_TIME_ORDERING: OVERWRITE_WITH_LATEST,
    MergeMode.EVENT_TIME_ORDERING: DEFAULT_PAYLOAD,
    MergeMode.CUSTOM: "",
}


def mode_of_payload(payload_class: str) -> MergeMode:
    """The merge mode that a payload class corresponds to; CUSTOM for an unknown class."""
    return _MODE_OF_PAYLOAD.get(simple_name(payload_class), MergeMode.CUSTOM)


def simple_name(class_name: str) -> str:
    """A Java class without its package."""
    return class_name.rpartition(".")[2]

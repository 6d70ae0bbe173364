"""The Avro schemas of Hudi's own records: instants, plans, delete blocks and the metadata table (format guide 12).

Each record is defined once, with the release that added each member. The order of members and of union branches is
the wire format.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

NAMESPACE: Final = "org.apache.hudi.avro.model"
RELEASES: Final = ("0.14.1", "0.15.0", "1.0.2", "1.1.1")
"""Hudi releases whose record schemas are defined here, oldest first."""

_NO_DEFAULT: Final = object()


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a record: Avro type (records by name), default, and the first release that has it."""

    name: str
    type: Any
    default: Any = _NO_DEFAULT
    since: str = RELEASES[0]


@dataclass(frozen=True, slots=True)
class Branch:
    """A union's branch that a release added at the end."""

    type: Any
    since: str


def optional(item: Any) -> list[Any]:
    """A union with null, null first."""
    return ["null", item]


def list_of(item: Any) -> dict[str, Any]:
    """An Avro array type."""
    return {"type": "array", "items": item}


def map_of(value: Any) -> dict[str, Any]:
    """An Avro map type whose keys Java reads as `String`."""
    return {"type": "map", "values": value, "avro.java.string": "String"}


_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
_TIME_MICROS: Final = {"type": "long", "logicalType": "time-micros"}
_VALUE: Final = (
    "null",
    "BooleanWrapper",
    "IntWrapper",
    "LongWrapper",
    "FloatWrapper",
    "DoubleWrapper",
    "BytesWrapper",
    "StringWrapper",
    "DateWrapper",
    "DecimalWrapper",
    "TimeMicrosWrapper",
    "TimestampMicrosWrapper",
)
# The two unions of wrapped values differ in the type at index 12.
_DELETE_ORDERING: Final = [*_VALUE, Branch("ArrayWrapper", "1.1.1")]
_COLUMN_VALUE: Final = [*_VALUE, Branch("LocalDateWrapper", "1.0.2"), Branch("ArrayWrapper", "1.1.1")]

_COMMIT: Final = (
    Member("partitionToWriteStats", optional(map_of(list_of("HoodieWriteStat"))), None),
    Member("compacted", optional("boolean"), None, since="1.0.2"),
    Member("extraMetadata", optional(map_of("string")), None),
    Member("version", ["int", "null"], 1),
    Member("operationType", optional("string"), None),
)
RECORDS: Final[Mapping[str, tuple[Member, ...]]] = {
    # Shared small records
    "HoodieActionInstant": (
        Member("timestamp", "string"),
        Member("action", "string"),
        Member("state", "string"),
    ),
    "HoodieInstantInfo": (
        Member("commitTime", "string"),
        Member("action", "string"),
    ),
    # Clean
    "HoodieCleanerPlan": (
        Member("earliestInstantToRetain", optional("HoodieActionInstant"), None),
        Member("lastCompletedCommitTimestamp", "string", ""),
        Member("policy", "string"),
        Member("filesToBeDeletedPerPartition", optional(map_of(list_of("string"))), None),
        Member("version", ["int", "null"], 1),
        Member("filePathsToBeDeletedPerPartition", optional(map_of(list_of("HoodieCleanFileInfo"))), None),
        Member("partitionsToBeDeleted", optional(list_of("string")), None),
        Member("extraMetadata", optional(map_of("string")), None, since="0.15.0"),
    ),
    "HoodieCleanFileInfo": (
        Member("filePath", optional("string"), None),
        Member("isBootstrapBaseFile", optional("boolean"), None),
    ),
    "HoodieCleanMetadata": (
        Member("startCleanTime", "string"),
        Member("timeTakenInMillis", "long"),
        Member("totalFilesDeleted", "int"),
        Member("earliestCommitToRetain", "string"),
        Member("lastCompletedCommitTimestamp", "string", ""),
        Member("partitionMetadata", map_of("HoodieCleanPartitionMetadata")),
        Member("version", ["int", "null"], 1),
        Member("bootstrapPartitionMetadata", optional(map_of("HoodieCleanPartitionMetadata")), None),
        Member("extraMetadata", optional(map_of("string")), None, since="0.15.0"),
    ),
    "HoodieCleanPartitionMetadata": (
        Member("partitionPath", "string"),
        Member("policy", "string"),
        Member("deletePathPatterns", list_of("string")),
        Member("successDeleteFiles", list_of("string")),
        Member("failedDeleteFiles", list_of("string")),
        Member("isPartitionDeleted", optional("boolean"), None),
    ),
    # Rollback
    "HoodieRollbackPlan": (
        Member("instantToRollback", optional("HoodieInstantInfo"), None),
        Member("RollbackRequests", optional(list_of("HoodieRollbackRequest")), None),
        Member("version", ["int", "null"], 1),
    ),
    "HoodieRollbackRequest": (
        Member("partitionPath", "string"),
        Member("fileId", optional("string"), None),
        Member("latestBaseInstant", optional("string"), None),
        Member("filesToBeDeleted", list_of("string"), []),
        Member("logBlocksToBeDeleted", optional(map_of("long")), None),
    ),
    "HoodieRollbackMetadata": (
        Member("startRollbackTime", "string"),
        Member("timeTakenInMillis", "long"),
        Member("totalFilesDeleted", "int"),
        Member("commitsRollback", list_of("string")),
        Member("partitionMetadata", map_of("HoodieRollbackPartitionMetadata")),
        Member("version", ["int", "null"], 1),
        Member("instantsRollback", list_of("HoodieInstantInfo"), []),
    ),
    "HoodieRollbackPartitionMetadata": (
        Member("partitionPath", "string"),
        Member("successDeleteFiles", list_of("string")),
        Member("failedDeleteFiles", list_of("string")),
        Member("rollbackLogFiles", optional(map_of("long")), None),
        Member("logFilesFromFailedCommit", optional(map_of("long")), None),
    ),
    # Restore
    "HoodieRestorePlan": (
        Member("instantsToRollback", list_of("HoodieInstantInfo"), []),
        Member("version", ["int", "null"], 2),
        Member("savepointToRestoreTimestamp", optional("string"), None),
    ),
    "HoodieRestoreMetadata": (
        Member("startRestoreTime", "string"),
        Member("timeTakenInMillis", "long"),
        Member("instantsToRollback", list_of("string")),
        Member("hoodieRestoreMetadata", map_of(list_of(optional("HoodieRollbackMetadata")))),
        Member("version", ["int", "null"], 1),
        Member("restoreInstantInfo", list_of("HoodieInstantInfo"), []),
    ),
    # Savepoint
    "HoodieSavepointMetadata": (
        Member("savepointedBy", "string"),
        Member("savepointedAt", "long"),
        Member("comments", "string"),
        Member("partitionMetadata", map_of("HoodieSavepointPartitionMetadata")),
        Member("version", ["int", "null"], 1),
    ),
    "HoodieSavepointPartitionMetadata": (
        Member("partitionPath", "string"),
        Member("savepointDataFile", list_of("string")),
    ),
    # Compaction and log compaction plans
    "HoodieCompactionPlan": (
        Member("operations", optional(list_of("HoodieCompactionOperation")), None),
        Member("extraMetadata", optional(map_of("string")), None),
        Member("version", ["int", "null"], 1),
        Member("strategy", optional("HoodieCompactionStrategy"), None),
        Member("preserveHoodieMetadata", ["boolean", "null"], False),
        Member("missingSchedulePartitions", optional(list_of("string")), None, since="1.0.2"),
    ),
    "HoodieCompactionOperation": (
        Member("baseInstantTime", optional("string")),
        Member("deltaFilePaths", optional(list_of("string")), None),
        Member("dataFilePath", optional("string"), None),
        Member("fileId", optional("string")),
        Member("partitionPath", optional("string"), None),
        Member("metrics", optional(map_of("double")), None),
        Member("bootstrapFilePath", optional("string"), None),
    ),
    "HoodieCompactionStrategy": (
        Member("compactorClassName", optional("string"), None),
        Member("strategyParams", optional(map_of("string")), None),
        Member("version", ["int", "null"], 1),
    ),
    # Replace commit / clustering plans
    "HoodieRequestedReplaceMetadata": (
        Member("operationType", optional("string"), None),
        Member("clusteringPlan", optional("HoodieClusteringPlan"), None),
        Member("extraMetadata", optional(map_of("string")), None),
        Member("version", ["int", "null"], 1),
    ),
    "HoodieClusteringPlan": (
        Member("inputGroups", optional(list_of("HoodieClusteringGroup")), None),
        Member("strategy", optional("HoodieClusteringStrategy"), None),
        Member("extraMetadata", optional(map_of("string")), None),
        Member("version", ["int", "null"], 1),
        Member("preserveHoodieMetadata", optional("boolean"), None),
        Member("missingSchedulePartitions", optional(list_of("string")), None, since="1.0.2"),
    ),
    "HoodieClusteringGroup": (
        Member("slices", optional(list_of("HoodieSliceInfo")), None),
        Member("metrics", optional(map_of("double")), None),
        Member("numOutputFileGroups", ["int", "null"], 1),
        Member("extraMetadata", optional(map_of("string")), None),
        Member("version", ["int", "null"], 1),
    ),
    "HoodieSliceInfo": (
        Member("dataFilePath", optional("string"), None),
        Member("deltaFilePaths", optional(list_of("string")), None),
        Member("fileId", optional("string")),
        Member("partitionPath", optional("string"), None),
        Member("bootstrapFilePath", optional("string"), None),
        Member("version", ["int", "null"], 1),
    ),
    "HoodieClusteringStrategy": (
        Member("strategyClassName", optional("string"), None),
        Member("strategyParams", optional(map_of("string")), None),
        Member("version", ["int", "null"], 1),
    ),
    # Indexing
    "HoodieIndexPlan": (
        Member("version", ["int", "null"], 1),
        Member("indexPartitionInfos", optional(list_of("HoodieIndexPartitionInfo")), None),
    ),
    "HoodieIndexPartitionInfo": (
        Member("version", ["int", "null"], 1),
        Member("metadataPartitionPath", optional("string"), None),
        Member("indexUptoInstant", optional("string"), None),
        Member("extraMetadata", optional(map_of("string")), None, since="1.0.2"),
    ),
    "HoodieIndexCommitMetadata": (
        Member("version", ["int", "null"], 1),
        Member("operationType", optional("string"), None),
        Member("indexPartitionInfos", optional(list_of("HoodieIndexPartitionInfo")), None),
    ),
    # Commit metadata (Avro form; timeline v2 and archived v1)
    "HoodieCommitMetadata": _COMMIT,
    "HoodieReplaceCommitMetadata": (
        *_COMMIT,
        Member("partitionToReplaceFileIds", optional(map_of(list_of("string"))), None),
    ),
    "HoodieWriteStat": (
        Member("fileId", optional("string"), None),
        Member("path", optional("string"), None),
        Member("prevCommit", optional("string"), None),
        Member("numWrites", optional("long"), None),
        Member("numDeletes", optional("long"), None),
        Member("numUpdateWrites", optional("long"), None),
        Member("totalWriteBytes", optional("long"), None),
        Member("totalWriteErrors", optional("long"), None),
        Member("partitionPath", optional("string"), None),
        Member("totalLogRecords", optional("long"), None),
        Member("totalLogFiles", optional("long"), None),
        Member("totalUpdatedRecordsCompacted", optional("long"), None),
        Member("numInserts", optional("long"), None),
        Member("totalLogBlocks", optional("long"), None),
        Member("totalCorruptLogBlock", optional("long"), None),
        Member("totalRollbackBlocks", optional("long"), None),
        Member("fileSizeInBytes", optional("long"), None),
        Member("logVersion", optional("int"), None, since="1.0.2"),
        Member("logOffset", optional("long"), None, since="1.0.2"),
        Member("baseFile", optional("string"), None, since="1.0.2"),
        Member("logFiles", optional(list_of("string")), None, since="1.0.2"),
        Member("cdcStats", optional(map_of("long")), None, since="1.0.2"),
        Member("prevBaseFile", optional("string"), None, since="1.0.2"),
        Member("minEventTime", optional("long"), None, since="1.0.2"),
        Member("maxEventTime", optional("long"), None, since="1.0.2"),
        Member("runtimeStats", optional("HoodieRuntimeStats"), None, since="1.0.2"),
        Member("totalLogFilesCompacted", optional("long"), None, since="1.0.2"),
        Member("totalLogReadTimeMs", optional("long"), None, since="1.0.2"),
        Member("totalLogSizeCompacted", optional("long"), None, since="1.0.2"),
        Member("tempPath", optional("string"), None, since="1.0.2"),
        Member("numUpdates", optional("long"), None, since="1.0.2"),
    ),
    "HoodieRuntimeStats": (
        Member("totalScanTime", optional("long"), None),
        Member("totalCreateTime", optional("long"), None),
        Member("totalUpsertTime", optional("long"), None),
    ),
    # Archived timeline v1
    "HoodieArchivedMetaEntry": (
        Member("hoodieCommitMetadata", optional("HoodieCommitMetadata"), None),
        Member("hoodieCleanMetadata", optional("HoodieCleanMetadata"), None),
        Member("hoodieCompactionMetadata", optional("HoodieCompactionMetadata"), None),
        Member("hoodieRollbackMetadata", optional("HoodieRollbackMetadata"), None),
        Member("hoodieSavePointMetadata", optional("HoodieSavepointMetadata"), None),
        Member("commitTime", optional("string"), None),
        Member("actionType", optional("string"), None),
        Member("version", ["int", "null"], 1),
        Member("hoodieCompactionPlan", optional("HoodieCompactionPlan"), None),
        Member("hoodieCleanerPlan", optional("HoodieCleanerPlan"), None),
        Member("actionState", optional("string"), None),
        Member("hoodieReplaceCommitMetadata", optional("HoodieReplaceCommitMetadata"), None),
        Member("hoodieRequestedReplaceMetadata", optional("HoodieRequestedReplaceMetadata"), None),
        Member("HoodieInflightReplaceMetadata", optional("HoodieCommitMetadata"), None),
        Member("hoodieIndexCommitMetadata", optional("HoodieIndexCommitMetadata"), None),
        Member("stateTransitionTime", optional("string"), None),
    ),
    "HoodieMergeArchiveFilePlan": (
        Member("version", ["int", "null"], 1),
        Member("candidate", optional(list_of("string")), None),
        Member("mergedArchiveFileName", optional("string"), None),
    ),
    "HoodieCompactionMetadata": (
        Member("partitionToCompactionWriteStats", optional(map_of(list_of("HoodieCompactionWriteStat")))),
    ),
    "HoodieCompactionWriteStat": (
        Member("partitionPath", optional("string"), None),
        Member("totalLogRecords", optional("long"), None),
        Member("totalLogFiles", optional("long"), None),
        Member("totalUpdatedRecordsCompacted", optional("long"), None),
        Member("hoodieWriteStat", optional("HoodieWriteStat"), None),
    ),
    # History timeline v2
    "HoodieLSMTimelineInstant": (
        Member("instantTime", optional("string"), None),
        Member("completionTime", optional("string"), None),
        Member("action", optional("string"), None),
        Member("metadata", optional("bytes"), None),
        Member("plan", optional("bytes"), None),
        Member("version", "int", 1),
    ),
    # Delete block and value wrappers
    "HoodieDeleteRecordList": (Member("deleteRecordList", list_of("HoodieDeleteRecord")),),
    "HoodieDeleteRecord": (
        Member("recordKey", optional("string"), None),
        Member("partitionPath", optional("string"), None),
        Member("orderingVal", _DELETE_ORDERING, None),
    ),
    "BooleanWrapper": (Member("value", "boolean"),),
    "IntWrapper": (Member("value", "int"),),
    "LongWrapper": (Member("value", "long"),),
    "FloatWrapper": (Member("value", "float"),),
    "DoubleWrapper": (Member("value", "double"),),
    "BytesWrapper": (Member("value", "bytes"),),
    "StringWrapper": (Member("value", "string"),),
    "DateWrapper": (Member("value", "int"),),
    "DecimalWrapper": (Member("value", _DECIMAL),),
    "TimeMicrosWrapper": (Member("value", _TIME_MICROS),),
    "TimestampMicrosWrapper": (Member("value", "long"),),
    "LocalDateWrapper": (Member("value", "int"),),
    "ArrayWrapper": (Member("wrappedValues", optional(list_of([*_VALUE, "LocalDateWrapper"])), None),),
    # Metadata table
    "HoodieMetadataRecord": (
        Member("key", "string"),
        Member("type", "int"),
        Member("filesystemMetadata", optional(map_of("HoodieMetadataFileInfo"))),
        Member("BloomFilterMetadata", optional("HoodieMetadataBloomFilter"), None),
        Member("ColumnStatsMetadata", optional("HoodieMetadataColumnStats"), None),
        Member("recordIndexMetadata", optional("HoodieRecordIndexInfo"), None),
        Member("SecondaryIndexMetadata", optional("HoodieSecondaryIndexInfo"), None, since="1.0.2"),
    ),
    "HoodieMetadataFileInfo": (
        Member("size", "long"),
        Member("isDeleted", "boolean"),
    ),
    "HoodieMetadataBloomFilter": (
        Member("type", "string"),
        Member("timestamp", "string"),
        Member("bloomFilter", "bytes"),
        Member("isDeleted", "boolean"),
    ),
    "HoodieMetadataColumnStats": (
        Member("fileName", optional("string"), None),
        Member("columnName", optional("string"), None),
        Member("minValue", _COLUMN_VALUE, None),
        Member("maxValue", _COLUMN_VALUE, None),
        Member("valueCount", optional("long"), None),
        Member("nullCount", optional("long"), None),
        Member("totalSize", optional("long"), None),
        Member("totalUncompressedSize", optional("long"), None),
        Member("isDeleted", "boolean"),
        Member("isTightBound", "boolean", False, since="1.0.2"),
        Member("valueType", optional("HoodieValueTypeInfo"), None, since="1.1.1"),
    ),
    "HoodieValueTypeInfo": (
        Member("typeOrdinal", "int"),
        Member("additionalInfo", optional("string"), None),
    ),
    "HoodieRecordIndexInfo": (
        Member("partitionName", optional("string"), None),
        Member("fileIdHighBits", optional("long"), None),
        Member("fileIdLowBits", optional("long"), None),
        Member("fileIndex", optional("int"), None),
        Member("fileId", optional("string"), None),
        Member("instantTime", optional("long"), None),
        Member("fileIdEncoding", "int", 0),
        Member("position", optional("long"), None, since="1.0.2"),
    ),
    "HoodieSecondaryIndexInfo": (Member("isDeleted", "boolean"),),
    # Bootstrap index
    "HoodieBootstrapIndexInfo": (
        Member("version", ["int", "null"], 1),
        Member("bootstrapBasePath", optional("string"), None),
        Member("createdTimestamp", optional("long"), None),
        Member("numKeys", optional("int"), None),
    ),
    "HoodieBootstrapPartitionMetadata": (
        Member("version", ["int", "null"], 1),
        Member("bootstrapPartitionPath", optional("string"), None),
        Member("partitionPath", optional("string"), None),
        Member("fileIdToBootstrapFile", optional(map_of("HoodieFileStatus")), None),
    ),
    "HoodieBootstrapFilePartitionInfo": (
        Member("version", ["int", "null"], 1),
        Member("bootstrapPartitionPath", optional("string"), None),
        Member("bootstrapFileStatus", optional("HoodieFileStatus"), None),
        Member("partitionPath", optional("string"), None),
    ),
    "HoodieFileStatus": (
        Member("version", ["int", "null"], 1),
        Member("path", optional("HoodiePath"), None),
        Member("length", optional("long"), None),
        Member("isDir", optional("boolean"), None),
        Member("blockReplication", optional("int"), None),
        Member("blockSize", optional("long"), None),
        Member("modificationTime", optional("long"), None),
        Member("accessTime", optional("long"), None),
        Member("permission", optional("HoodieFSPermission"), None),
        Member("owner", optional("string"), None),
        Member("group", optional("string"), None),
        Member("symlink", optional("HoodiePath"), None),
    ),
    "HoodiePath": (
        Member("version", ["int", "null"], 1),
        Member("uri", optional("string"), None),
    ),
    "HoodieFSPermission": (
        Member("version", ["int", "null"], 1),
        Member("userAction", optional("string"), None),
        Member("groupAction", optional("string"), None),
        Member("otherAction", optional("string"), None),
        Member("stickyBit", optional("boolean"), None),
    ),
}


@functools.cache
def schema_of(record: str, release: str) -> dict[str, Any]:
    """The Avro schema of a record as `release` has it, as JSON values; other records are defined where first named.

    Strings carry `avro.java.string`, as in all files that Hudi writes: metadata tables can't be read without it. The
    answer is shared: don't change it.
    """
    return _record(record, RELEASES.index(release), set())


def _record(name: str, release: int, defined: set[str]) -> dict[str, Any]:
    defined.add(name)
    members = [member for member in RECORDS[name] if RELEASES.index(member.since) <= release]
    fields = []
    for member in members:
        field = {"name": member.name, "type": _type(member.type, release, defined)}
        if member.default is not _NO_DEFAULT:
            field["default"] = member.default
        fields.append(field)
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": fields}


def _type(stated: Any, release: int, defined: set[str]) -> Any:
    match stated:
        case "string":
            return {"type": "string", "avro.java.string": "String"}
        case str() if stated in RECORDS:
            return f"{NAMESPACE}.{stated}" if stated in defined else _record(stated, release, defined)
        case list():
            return [_type(branch, release, defined) for branch in _branches(stated, release)]
        case {"items": items}:
            return {**stated, "items": _type(items, release, defined)}
        case {"values": values}:
            return {**stated, "values": _type(values, release, defined)}
    return stated


def _branches(union: list[Any], release: int) -> list[Any]:
    listed = [branch if isinstance(branch, Branch) else Branch(branch, RELEASES[0]) for branch in union]
    return [branch.type for branch in listed if RELEASES.index(branch.since) <= release]

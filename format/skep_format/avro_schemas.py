"""The Avro schemas of Hudi's own records: instants, plans, delete blocks and the metadata table (format guide 12).

Each record is defined once, with the release that added each member. The order of members and of union branches is
the wire format.
"""

from __future__ import annotations

import functools
import json
import re
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
_TYPES: Final[Mapping[str, Any]] = {
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "time_micros": {"type": "long", "logicalType": "time-micros"},
    # The two unions of wrapped values differ in the type at index 12.
    "OrderingValue": [*_VALUE, Branch("ArrayWrapper", "1.1.1")],
    "ColumnValue": [*_VALUE, Branch("LocalDateWrapper", "1.0.2"), Branch("ArrayWrapper", "1.1.1")],
    "ElementValue": [*_VALUE, "LocalDateWrapper"],
}
"""Types of members that have a name here only."""

# As Avro's IDL, where `T?` is a union with null, null first, whose default is null; other unions are `A|B`. `@` names
# the release that brought a member, `: R` the record whose members come first.
_RECORDS: Final = """
// Shared small records
record HoodieActionInstant { string timestamp, action, state; }
record HoodieInstantInfo { string commitTime, action; }
// Clean
record HoodieCleanerPlan {
    HoodieActionInstant? earliestInstantToRetain; string lastCompletedCommitTimestamp = ""; string policy;
    map<array<string>>? filesToBeDeletedPerPartition; int|null version = 1;
    map<array<HoodieCleanFileInfo>>? filePathsToBeDeletedPerPartition; array<string>? partitionsToBeDeleted;
    @0.15.0 map<string>? extraMetadata;
}
record HoodieCleanFileInfo { string? filePath; boolean? isBootstrapBaseFile; }
record HoodieCleanMetadata {
    string startCleanTime; long timeTakenInMillis; int totalFilesDeleted; string earliestCommitToRetain;
    string lastCompletedCommitTimestamp = ""; map<HoodieCleanPartitionMetadata> partitionMetadata;
    int|null version = 1; map<HoodieCleanPartitionMetadata>? bootstrapPartitionMetadata;
    @0.15.0 map<string>? extraMetadata;
}
record HoodieCleanPartitionMetadata {
    string partitionPath, policy; array<string> deletePathPatterns, successDeleteFiles, failedDeleteFiles;
    boolean? isPartitionDeleted;
}
// Rollback
record HoodieRollbackPlan {
    HoodieInstantInfo? instantToRollback; array<HoodieRollbackRequest>? RollbackRequests; int|null version = 1;
}
record HoodieRollbackRequest {
    string partitionPath; string? fileId, latestBaseInstant; array<string> filesToBeDeleted = [];
    map<long>? logBlocksToBeDeleted;
}
record HoodieRollbackMetadata {
    string startRollbackTime; long timeTakenInMillis; int totalFilesDeleted; array<string> commitsRollback;
    map<HoodieRollbackPartitionMetadata> partitionMetadata; int|null version = 1;
    array<HoodieInstantInfo> instantsRollback = [];
}
record HoodieRollbackPartitionMetadata {
    string partitionPath; array<string> successDeleteFiles, failedDeleteFiles;
    map<long>? rollbackLogFiles, logFilesFromFailedCommit;
}
// Restore
record HoodieRestorePlan {
    array<HoodieInstantInfo> instantsToRollback = []; int|null version = 2; string? savepointToRestoreTimestamp;
}
record HoodieRestoreMetadata {
    string startRestoreTime; long timeTakenInMillis; array<string> instantsToRollback;
    map<array<null|HoodieRollbackMetadata>> hoodieRestoreMetadata; int|null version = 1;
    array<HoodieInstantInfo> restoreInstantInfo = [];
}
// Savepoint
record HoodieSavepointMetadata {
    string savepointedBy; long savepointedAt; string comments;
    map<HoodieSavepointPartitionMetadata> partitionMetadata; int|null version = 1;
}
record HoodieSavepointPartitionMetadata { string partitionPath; array<string> savepointDataFile; }
// Compaction and log compaction plans
record HoodieCompactionPlan {
    array<HoodieCompactionOperation>? operations; map<string>? extraMetadata; int|null version = 1;
    HoodieCompactionStrategy? strategy; boolean|null preserveHoodieMetadata = false;
    @1.0.2 array<string>? missingSchedulePartitions;
}
record HoodieCompactionOperation {
    null|string baseInstantTime; array<string>? deltaFilePaths; string? dataFilePath; null|string fileId;
    string? partitionPath; map<double>? metrics; string? bootstrapFilePath;
}
record HoodieCompactionStrategy { string? compactorClassName; map<string>? strategyParams; int|null version = 1; }
// Replace commit / clustering plans
record HoodieRequestedReplaceMetadata {
    string? operationType; HoodieClusteringPlan? clusteringPlan; map<string>? extraMetadata; int|null version = 1;
}
record HoodieClusteringPlan {
    array<HoodieClusteringGroup>? inputGroups; HoodieClusteringStrategy? strategy; map<string>? extraMetadata;
    int|null version = 1; boolean? preserveHoodieMetadata; @1.0.2 array<string>? missingSchedulePartitions;
}
record HoodieClusteringGroup {
    array<HoodieSliceInfo>? slices; map<double>? metrics; int|null numOutputFileGroups = 1;
    map<string>? extraMetadata; int|null version = 1;
}
record HoodieSliceInfo {
    string? dataFilePath; array<string>? deltaFilePaths; null|string fileId; string? partitionPath, bootstrapFilePath;
    int|null version = 1;
}
record HoodieClusteringStrategy { string? strategyClassName; map<string>? strategyParams; int|null version = 1; }
// Indexing
record HoodieIndexPlan { int|null version = 1; array<HoodieIndexPartitionInfo>? indexPartitionInfos; }
record HoodieIndexPartitionInfo {
    int|null version = 1; string? metadataPartitionPath, indexUptoInstant; @1.0.2 map<string>? extraMetadata;
}
record HoodieIndexCommitMetadata {
    int|null version = 1; string? operationType; array<HoodieIndexPartitionInfo>? indexPartitionInfos;
}
// Commit metadata (Avro form; timeline v2 and archived v1)
record HoodieCommitMetadata {
    map<array<HoodieWriteStat>>? partitionToWriteStats; @1.0.2 boolean? compacted; map<string>? extraMetadata;
    int|null version = 1; string? operationType;
}
record HoodieReplaceCommitMetadata : HoodieCommitMetadata { map<array<string>>? partitionToReplaceFileIds; }
record HoodieWriteStat {
    string? fileId, path, prevCommit; long? numWrites, numDeletes, numUpdateWrites, totalWriteBytes, totalWriteErrors;
    string? partitionPath;
    long? totalLogRecords, totalLogFiles, totalUpdatedRecordsCompacted, numInserts, totalLogBlocks,
        totalCorruptLogBlock, totalRollbackBlocks, fileSizeInBytes;
    @1.0.2 int? logVersion; @1.0.2 long? logOffset; @1.0.2 string? baseFile; @1.0.2 array<string>? logFiles;
    @1.0.2 map<long>? cdcStats; @1.0.2 string? prevBaseFile; @1.0.2 long? minEventTime, maxEventTime;
    @1.0.2 HoodieRuntimeStats? runtimeStats;
    @1.0.2 long? totalLogFilesCompacted, totalLogReadTimeMs, totalLogSizeCompacted; @1.0.2 string? tempPath;
    @1.0.2 long? numUpdates;
}
record HoodieRuntimeStats { long? totalScanTime, totalCreateTime, totalUpsertTime; }
// Archived timeline v1
record HoodieArchivedMetaEntry {
    HoodieCommitMetadata? hoodieCommitMetadata; HoodieCleanMetadata? hoodieCleanMetadata;
    HoodieCompactionMetadata? hoodieCompactionMetadata; HoodieRollbackMetadata? hoodieRollbackMetadata;
    HoodieSavepointMetadata? hoodieSavePointMetadata; string? commitTime, actionType; int|null version = 1;
    HoodieCompactionPlan? hoodieCompactionPlan; HoodieCleanerPlan? hoodieCleanerPlan; string? actionState;
    HoodieReplaceCommitMetadata? hoodieReplaceCommitMetadata;
    HoodieRequestedReplaceMetadata? hoodieRequestedReplaceMetadata;
    HoodieCommitMetadata? HoodieInflightReplaceMetadata; HoodieIndexCommitMetadata? hoodieIndexCommitMetadata;
    string? stateTransitionTime;
}
record HoodieCompactionMetadata { null|map<array<HoodieCompactionWriteStat>> partitionToCompactionWriteStats; }
record HoodieCompactionWriteStat {
    string? partitionPath; long? totalLogRecords, totalLogFiles, totalUpdatedRecordsCompacted;
    HoodieWriteStat? hoodieWriteStat;
}
// History timeline v2
record HoodieLSMTimelineInstant {
    string? instantTime, completionTime, action; bytes? metadata, plan; int version = 1;
}
// Delete block and value wrappers
record HoodieDeleteRecordList { array<HoodieDeleteRecord> deleteRecordList; }
record HoodieDeleteRecord { string? recordKey, partitionPath; OrderingValue orderingVal = null; }
record BooleanWrapper { boolean value; }
record IntWrapper { int value; }
record LongWrapper { long value; }
record FloatWrapper { float value; }
record DoubleWrapper { double value; }
record BytesWrapper { bytes value; }
record StringWrapper { string value; }
record DateWrapper { int value; }
record DecimalWrapper { decimal value; }
record TimeMicrosWrapper { time_micros value; }
record TimestampMicrosWrapper { long value; }
record LocalDateWrapper { int value; }
record ArrayWrapper { array<ElementValue>? wrappedValues; }
// Metadata table
record HoodieMetadataRecord {
    string key; int type; null|map<HoodieMetadataFileInfo> filesystemMetadata;
    HoodieMetadataBloomFilter? BloomFilterMetadata; HoodieMetadataColumnStats? ColumnStatsMetadata;
    HoodieRecordIndexInfo? recordIndexMetadata; @1.0.2 HoodieSecondaryIndexInfo? SecondaryIndexMetadata;
}
record HoodieMetadataFileInfo { long size; boolean isDeleted; }
record HoodieMetadataBloomFilter { string type, timestamp; bytes bloomFilter; boolean isDeleted; }
record HoodieMetadataColumnStats {
    string? fileName, columnName; ColumnValue minValue = null; ColumnValue maxValue = null;
    long? valueCount, nullCount, totalSize, totalUncompressedSize; boolean isDeleted;
    @1.0.2 boolean isTightBound = false; @1.1.1 HoodieValueTypeInfo? valueType;
}
record HoodieValueTypeInfo { int typeOrdinal; string? additionalInfo; }
record HoodieRecordIndexInfo {
    string? partitionName; long? fileIdHighBits, fileIdLowBits; int? fileIndex; string? fileId; long? instantTime;
    int fileIdEncoding = 0; @1.0.2 long? position;
}
record HoodieSecondaryIndexInfo { boolean isDeleted; }
// Bootstrap index
record HoodieBootstrapIndexInfo {
    int|null version = 1; string? bootstrapBasePath; long? createdTimestamp; int? numKeys;
}
record HoodieBootstrapPartitionMetadata {
    int|null version = 1; string? bootstrapPartitionPath, partitionPath; map<HoodieFileStatus>? fileIdToBootstrapFile;
}
record HoodieBootstrapFilePartitionInfo {
    int|null version = 1; string? bootstrapPartitionPath; HoodieFileStatus? bootstrapFileStatus;
    string? partitionPath;
}
record HoodieFileStatus {
    int|null version = 1; HoodiePath? path; long? length; boolean? isDir; int? blockReplication;
    long? blockSize, modificationTime, accessTime; HoodieFSPermission? permission; string? owner, group;
    HoodiePath? symlink;
}
record HoodiePath { int|null version = 1; string? uri; }
record HoodieFSPermission { int|null version = 1; string? userAction, groupAction, otherAction; boolean? stickyBit; }
"""
_RECORD: Final = re.compile(r"record (\w+)(?: : (\w+))? \{([^}]*)\}")
_MEMBERS: Final = re.compile(r"(?:@(\S+) )?(\S+) ([^=;]+)(?:= ([^;]+))?;")


@functools.cache
def hudi_records() -> Mapping[str, tuple[Member, ...]]:
    """The members of each record."""
    found: dict[str, tuple[Member, ...]] = {}
    for record, base, body in _RECORD.findall(_RECORDS):
        members = list(found.get(base, ()))
        for since, kind, names, default in _MEMBERS.findall(body):
            value = json.loads(default) if default else None if kind.endswith("?") else _NO_DEFAULT
            members += [Member(name, _parsed(kind), value, since or RELEASES[0]) for name in re.findall(r"\w+", names)]
        found[record] = tuple(members)
    return found


def _parsed(kind: str) -> Any:
    if kind.endswith("?"):
        return ["null", _parsed(kind[:-1])]
    if "|" in kind and "<" not in kind.partition("|")[0]:
        return [_parsed(branch) for branch in kind.split("|")]
    if kind.startswith("array<"):
        return {"type": "array", "items": _parsed(kind[6:-1])}
    if kind.startswith("map<"):
        return {"type": "map", "values": _parsed(kind[4:-1]), "avro.java.string": "String"}
    return _TYPES.get(kind, kind)


@functools.cache
def schema_of(record: str, release: str) -> dict[str, Any]:
    """The Avro schema of a record as `release` has it, as JSON values; other records are defined where first named.

    Strings carry `avro.java.string`, as in all files that Hudi writes: metadata tables can't be read without it. The
    answer is shared: don't change it.
    """
    return _record(record, RELEASES.index(release), set())


def _record(name: str, release: int, defined: set[str]) -> dict[str, Any]:
    defined.add(name)
    members = [member for member in hudi_records()[name] if RELEASES.index(member.since) <= release]
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
        case str() if stated in hudi_records():
            return f"{NAMESPACE}.{stated}" if stated in defined else _record(stated, release, defined)
        case list():
            listed = (each if isinstance(each, Branch) else Branch(each, RELEASES[0]) for each in stated)
            return [_type(each.type, release, defined) for each in listed if RELEASES.index(each.since) <= release]
        case {"items": items}:
            return {**stated, "items": _type(items, release, defined)}
        case {"values": values}:
            return {**stated, "values": _type(values, release, defined)}
    return stated

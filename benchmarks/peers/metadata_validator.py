"""Hudi compares a table's metadata table with its files, as its HoodieMetadataTableValidator does.

That one is in none of the bundles for Spark, but what it asks is: both sides are answers of Hudi's own classes, one of
its metadata table, one of the listing of the storage, of its readers of footers and logs, and of a query of all rows.
Runs within `worker.py`. Where releases differ in a call, the signature that the release has is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

Json = dict[str, Any]

META_FIELDS = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")
PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
DECIMAL_DIGITS = 15
BUFFER_BYTES = 16 << 20
SECONDARY = "secondary_index_"
SLICES = {
    "latest file slices": "getLatestFileSlices",
    "latest base files": "getLatestBaseFiles",
    "all file slices": "getAllFileSlices",
}


class MetadataValidator:
    """One comparison of one table. `differences` are sentences, `compared` counts what was looked at."""

    def __init__(self, spark: Any, path: str) -> None:
        self._spark, self._path = spark, path
        self._java = java = spark._jvm
        self._hudi = hudi = java.org.apache.hudi
        settings = hudi.storage.hadoop.HadoopStorageConfiguration(spark._jsc.hadoopConfiguration())
        self._client = hudi.common.table.HoodieTableMetaClient.builder().setConf(settings).setBasePath(path).build()
        self._config = self._client.getTableConfig()
        self._storage = self._client.getStorage()
        self._engine = hudi.common.engine.HoodieLocalEngineContext(settings)
        self.differences: list[str] = []
        self.compared: Counter[str] = Counter()
        self.columns: set[str] = set()
        self._read: dict[str, dict[str, Any]] = {}

    def run(self) -> Json:
        kept = sorted(self._config.getMetadataPartitions())
        listed, stored = (self._metadata(enabled) for enabled in (True, False))
        views = self._view(True), self._view(False)
        try:
            latest = {}
            for partition in self._partitions(listed, stored):
                self._files(listed, stored, partition)
                latest[partition] = self._slices(*views, partition)
            if "column_stats" in kept:
                self._column_stats(listed, latest)
            if "bloom_filters" in kept:
                self._bloom_filters(listed, latest)
            if "partition_stats" in kept:
                self._partition_stats(listed, latest)
            if "record_index" in kept:
                self._record_index(listed)
            for name in kept:
                if name.startswith(SECONDARY):
                    self._secondary_index(listed, name)
        finally:
            for each in (*views, listed, stored):
                each.close()
        return {
            "differences": self.differences,
            "compared": dict(self.compared),
            "columns": sorted(self.columns),
            "kept": kept,
        }

    # -- the two sides --------------------------------------------------------------------------------------------

    def _metadata_config(self, enabled: bool) -> Any:
        return self._hudi.common.config.HoodieMetadataConfig.newBuilder().enable(enabled).build()

    def _metadata(self, enabled: bool) -> Any:
        metadata = self._hudi.metadata
        if enabled:
            config = self._metadata_config(True)
            reuse_readers = True
            return metadata.HoodieBackedTableMetadata(self._engine, self._storage, config, self._path, reuse_readers)
        if self._release_is_before_1():
            return metadata.FileSystemBackedTableMetadata(self._engine, self._storage, self._path, False)
        return metadata.FileSystemBackedTableMetadata(self._engine, self._storage, self._path)

    def _view(self, enabled: bool) -> Any:
        manager = self._hudi.common.table.view.FileSystemViewManager
        return manager.createInMemoryFileSystemView(self._engine, self._client, self._metadata_config(enabled))

    def _release_is_before_1(self) -> bool:
        return not self._has("org.apache.hudi.metadata.SecondaryIndexKeyUtils")

    def _release_is_before_1_1(self) -> bool:
        return not self._has("org.apache.hudi.metadata.HoodieIndexVersion")

    def _has(self, name: str) -> bool:
        return bool(self._java.org.apache.spark.util.Utils.classIsLoadable(name))

    # -- files ----------------------------------------------------------------------------------------------------

    def _partitions(self, listed: Any, stored: Any) -> list[str]:
        of_metadata = set(listed.getAllPartitionPaths())
        of_storage = {part for part in stored.getAllPartitionPaths() if self._is_committed(part)}
        self._same("partitions", of_metadata, of_storage)
        self.compared["partitions"] += len(of_storage)
        return sorted(of_metadata | of_storage)

    def _is_committed(self, partition: str) -> bool:
        """Whether a write that made this partition, or one behind it, has completed."""
        metadata = self._hudi.common.model.HoodiePartitionMetadata(self._storage, self._folder(partition))
        made = metadata.readPartitionCreatedCommitTime()
        completed = self._client.getCommitsTimeline().filterCompletedInstants()
        if not made.isPresent():
            return False
        return bool(completed.containsOrBeforeTimelineStarts(made.get())) or made.get() <= self._last_time(completed)

    def _last_time(self, timeline: Any) -> str:
        last = timeline.lastInstant()
        if not last.isPresent():
            return ""
        return str(last.get().getTimestamp() if self._release_is_before_1() else last.get().requestedTime())

    def _folder(self, partition: str) -> Any:
        return self._hudi.common.fs.FSUtils.constructAbsolutePath(self._path, partition)

    def _files(self, listed: Any, stored: Any, partition: str) -> None:
        folder = self._folder(partition)
        of_metadata, of_storage = (
            {each.getPath().getName(): each.getLength() for each in side.getAllFilesInPartition(folder)}
            for side in (listed, stored)
        )
        shown = {name: size for name, size in of_storage.items() if not name.startswith(".hoodie_partition_metadata")}
        self._same(f"files of {partition!r}", set(of_metadata.items()), set(shown.items()))
        self.compared["files"] += len(shown)

    def _slices(self, by_metadata: Any, by_storage: Any, partition: str) -> list[Any]:
        """The latest file slices by storage."""
        for what, call in SLICES.items():
            of_metadata, of_storage = (
                {spelt(each) for each in collected(getattr(view, call)(partition))}
                for view in (by_metadata, by_storage)
            )
            self._same(f"{what} of {partition!r}", of_metadata, of_storage)
            self.compared[what] += len(of_storage)
        return collected(by_storage.getLatestFileSlices(partition))

    # -- column statistics ----------------------------------------------------------------------------------------

    def _column_stats(self, listed: Any, latest: dict[str, list[Any]]) -> None:
        files = [(part, path) for part, slices in latest.items() for each in slices for path in paths_of(each)]
        pairs = self._list(self._pair(part, path.getName()) for part, path in files)
        found = {}
        for name in self._column_names():
            for entry in listed.getColumnStats(pairs, name).entrySet():
                found[entry.getKey().getRight(), name] = self._range_of(entry.getValue())
        self.columns = {name for _, name in found}
        for part, path in files:
            for name, expected in self._ranges(part, path).items():
                held = found.get((path.getName(), name))
                self.compared["ranges"] += 1
                if is_stated(expected) and (held is None or facts_of(held) != facts_of(expected)):
                    text = "nothing" if held is None else stated(held)
                    self.differences.append(f"column_stats of {path.getName()}: {text}, by the file {stated(expected)}")

    def _column_names(self) -> list[str]:
        return [str(field.name()) for field in self._schema().getFields()]

    def _range_of(self, record: Any) -> Any:
        if self._release_is_before_1():
            return self._hudi.metadata.HoodieTableMetadataUtil.convertColumnStatsRecordToColumnRangeMetadata(record)
        return self._ranges_class().fromColumnStats(record)

    def _ranges_class(self) -> Any:
        package = self._hudi.common.model if self._release_is_before_1_1() else self._hudi.stats
        return package.HoodieColumnRangeMetadata

    def _schema(self) -> Any:
        resolver = self._hudi.common.table.TableSchemaResolver(self._client)
        return resolver.getTableSchema(True) if self._schema_is_hudis() else resolver.getTableAvroSchema(True)

    def _schema_is_hudis(self) -> bool:
        return self._has("org.apache.hudi.common.schema.HoodieSchema")

    def _ranges(self, partition: str, path: Any) -> dict[str, Any]:
        """Of the columns with statistics, from the footer of a base file or the records of a log file."""
        name = path.getName()
        if name not in self._read:
            columns = self._list(sorted(self.columns))
            if self._hudi.common.fs.FSUtils.isLogFile(path):
                ranges = self._ranges_of_log(partition, path, columns)
            else:
                ranges = self._ranges_of_base_file(path, columns)
            self._read[name] = {each.getColumnName(): each for each in ranges}
        return self._read[name]

    def _ranges_of_base_file(self, path: Any, columns: Any) -> Iterable[Any]:
        files = self._hudi.common.util.ParquetUtils()
        if self._release_is_before_1_1():
            return list(files.readColumnStatsFromMetadata(self._storage, path, columns))
        return list(files.readColumnStatsFromMetadata(self._storage, path, columns, self._index_version()))

    def _index_version(self) -> Any:
        return self._hudi.metadata.HoodieIndexVersion.getCurrentVersion(self._config.getTableVersion(), "column_stats")

    def _ranges_of_log(self, partition: str, path: Any, columns: Any) -> Iterable[Any]:
        tools, option = self._hudi.metadata.HoodieTableMetadataUtil, self._hudi.common.util.Option
        schema = self._schema()
        if self._release_is_before_1():
            return self._ranges_of_blocks(path, columns, schema)
        if self._release_is_before_1_1():
            given: tuple[Any, ...] = (path.toString(),)
        else:
            given = (path.toString(), partition)
        return list(tools.getLogFileColumnRangeMetadata(*given, self._client, columns, option.of(schema), BUFFER_BYTES))

    def _ranges_of_blocks(self, path: Any, columns: Any, schema: Any) -> Iterable[Any]:
        """Release 0.15 has no reader of the ranges of a log; its writer collects them from the records it appends."""
        file = self._hudi.common.model.HoodieLogFile(path)
        reader = self._hudi.common.table.log.HoodieLogFormat.newReader(self._storage, file, schema)
        kind = self._hudi.common.model.HoodieRecord.HoodieRecordType.AVRO
        records = self._java.java.util.ArrayList()
        try:
            while reader.hasNext():
                block = reader.next()
                if not block.getBlockType().toString().endswith("DATA_BLOCK"):
                    continue
                each = block.getRecordIterator(kind)
                while each.hasNext():
                    records.add(each.next().getData())
        finally:
            reader.close()
        if not records.size():
            return []
        fields = self._list(schema.getField(name) for name in columns)
        tools = self._hudi.metadata.HoodieTableMetadataUtil
        return list(tools.collectColumnRangeMetadata(records, fields, path.getName()).values())

    def _partition_stats(self, listed: Any, latest: dict[str, list[Any]]) -> None:
        """Those of a partition enclose the ranges of its latest files."""
        held = self._held_by_partitions(listed)
        merge = self._ranges_class().merge
        for partition, slices in latest.items():
            for path in (path for each in slices for path in paths_of(each)):
                for name, expected in self._ranges(partition, path).items():
                    if not is_stated(expected):
                        continue
                    self.compared["partition_ranges"] += 1
                    stored = held.get((partition, name))
                    if stored is None:
                        self.differences.append(f"partition_stats has nothing of {name} of {partition}")
                        continue
                    merged = merge(stored, expected)
                    bounds = merged.getMinValue() == stored.getMinValue(), merged.getMaxValue() == stored.getMaxValue()
                    hidden = expected.getNullCount() and not stored.getNullCount()
                    if not all(bounds) or hidden or (values_of(expected) and not values_of(stored)):
                        text = f"{stated(stored)}, but its file has {stated(expected)}"
                        self.differences.append(f"partition_stats of {partition}: {text}")

    def _held_by_partitions(self, listed: Any) -> dict[tuple[str, str], Any]:
        """The records of partition_stats by partition and column."""
        prefixes = self._column_names()
        if self._release_is_before_1_1():
            identifier = self._hudi.common.util.hash.ColumnIndexID
            prefixes = [identifier(name).asBase64EncodedString() for name in prefixes]
        records = self._by_prefixes(listed, "partition_stats", prefixes, "ColumnStatsIndexPrefixRawKey")
        stated = [each.getData().getColumnStatMetadata() for each in records]
        return {
            (each.get().getFileName(), each.get().getColumnName()): self._range_of(each.get())
            for each in stated
            if each.isPresent()
        }

    # -- keys -----------------------------------------------------------------------------------------------------

    def _bloom_filters(self, listed: Any, latest: dict[str, list[Any]]) -> None:
        slices = [(part, each) for part, found in latest.items() for each in found if each.getBaseFile().isPresent()]
        bases = [(part, each.getBaseFile().get().getStoragePath()) for part, each in slices]
        kept = listed.getBloomFilters(self._list(self._pair(part, path.getName()) for part, path in bases))
        held = {each.getKey().getRight(): each.getValue().serializeToString() for each in kept.entrySet()}
        reader = self._hudi.common.util.ParquetUtils()
        for _, path in bases:
            stored, name = reader.readBloomFilterFromMetadata(self._storage, path), path.getName()
            self.compared["filters"] += 1
            if held.get(name) != stored.serializeToString():
                text = "another" if name in held else "no"
                self.differences.append(f"bloom_filters of {name}: {text} filter than that in its footer")

    def _record_index(self, listed: Any) -> None:
        rows = self._rows(*META_FIELDS)
        table = {(key, part): self._hudi.common.fs.FSUtils.getFileId(file) for key, part, file in rows}
        if len(table) != len(rows):
            self.differences.append(f"the table has {len(rows)} rows of {len(table)} keys")
        records = self._scanned(listed, "record_index", {key for key, _ in table})
        held = [(each.getRecordKey(), *place_of(each.getData().getRecordGlobalLocation())) for each in records]
        if len(held) != len({(key, part) for key, part, _ in held}):
            self.differences.append(f"record_index has several entries of a key: {sorted(held)}")
        expected = {(*key, group) for key, group in table.items()}
        self._same("entries of record_index", set(held), expected)
        self._same("places found by record_index", self._looked_up(listed, table), expected)
        self.compared["keys"] += len(table)

    def _looked_up(self, listed: Any, keys: Iterable[tuple[str, str]]) -> set[tuple[str, str, str]]:
        """Key, partition and file group, as a write that tags by the index finds them."""
        if self._release_is_before_1_1():
            found = listed.readRecordIndex(self._list(key for key, _ in keys)).entrySet()
            return {(each.getKey(), *place_of(each.getValue())) for each in found}
        option = self._hudi.common.util.Option
        by_partition: dict[str, list[str]] = {}
        for key, partition in keys:
            by_partition.setdefault(partition if self._is_partitioned() else "", []).append(key)
        places = set()
        for partition, some in by_partition.items():
            within = option.of(partition) if self._is_partitioned() else option.empty()
            pairs = listed.readRecordIndexLocationsWithKeys(self._data(some), within).collectAsList()
            places |= {(each.getLeft(), *place_of(each.getRight())) for each in pairs}
        return places

    def _is_partitioned(self) -> bool:
        """Whether the record index has the keys of each partition by themselves."""
        definitions = self._client.getIndexMetadata()
        if not definitions.isPresent():
            return False
        definition = definitions.get().getIndexDefinitions().get("record_index")
        return definition is not None and str(definition.getIndexOptions().get("isPartitioned")).lower() == "true"

    def _secondary_index(self, listed: Any, partition: str) -> None:
        column = self._client.getIndexMetadata().get().getIndexDefinitions().get(partition).getSourceFields().get(0)
        rows = self._rows(META_FIELDS[0], f"CAST({column} AS STRING)")
        if self._release_is_before_1_1():  # its own writes leave rows without a value out
            rows = [row for row in rows if row[1] is not None]
        spelt_key = self._hudi.metadata.SecondaryIndexKeyUtils.constructSecondaryIndexKey
        expected = {str(spelt_key(value, key)) for key, value in rows}
        held = {str(each.getRecordKey()) for each in self._scanned(listed, partition, expected)}
        self._same(f"entries of {partition}", held, expected)
        self.compared["secondary_entries"] += len(expected)

    def _scanned(self, listed: Any, partition: str, expected: set[str]) -> list[Any]:
        """All records of an index, read by the first characters that keys have."""
        prefixes = sorted({*PRINTABLE, *(key[:1] for key in expected)})
        return self._by_prefixes(listed, partition, prefixes, "RecordIndexRawKey")

    def _by_prefixes(self, listed: Any, partition: str, prefixes: Iterable[str], kind: str) -> list[Any]:
        """The records whose keys begin so; since release 1.1 a prefix is an object of a class."""
        if self._release_is_before_1_1():
            given = self._list(prefixes)
        else:
            given = self._data(getattr(self._hudi.metadata, kind)(prefix) for prefix in prefixes)
        records = listed.getRecordsByKeyPrefixes(given, partition, True).collectAsList()
        return [each for each in records if not each.getData().isDeleted()]  # 0.15 has those, too

    def _rows(self, *columns: str) -> list[Any]:
        """All rows of the table, by files listed from the storage."""
        options = {"hoodie.metadata.enable": "false"}
        frame = self._spark.read.format("hudi").options(**options).load(self._path)
        return list(frame.selectExpr(*columns).collect())

    # -- tools ----------------------------------------------------------------------------------------------------

    def _same(self, what: str, of_metadata: set[Any], of_storage: set[Any]) -> None:
        for text, only in (("metadata", of_metadata - of_storage), ("storage", of_storage - of_metadata)):
            if only:
                self.differences.append(f"{what}, only by {text}: {sorted(only, key=str)}")

    def _list(self, items: Iterable[Any]) -> Any:
        made = self._java.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made

    def _data(self, items: Iterable[Any]) -> Any:
        return self._hudi.common.data.HoodieListData.eager(self._list(items))

    def _pair(self, left: Any, right: Any) -> Any:
        return self._hudi.common.util.collection.Pair.of(left, right)


def collected(stream: Any) -> list[Any]:
    """Of a Java stream."""
    return list(stream.toArray())


def spelt(each: Any) -> tuple[Any, ...]:
    """A file slice or base file as its files and their sizes."""
    if each.getClass().getSimpleName() != "FileSlice":
        return (each.getFileName(), each.getFileSize(), each.getCommitTime())
    base = each.getBaseFile()
    logs = sorted((file.getFileName(), file.getFileSize()) for file in collected(each.getLogFiles()))
    return (each.getFileId(), each.getBaseInstantTime(), spelt(base.get()) if base.isPresent() else None, *logs)


def paths_of(each: Any) -> list[Any]:
    """The files of a file slice."""
    base = [each.getBaseFile().get().getStoragePath()] if each.getBaseFile().isPresent() else []
    return [*base, *(file.getPath() for file in collected(each.getLogFiles()))]


def values_of(each: Any) -> int:
    """How many values a range is of."""
    return int(each.getValueCount() - each.getNullCount())


def place_of(each: Any) -> tuple[str, str]:
    return (each.getPartitionPath(), each.getFileId())


def facts_of(each: Any) -> tuple[Any, ...]:
    """What a range states; decimals compare by value: the metadata table has all with 15 digits behind the point."""
    bounds = plain(each.getMinValue()), plain(each.getMaxValue())
    counts = each.getNullCount(), each.getValueCount()
    return (*bounds, *counts, each.getTotalSize(), each.getTotalUncompressedSize())


def plain(value: Any) -> Any:
    """Release 0.15 returns decimals as the bytes of their digits."""
    if not hasattr(value, "getClass") or "ByteBuffer" not in value.getClass().getName():
        return value
    digits = bytes(value.duplicate().get(index) & 0xFF for index in range(value.limit()))
    return Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(-DECIMAL_DIGITS)


def stated(each: Any) -> str:
    """A range as text, alike for all releases."""
    low, high, nulls, values, *sizes = facts_of(each)
    return f"{each.getColumnName()} from {low!r} to {high!r}, {nulls} nulls of {values}, sizes {sizes}"


def is_stated(each: Any) -> bool:
    """Whether the footer has bounds of a meta column. Release 0.15 counts all values of one without as nulls."""
    is_meta = each.getColumnName() in ("_hoodie_commit_seqno", "_hoodie_file_name")
    return not is_meta or each.getMinValue() is not None

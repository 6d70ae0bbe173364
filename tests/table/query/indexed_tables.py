"""Tables with indexes of the metadata table as Hudi has them after its last commit, made from the rows of the table.

skep writes the table and the partition `files`; the indexes are added here, from what the files hold.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skep_format.basefile import read_footer
from skep_format.metafile import ensure_partition
from skep_format.names import BaseFileName, BaseFormat, join
from skep_format.schema.types import (
    COMMIT_TIME,
    PARTITION_PATH,
    RECORD_KEY,
    BinaryType,
    DoubleType,
    FloatType,
    StringType,
)
from skep_format.storage import LocalStorage
from skep_format.table_config import METADATA_PARTITIONS, TableType, update_table_config
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.write import complete, create_requested, transition_to_inflight
from skep_table.commit.create import TableSpec, create_table
from skep_table.metadata_table import group_numbers
from skep_table.metadata_table.keys import record_index_groups
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.column_stats import column_stats_update, indexable, partition_stats_update
from skep_table.metadata_table.records.record_index import record_index_update
from skep_table.metadata_table.records.secondary_index import secondary_index_update, secondary_keys, sharded_parts
from skep_table.metadata_table.records.summaries import ColumnSummary, summaries_of_rows, summaries_without_rows
from skep_table.metadata_write.own import open_own
from skep_table.metadata_write.records import entries_of, hfile_of, record_schema
from skep_table.query import ReadRequest, execute, plan, read
from skep_table.slices import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("line", pa.int32()), ("part", pa.string()), ("ts", pa.int64()), ("tag", pa.string()),
        ("note", pa.string()), ("number", pa.int64()), ("ratio", pa.float64()), ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("flag", pa.bool_()), ("raw", pa.binary()),
    ]
)  # fmt: skip
META = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
PARTS = ("2024-01-01", "a b", "north", "süd")
TAGS = ("red", "red$1", "\\", "$", "", "blau\0", "\U0001f381", "\uffff", "5", "-5")
NOTES = (*TAGS, "x" * 5000, "x" * 5000 + "y", "é" * 3000, "1960-01-01", "apple")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def rows_of(chance: random.Random, part: int, keys: list[int], number: int) -> pa.Table:
    """Rows whose values lie in a range of the partition's own, so that statistics can leave partitions out."""

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    def row(key: int) -> dict[str, Any]:
        near = part * 1000 + chance.randrange(-900, 900)
        return {
            "id": f"k{key:03d}", "line": key % 3, "part": PARTS[part], "ts": number, "tag": maybe(chance.choice(TAGS)),
            "note": maybe(chance.choice(NOTES)), "number": maybe(near * 10**12),
            "ratio": maybe(chance.choice([float("nan"), -0.0, near / 8, float("-inf"), near / 8, near / 8])),
            "price": maybe(Decimal(near) / 100), "day": maybe(dt.date(1970, 1, 1) + dt.timedelta(days=near)),
            "at": maybe(EPOCH + dt.timedelta(hours=100 * near, microseconds=chance.randrange(10**6))),
            "flag": maybe(part % 2 == 0), "raw": maybe(bytes([part, chance.randrange(256)])),
        }  # fmt: skip

    return pa.Table.from_pylist([row(key) for key in keys], SCHEMA)


def written(
    folder: Path, version: int, kind: TableType, *, keys: tuple[str, ...] = ("id",), seed: int = 0
) -> HudiTable:
    """Some inserts, updates and deletes in four partitions, with a metadata table of its files."""
    chance = random.Random(seed)
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=keys, partition_by=("part",), ordering="ts", type=kind, version=version
    )
    options = {"hoodie.metadata.enable": "true", "hoodie.parquet.small.file.limit": "0"}
    table = create_table(LocalStorage(str(folder)), spec, options)
    of_part = {part: list(range(part * 100, part * 100 + 24)) for part in range(len(PARTS))}
    for number in range(2):
        for part, ids in of_part.items():
            chosen = ids[number * 12 : number * 12 + 12]
            LocalWriter(HudiTable.open(table.storage, options)).upsert(rows_of(chance, part, chosen, number))
    for number in (2, 3):
        changed = pa.concat_tables(
            [rows_of(chance, part, chance.sample(ids, 5), number) for part, ids in of_part.items() if part != number]
        )
        LocalWriter(HudiTable.open(table.storage, options)).upsert(changed)
    dropped = pa.concat_tables([rows_of(chance, part, ids[3:5], 9) for part, ids in of_part.items()])
    LocalWriter(HudiTable.open(table.storage, options)).delete(dropped)
    return HudiTable.open(table.storage)


def indexed(table: HudiTable, *, partitioned: bool = False) -> HudiTable:
    """The same table with all indexes that its version has: Hudi's, wherever it is less exact than skep's."""
    release, version = table.format.metadata.release, table.config.version
    columns = indexable(table.schema().with_meta(), [*META, *SCHEMA.names], release)
    files = dict(_rows_of_files(table))
    stats = {
        file: [
            _like_hudis(each)
            for each in (summaries_of_rows(rows, columns) if len(rows) else summaries_without_rows(columns))
        ]
        for file, rows in files.items()
    }
    by_key = _rows_by_key(table)
    updates: dict[str, list[tuple[str, PartitionUpdate]]] = {}
    for path in sorted(set(by_key["partition"].to_pylist())) if partitioned else [None]:
        rows = by_key if path is None else by_key.filter(pa.compute.equal(by_key["partition"], path))
        update = record_index_update(
            *(rows[name].combine_chunks() for name in ("key", "partition", "file")), 1, release
        )
        prefix = "record-index" if path is None else record_index_groups(path)
        updates.setdefault("record_index", []).append((prefix, update))
    updates["column_stats"] = [("col-stats", column_stats_update(stats, [], [], release))]
    blooms = {
        (path, name): read_footer(table.storage, join(path, name)).bloom for path, name in files if name[0] != "."
    }
    kept = {file: bloom for file, bloom in blooms.items() if bloom is not None}
    last = table.timeline.data().completed().instants[-1].requested_time
    updates["bloom_filters"] = [("bloom-filters", bloom_filters_update(kept, [], last, release))]
    if version >= 8:
        of_parts: dict[str, list[list[ColumnSummary]]] = defaultdict(list)
        for (path, _), found in stats.items():
            of_parts[path].append(found)
        merged = {
            path: [_merged_like_hudi(each) for each in zip(*found, strict=True)] for path, found in of_parts.items()
        }
        updates["partition_stats"] = [("partition-stats", partition_stats_update(merged, [], [], release))]
        none = pa.array([], pa.string())
        for column in ("tag", "number"):
            values = by_key[column].combine_chunks().cast(pa.string())
            name = f"secondary_index_{column}"
            entries = secondary_keys(values, by_key["key"].combine_chunks())
            update = secondary_index_update(name, entries, none, release, by_value=False)
            updates[name] = [(name.replace("_", "-"), update)]
    return _with_partitions(table, updates)


def _rows_of_files(table: HudiTable) -> Iterator[tuple[tuple[str, str], pa.Table]]:
    """The rows of each file of the slices to read, logs without what they are merged with."""
    view, schema = table.view(), table.schema().with_meta()
    for path in view.partitions():
        for found in view.slices(path):
            base = found.base_file
            if base is not None:
                stored = pq.read_table(Path(str(table.storage.root)) / base.path, partitioning=None)
                yield (path, str(base.name)), stored
            for log in found.log_files:
                alone = replace(found, base_file=None, log_files=(log,))
                batches = list(read_slice(table, alone, schema=schema))
                rows = pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in schema.names()})
                yield (path, str(log.name)), rows


def _rows_by_key(table: HudiTable) -> pa.Table:
    parts = []
    for task in plan(table, ReadRequest()):
        for batch in execute.run(task):
            rows = pa.Table.from_batches([batch])
            found: FileSlice = task.slice
            parts.append(
                pa.table(
                    {
                        "key": rows[RECORD_KEY], "tag": rows["tag"], "number": rows["number"],
                        "partition": pa.array([found.partition_path] * len(rows)),
                        "file": pa.array([found.file_id] * len(rows)),
                    }
                )
            )  # fmt: skip
    return pa.concat_tables(parts)


def _like_hudis(summary: ColumnSummary) -> ColumnSummary:
    """Hudi takes the bounds of footers, which have none of long texts and of NaN: as if all values were null."""
    text = (
        isinstance(summary.kind, (StringType, BinaryType))
        and max(map(len, (summary.low or "", summary.high or ""))) > 1000
    )
    nan = isinstance(summary.kind, (DoubleType, FloatType)) and (
        summary.low != summary.low or summary.high != summary.high
    )
    return replace(summary, low=None, high=None, nulls=summary.values) if text or nan else summary


def _merged_like_hudi(summaries: tuple[ColumnSummary, ...]) -> ColumnSummary:
    """The bounds that there are, and sums: what a file without bounds holds is not known by them."""
    lows = [each.low for each in summaries if each.low is not None]
    highs = [each.high for each in summaries if each.high is not None]
    values, nulls = sum(each.values for each in summaries), sum(each.nulls for each in summaries)
    kind = next((each.kind for each in summaries if each.kind is not None), None)
    return ColumnSummary(summaries[0].column, kind, min(lows, default=None), max(highs, default=None), values, nulls)


def _with_partitions(table: HudiTable, updates: Mapping[str, list[tuple[str, PartitionUpdate]]]) -> HudiTable:
    version = table.config.version
    last = max(each.requested_time for each in table.timeline.completed())
    for number, (partition, sets) in enumerate(updates.items(), 1):
        own = open_own(table)
        time = table.format.metadata.first_instant(last, number)
        instant = create_requested(own, Instant(time, Action.DELTA_COMMIT, State.REQUESTED))
        instant = transition_to_inflight(own, instant, CommitMetadata(operation_type=WriteOperation.BULK_INSERT))
        ensure_partition(own.storage, partition, time)
        schema = record_schema(own.format.metadata.release)
        for prefix, update in sets:
            keys = update.puts["key"].combine_chunks()
            by_value = version >= 9 and partition.startswith("secondary_index_")
            groups = 1 if partition == "partition_stats" else 3
            of_group = group_numbers(sharded_parts(keys) if by_value else keys, groups)
            for group in range(groups):
                name = BaseFileName(f"{prefix}-{group:04d}-0", "0-0-0", time, BaseFormat.HFILE)
                puts = update.puts.filter(pa.array(of_group == group))
                own.storage.create_exclusive(join(partition, str(name)), hfile_of(entries_of(puts, schema), schema))
        done = CommitMetadata(operation_type=WriteOperation.BULK_INSERT, extra_metadata={"schema": schema.text})
        complete(own, instant, done, table.context.clock, alone=True)
    update_table_config(table.storage, {METADATA_PARTITIONS: ",".join(["files", *updates])})
    if version >= 8:
        state = {"version": "V2"} if version >= 9 else {}
        definitions = {
            name: {"indexName": name, "indexType": "secondary_index", "sourceFields": [name[16:]], **state}
            for name in updates
            if name.startswith("secondary_index_")
        }
        stated = json.dumps({"indexDefinitions": definitions}).encode()
        table.storage.replace_atomic(".hoodie/.index_defs/index.json", stated)
    return HudiTable.open(table.storage)


def everything(table: HudiTable) -> pa.Table:
    """All rows, with no index or statistics of the metadata table used."""
    return read(table, ReadRequest(metadata=False, data_skipping=False)).to_arrow()

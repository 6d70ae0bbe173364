"""The comparison by Hudi's classes that other tests ask: it finds nothing in sound tables, and every damage."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer_shared import peer_marks

from benchmarks.peers.jvm import Jvm
from skep_format.clock import Clock
from skep_format.instant_time import InstantTime
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.commit.parts import metadata_table
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_write.delta_commit import write_delta_commit
from skep_table.services.metadata.indexing import build_index, index_named
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from tests.blooms import build_bloom

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("word", pa.string())])
MADE = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "3",
    "hoodie.parquet.small.file.limit": "0",
}
BY_WORD = "secondary_index_by_word"
Record = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What a commit writes into a partition of the metadata table instead of each record, and what Hudi finds."""

    partition: str
    change: Callable[[Record], Sequence[Record]]
    found: str
    since: int = 6


def without_files(record: Record) -> list[Record]:
    return [record] if record["key"] == "__all_partitions__" else []


def larger(record: Record) -> list[Record]:
    files = record["record"]["filesystemMetadata"]
    grown = [(name, {**file, "size": file["size"] and file["size"] + 1}) for name, file in files]
    return [{**record, "record": {**record["record"], "filesystemMetadata": grown}}]


def of_ts(change: Callable[[Record], Sequence[Record]]) -> Callable[[Record], Sequence[Record]]:
    """Only the statistics of that column."""

    def changed(record: Record) -> Sequence[Record]:
        return change(record) if record["record"]["ColumnStatsMetadata"]["columnName"] == "ts" else [record]

    return changed


def narrower(record: Record) -> list[Record]:
    stats = record["record"]["ColumnStatsMetadata"]
    value = stats["maxValue"]["LongWrapper"]["value"] - 1
    high = {**stats["maxValue"], "LongWrapper": {"value": value}}
    return [{**record, "record": {**record["record"], "ColumnStatsMetadata": {**stats, "maxValue": high}}}]


def of_other_keys(record: Record) -> list[Record]:
    other = build_bloom(pa.array(["nobody"])).to_base64()
    found = {**record["record"]["BloomFilterMetadata"], "bloomFilter": other}
    return [{**record, "record": {**record["record"], "BloomFilterMetadata": found}}]


def elsewhere(record: Record) -> list[Record]:
    place = record["record"]["recordIndexMetadata"]
    return [{**record, "record": {**record["record"], "recordIndexMetadata": {**place, "fileIndex": 7}}}]


def with_another(key: str) -> Callable[[Record], Sequence[Record]]:
    return lambda record: [record, {**record, "key": key}]


def by_key(record: Record) -> str:
    return str(record["key"])


def nothing(record: Record) -> list[Record]:
    return []


FAULTS = {
    "files that are not listed": Fault(FILES, without_files, r"files of 'north', only by storage: .*parquet"),
    "file slices that are not listed": Fault(FILES, without_files, r"latest file slices of 'north', only by storage"),
    "another size": Fault(FILES, larger, r"files of 'north', only by metadata: .*parquet"),
    "narrower bounds": Fault(COLUMN_STATS, of_ts(narrower), r"column_stats of .*: ts from .*, by the file ts from"),
    "no statistics of a column": Fault(
        COLUMN_STATS, of_ts(nothing), r"column_stats of .*: nothing, by the file ts from"
    ),
    "another filter": Fault(BLOOM_FILTERS, of_other_keys, r"bloom_filters of .*: another filter"),
    "no filter": Fault(BLOOM_FILTERS, nothing, r"bloom_filters of .*: no filter"),
    "narrower bounds of a partition": Fault(
        PARTITION_STATS, of_ts(narrower), r"partition_stats of north: ts from .*, but its file has ts", since=8
    ),
    "missing keys": Fault(RECORD_INDEX, nothing, r"entries of record_index, only by storage: .*'new'"),
    "keys in another place": Fault(RECORD_INDEX, elsewhere, r"places found by record_index, only by metadata: .*'new'"),
    "a key too many": Fault(
        RECORD_INDEX, with_another("nobody"), r"entries of record_index, only by metadata: .*'nobody'"
    ),
    "missing values": Fault(BY_WORD, nothing, r"entries of secondary_index_by_word, only by storage: .*new", since=8),
    "a value too many": Fault(
        BY_WORD,
        with_another("odd$nobody"),
        r"entries of secondary_index_by_word, only by metadata: .*odd.nobody",
        since=8,
    ),
}
SAMPLED = ("narrower bounds of a partition", "keys in another place", "missing values")
CASES = [
    pytest.param(release, version, kind, id=f"{release}-{kind.value}", marks=peer_marks(release, sampled=sampled))
    for release, version in (("0.15.0", 6), ("1.0.2", 8), ("1.1.1", 9), ("1.2.0", 9))
    for kind in TableType
    for sampled in [(release, kind) == ("1.2.0", TableType.MERGE_ON_READ)]
]


def rows(*found: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": key, "part": part, "ts": ts, "word": f"word {key}"} for key, part, ts in found], SCHEMA
    )


def indexed(path: Path, kind: TableType, version: int) -> HudiTable:
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", version=version, type=kind
    )
    create_table(LocalStorage(str(path)), spec)
    write(path, ("a", "north", 1), ("b", "south", 1))
    if version >= 8:
        build_index(HudiTable.open(str(path), MADE), index_named("secondary_index", "by_word", ["word"]))
    write(path, ("a", "north", 2), ("c", "south", 2))
    return HudiTable.open(str(path), MADE)


def write(path: Path, *found: tuple[str, str, int]) -> None:
    LocalWriter(HudiTable.open(str(path), MADE)).upsert(rows(*found))


def damaged(fault: Fault) -> Callable[..., None]:
    """In the place of what writes a delta commit of the metadata table."""

    def write_damaged(own: HudiTable, time: InstantTime, updates: Sequence[PartitionUpdate], clock: Clock) -> None:
        assert fault.partition in {update.partition for update in updates}
        changed = [change(update) if update.partition == fault.partition else update for update in updates]
        write_delta_commit(own, time, changed, clock)

    def change(update: PartitionUpdate) -> PartitionUpdate:
        records = sorted((each for record in update.puts.to_pylist() for each in fault.change(record)), key=by_key)
        return replace(update, puts=pa.Table.from_pylist(records, update.puts.schema))

    return write_damaged


@pytest.mark.parametrize(("release", "version", "kind"), CASES)
def test_it_finds_every_damage(
    release: str,
    version: int,
    kind: TableType,
    is_thorough: bool,
    jvm: Callable[[str], Jvm],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hudi = jvm(release)
    sound = indexed(tmp_path / "sound", kind, version)
    write(tmp_path / "sound", ("new", "north", 5))
    found = hudi.validate(sound.storage.root)
    assert found.differences == []
    assert found.columns[-4:] == sorted(SCHEMA.names)
    missed = []
    for number, (name, fault) in enumerate(FAULTS.items()):
        if fault.since > version or not (is_thorough or name in SAMPLED):
            continue
        path = tmp_path / str(number)
        indexed(path, kind, version)
        with monkeypatch.context() as patched:
            patched.setattr(metadata_table, "write_delta_commit", damaged(fault))
            write(path, ("new", "north", 5))
        reported = hudi.validate(path).differences
        if not any(re.match(fault.found, each) for each in reported):
            missed.append(f"{name}: {reported}")
    assert not missed, "\n".join(missed)

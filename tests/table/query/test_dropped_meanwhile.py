"""A part of the metadata table is dropped while a read is planned by it, or a write finds its keys by it: both begin
again without it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from skep_format.storage import FileStatus, LocalStorage
from skep_format.table_config import METADATA_PARTITIONS, TableType, update_table_config
from skep_table.commit.create import TableSpec, create_table
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.partitions import FILES, PARTITION_STATS, RECORD_INDEX
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
OPTIONS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}


class HalfDropped(LocalStorage):
    """When a partition of the metadata table is listed, another process has dropped it, and deleted its logs."""

    def __init__(self, root: str, partition: str) -> None:
        super().__init__(root)
        self._partition, self.dropped = partition, False

    def list_prefix(self, path: str, *, recursive: bool = False) -> list[FileStatus]:
        if not self.dropped and path.rstrip("/") == f"{FOLDER}/{self._partition}":
            self.dropped = True
            left = set(HudiTable.open(LocalStorage(self.root)).config.metadata_partitions) - {self._partition}
            kept = "" if self._partition == FILES else ",".join(sorted(left))
            update_table_config(LocalStorage(self.root), {METADATA_PARTITIONS: kept or None})
            for file in super().list_prefix(path):
                if ".log." in file.path:
                    self.delete(file.path)
        return super().list_prefix(path, recursive=recursive)


def frame(*rows: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "part": "p", "ts": ts} for key, ts in rows], SCHEMA)


def written(tmp_path: Path, type: TableType = TableType.COPY_ON_WRITE) -> HudiTable:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=type)
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    for rows in ([("a", 1), ("b", 1)], [("b", 900), ("c", 2)]):
        LocalWriter(HudiTable.open(table.storage, OPTIONS)).upsert(frame(*rows))
    return table


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize(
    ("partition", "where", "expected"),
    [
        (FILES, "ts >= 0", ["a", "b", "c"]),
        (PARTITION_STATS, "ts = 900", ["b"]),
        (RECORD_INDEX, "id in ('a', 'c')", ["a", "c"]),
    ],
)
def test_no_row_is_missing(partition: str, where: str, expected: list[str], table_version: int, tmp_path: Path) -> None:
    if partition == PARTITION_STATS and table_version == 6:
        return  # there are none
    storage = HalfDropped(written(tmp_path).storage.root, partition)
    found = read(HudiTable.open(storage, OPTIONS), ReadRequest(where=where)).to_arrow()
    assert storage.dropped
    assert sorted(found["id"].to_pylist()) == expected


@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.bloom_lookup.MetadataIndexWarning")
@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
@pytest.mark.parametrize("type", list(TableType), ids=str)
@pytest.mark.parametrize(
    ("partition", "index"), [(FILES, "BLOOM"), (FILES, "RECORD_INDEX"), (RECORD_INDEX, "RECORD_INDEX")]
)
def test_no_key_is_written_twice(
    partition: str, index: str, type: TableType, table_version: int, tmp_path: Path
) -> None:
    table = written(tmp_path, type)
    storage = HalfDropped(table.storage.root, partition)
    LocalWriter(HudiTable.open(storage, {**OPTIONS, "hoodie.index.type": index})).upsert(frame(("a", 5), ("d", 5)))
    assert storage.dropped
    found = read(HudiTable.open(table.storage.root)).to_arrow()
    assert sorted(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == [
        ("a", 5), ("b", 900), ("c", 2), ("d", 5),
    ]  # fmt: skip

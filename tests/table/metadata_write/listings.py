"""A table whose metadata table is kept, and the comparison of its two listings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from skep_format.names import PARTITION_METAFILE
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
KEPT = {"hoodie.metadata.enable": "true"}


def frame(*rows: tuple[str, str, int]) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def new_table(folder: Path, kind: TableType, **more: Any) -> HudiTable:
    spec = {"schema": SCHEMA, "record_key": ("id",), "partition_by": ("part",), "ordering": "ts", **more}
    return create_table(LocalStorage(str(folder)), TableSpec(name="t", type=kind, **spec), KEPT)


def reopened(table: HudiTable, **more: object) -> HudiTable:
    return HudiTable.open(table.storage, {**KEPT, **more})


def writer(table: HudiTable, **more: object) -> LocalWriter:
    return LocalWriter(reopened(table, **more))


def by_storage(table: HudiTable) -> dict[str, dict[str, int]]:
    view = table.view(metadata=False)
    return with_files(
        {
            partition: {f.name: f.size_bytes for f in view.listing.files(partition) if f.name != PARTITION_METAFILE}
            for partition in view.partitions()
        }
    )


def by_metadata(table: HudiTable) -> dict[str, dict[str, int]]:
    metadata = table.metadata_table()
    assert metadata is not None, "no metadata table that lists all commits"
    return with_files(
        {path: {file.name: file.size_bytes for file in metadata.files(path)} for path in metadata.partitions()}
    )


def with_files(found: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Without empty partitions: a rollback leaves the folders of those that its target made."""
    return {path: files for path, files in found.items() if files}


def assert_alike(table: HudiTable) -> None:
    """The metadata table lists what is in storage, and reads by either are the same."""
    now = HudiTable.open(table.storage)
    assert by_metadata(now) == by_storage(now)
    assert rows(now, metadata=True) == rows(now, metadata=False)


def rows(table: HudiTable, *, metadata: bool) -> list[Any]:
    found = read(table, ReadRequest(metadata=metadata)).to_arrow().to_pylist()
    return sorted((row["id"], row["part"], row["ts"]) for row in found)

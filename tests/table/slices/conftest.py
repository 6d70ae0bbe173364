"""Small tables made by hand: one file group, base file and log blocks as a test lays them down."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from skep_format.basefile import BaseFileWriter
from skep_format.logfile import avro_block, delete_block, rollback_block
from skep_format.schema.arrow import from_arrow, to_arrow
from skep_format.schema.avro import avro_text
from skep_format.schema.types import ALL_META_FIELDS
from skep_format.storage import LocalStorage
from skep_table.table import HudiTable

DEFAULTS = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "6",
    "hoodie.timeline.layout.version": "1",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "",
    "hoodie.table.precombine.field": "ts",
    "hoodie.compaction.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.timeline.timezone": "UTC",
}
GROUP = "f0000000-0000-0000-0000-000000000000-0"


class HandMade:
    """Instants are numbers: 1 is the base file's, each log file has one block or several."""

    def __init__(self, folder, columns: pa.Schema, **properties: str) -> None:
        self.storage = LocalStorage(str(folder))
        self.schema = from_arrow(columns, "t_record", "hoodie.t")
        self.properties = {**DEFAULTS, **properties}
        self.meta = self.properties.get("hoodie.populate.meta.fields") != "false"
        text = "".join(f"{key}={value}\n" for key, value in self.properties.items())
        self.storage.replace_atomic(".hoodie/hoodie.properties", text.encode())
        self._logs = 0

    @staticmethod
    def instant(number: int) -> str:
        return f"{20261121000000000 + number}"

    def commit(self, number: int, *, completed: bool = True, schema=None, extra=None) -> None:
        name = f".hoodie/{self.instant(number)}.deltacommit"
        metadata = {
            "partitionToWriteStats": {},
            "compacted": False,
            "operationType": "UPSERT",
            "extraMetadata": {"schema": avro_text(schema or self.schema), **(extra or {})},
        }
        self.storage.replace_atomic(f"{name}.requested", b"")
        self.storage.replace_atomic(f"{name}.inflight", b"")
        if completed:
            self.storage.replace_atomic(name, json.dumps(metadata).encode())

    def base(self, rows: list[dict], *, number: int = 1, schema=None) -> None:
        self.commit(number, schema=schema)
        name = f"{GROUP}_0-0-0_{self.instant(number)}.parquet"
        schema = schema or self.schema
        with BaseFileWriter(self.storage, name, schema.with_meta() if self.meta else schema) as writer:
            writer.write(self.rows(rows, number, name, schema))

    def log(self, *blocks: bytes) -> None:
        self._logs += 1
        name = f".{GROUP}_{self.instant(1)}.log.{self._logs}_0-0-0"
        self.storage.replace_atomic(name, b"".join(blocks))

    def data(self, number: int, rows: list[dict], *, schema=None, more=None) -> bytes:
        schema = schema or self.schema
        stored = schema.with_meta() if self.meta else schema
        return avro_block(self.instant(number), stored, self.rows(rows, number, GROUP, schema), more=more)

    def deletes(self, number: int, keys: list[str], ordering: pa.Array | None = None) -> bytes:
        values = pa.nulls(len(keys)) if ordering is None else ordering
        entries = pa.table({"record_key": keys, "partition_path": [""] * len(keys), "ordering_value": values})
        return delete_block(self.instant(number), entries)

    def rollback(self, number: int, target: int) -> bytes:
        return rollback_block(self.instant(number), self.instant(target))

    def rows(self, rows: list[dict], number: int, file_name: str, schema) -> pa.Table:
        if not self.meta:
            return pa.Table.from_pylist(rows, schema=to_arrow(schema))
        instant = self.instant(number)
        full = [
            {
                "_hoodie_commit_time": instant,
                "_hoodie_commit_seqno": f"{instant}_0_{place}",
                "_hoodie_record_key": row["id"],
                "_hoodie_partition_path": "",
                "_hoodie_file_name": file_name,
                **row,
            }
            for place, row in enumerate(rows)
        ]
        return pa.Table.from_pylist(full, schema=to_arrow(schema.with_meta()))

    def open(self, **options: str) -> HudiTable:
        return HudiTable.open(self.storage, options)

    def slice(self, **view):
        (found,) = self.open().view(**view).slices("")
        return found

    def without(self, *names: str):
        return replace(self.schema, fields=tuple(field for field in self.schema.fields if field.name not in names))


@pytest.fixture
def made(tmp_path):
    def make(columns: pa.Schema | None = None, **properties: str) -> HandMade:
        default = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
        named = {key.replace("__", "."): value for key, value in properties.items()}
        return HandMade(tmp_path / "table", columns or default, **named)

    return make


@pytest.fixture
def meta_names():
    return ALL_META_FIELDS

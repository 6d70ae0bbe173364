"""The process behind `ours.ArrowWriter`: skep's writer without Spark, delta-rs or PyIceberg, on rows in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from benchmarks import data  # noqa: E402
from benchmarks.peers.spelling import spell  # noqa: E402
from benchmarks.peers.worker import serve  # noqa: E402
from skep_format.runner import ThreadRunner  # noqa: E402
from skep_format.storage import LocalStorage  # noqa: E402
from skep_format.table_config import TableType  # noqa: E402
from skep_table.commit.create import TableSpec, create_table  # noqa: E402
from skep_table.query import ReadRequest, read  # noqa: E402
from skep_table.table import HudiTable  # noqa: E402
from skep_table.write.local import LocalWriter  # noqa: E402

Json = dict[str, Any]


class Rows:
    """The rows of both tasks, as one chunk each."""

    def load(self, *, inserts: str, changes: str) -> Json:
        self._inserts = pq.read_table(inserts).combine_chunks()
        self._changes = pq.read_table(changes).combine_chunks()
        return {}

    def load_changes(self, *, source: str) -> Json:
        self._changes = pq.read_table(source).combine_chunks()
        return {}


class Skep(Rows):
    """skep on two threads."""

    def __init__(self, kind: str) -> None:
        self._kind = TableType(kind)

    def bulk(self, *, path: str) -> Json:
        return self._written(self._created(path), "bulk_insert", self._inserts)

    def _created(self, path: str) -> HudiTable:
        spec = TableSpec(
            name="measured",
            schema=data.SCHEMA,
            record_key=("id",),
            ordering="ts",
            partition_by=("part",),
            type=self._kind,
        )
        return create_table(LocalStorage(path), spec)

    def change(self, *, path: str, operation: str, options: dict[str, str]) -> Json:
        table = self._created(path) if operation == "bulk_insert" else HudiTable.open(path)
        return self._written(table.with_options(options), operation, self._changes)

    def upsert(self, *, path: str) -> Json:
        return self._written(HudiTable.open(path), "upsert", self._changes)

    def _written(self, table: HudiTable, operation: str, rows: pa.Table) -> Json:
        result = getattr(LocalWriter(table.with_context(runner=ThreadRunner(2))), operation)(rows)
        return {"files": result.files}

    def sums(self, *, path: str) -> Json:
        found = read(HudiTable.open(path), ReadRequest(columns=data.SUMMED)).to_arrow()
        return {"rows": [spell(data.sums(found))]}


class Delta(Rows):
    """delta-rs; its threads are as many as there are cores."""

    def bulk(self, *, path: str) -> Json:
        from deltalake import write_deltalake

        write_deltalake(path, self._inserts, partition_by=["part"])
        return {}

    def change(self, *, path: str, operation: str, options: dict[str, str]) -> Json:
        from deltalake import DeltaTable, write_deltalake

        if operation == "bulk_insert":
            size = int(options["hoodie.parquet.max.file.size"])
            write_deltalake(path, self._changes, partition_by=["part"], target_file_size=size)
        elif operation == "delete":
            keys = ", ".join(f"'{key}'" for key in self._changes["id"].to_pylist())
            DeltaTable(path).delete(f"id in ({keys})")
        else:
            self.upsert(path=path)
        return {}

    def upsert(self, *, path: str) -> Json:
        from deltalake import DeltaTable

        merge = DeltaTable(path).merge(
            self._changes, "t.id = s.id and t.part = s.part", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all("s.ts >= t.ts").when_not_matched_insert_all().execute()
        return {}

    def sums(self, *, path: str) -> Json:
        from deltalake import DeltaTable

        found = pa.table(DeltaTable(path).to_pyarrow_table(columns=list(data.SUMMED)))
        return {"rows": [spell(data.sums(found))]}


class Iceberg(Rows):
    """PyIceberg, with a catalog in SQLite beside each table."""

    def _catalog(self, path: str) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("measured", uri=f"sqlite:///{path}.db", warehouse=f"file://{path}")

    def change(self, *, path: str, operation: str, options: dict[str, str]) -> Json:
        catalog = self._catalog(path)
        if operation == "bulk_insert":
            catalog.create_namespace("n")
            size = {"write.target-file-size-bytes": options["hoodie.parquet.max.file.size"]}
            table = catalog.create_table("n.t", schema=self._changes.schema, location=f"file://{path}", properties=size)
            table.append(self._changes)
            return {}
        table = catalog.load_table("n.t")
        if operation == "delete":
            from pyiceberg.expressions import In

            table.delete(In("id", self._changes["id"].to_pylist()))
        else:
            table.upsert(self._changes, join_cols=["id"])
        return {}

    def sums(self, *, path: str) -> Json:
        found = self._catalog(path).load_table("n.t").scan(selected_fields=tuple(data.SUMMED)).to_arrow()
        return {"rows": [spell(data.sums(found))]}


if __name__ == "__main__":
    pa.set_cpu_count(2)
    kind = sys.argv[2]
    others = {"delta": Delta, "iceberg": Iceberg}
    serve(lambda: others[kind]() if kind in others else Skep(kind))

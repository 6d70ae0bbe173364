"""The process behind `sql.Statements`: skep's lake without Spark, or delta-rs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import skep  # noqa: E402
from benchmarks import data  # noqa: E402
from benchmarks.peers.spelling import spell  # noqa: E402
from benchmarks.peers.worker import serve  # noqa: E402
from skep_format.storage import LocalStorage  # noqa: E402
from skep_format.table_config import TableType  # noqa: E402
from skep_table.commit.create import TableSpec, create_table  # noqa: E402
from skep_table.query import ReadRequest, read  # noqa: E402
from skep_table.table import HudiTable  # noqa: E402
from skep_table.write.local import LocalWriter  # noqa: E402

Json = dict[str, Any]
SUMMED = (*data.SUMMED, "quantity")


def sums(found: pa.Table) -> Json:
    """What `sql.SUMS` asks Hudi for."""
    return dict(spell({**data.sums(found), "quantity": pc.sum(found["quantity"]).as_py()}))


class Skep:
    """`lake.sql` with an embedded metastore of its own."""

    def __init__(self, folder: str) -> None:
        self._lake = skep.connect(warehouse=tempfile.mkdtemp(dir=folder))

    def make(self, *, path: str, source: str, type: str) -> Json:
        """A table with the rows of a Parquet folder; JVM Hudi is measured on copies of it, too."""
        spec = TableSpec(
            name="measured",
            schema=data.SCHEMA,
            record_key=("id",),
            ordering="ts",
            partition_by=("part",),
            type=TableType(type),
        )
        LocalWriter(create_table(LocalStorage(path), spec)).bulk_insert(pq.read_table(source))
        return {}

    def register(self, *, path: str, name: str) -> Json:
        self._lake.register(path, name)
        return {}

    def run(self, *, statement: str) -> Json:
        self._lake.sql(statement)
        return {}

    def sums(self, *, path: str) -> Json:
        return {"rows": [sums(read(HudiTable.open(path), ReadRequest(columns=SUMMED)).to_arrow())]}


class Delta:
    """delta-rs: the same changes as calls; the source is in memory. Its threads are as many as there are cores."""

    def make(self, *, path: str, source: str, type: str) -> Json:  # noqa: ARG002 - it has one type
        from deltalake import write_deltalake

        write_deltalake(path, pq.read_table(source), partition_by=["part"])
        return {}

    def load(self, *, source: str) -> Json:
        self._source = pq.read_table(source).combine_chunks()
        return {}

    def merge(self, *, path: str) -> Json:
        from deltalake import DeltaTable

        merge = DeltaTable(path).merge(self._source, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return {}

    def update(self, *, path: str, set: dict[str, str], where: str) -> Json:
        from deltalake import DeltaTable

        DeltaTable(path).update(updates=set, predicate=where)
        return {}

    def delete(self, *, path: str, where: str) -> Json:
        from deltalake import DeltaTable

        DeltaTable(path).delete(where)
        return {}

    def sums(self, *, path: str) -> Json:
        from deltalake import DeltaTable

        return {"rows": [sums(pa.table(DeltaTable(path).to_pyarrow_table(columns=list(SUMMED))))]}


if __name__ == "__main__":
    pa.set_cpu_count(2)
    folder, kind = sys.argv[1:3]
    serve(lambda: Delta() if kind == "delta" else Skep(folder))

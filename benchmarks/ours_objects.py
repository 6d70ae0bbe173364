"""The process behind `ours.Objects`: skep without a JVM, on tables in an object store."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from benchmarks import data  # noqa: E402
from benchmarks.ours_services import setting  # noqa: E402
from benchmarks.peers.spelling import spell  # noqa: E402
from benchmarks.peers.worker import serve  # noqa: E402
from skep_format.errors import NotATableError  # noqa: E402
from skep_format.storage import open_storage  # noqa: E402
from skep_table.commit.create import TableSpec, create_table  # noqa: E402
from skep_table.query import ReadRequest, read  # noqa: E402
from skep_table.services.cleaning.clean import clean  # noqa: E402
from skep_table.table import HudiTable  # noqa: E402
from skep_table.write.local import LocalWriter  # noqa: E402

Json = dict[str, Any]
SPEC = TableSpec(name="measured", schema=data.SCHEMA, record_key=("id",), ordering="ts", partition_by=("part",))


class OurObjects:
    """The requests, as `object_store.Contender` has them. `options` are those of the store."""

    def __init__(self, options: Json) -> None:
        self._options = options

    def write(self, *, path: str, source: str, operation: str) -> Json:
        try:
            table = HudiTable.open(path, self._options)
        except NotATableError:
            table = create_table(open_storage(path, self._options), SPEC)
        result = getattr(LocalWriter(table.with_context(**setting({}))), operation)(pq.read_table(source))
        return {"files": result.files}

    def sums(self, *, path: str) -> Json:
        found = read(HudiTable.open(path, self._options), ReadRequest(columns=data.SUMMED)).to_arrow()
        return {"rows": [spell(data.sums(found))]}

    def clean(self, *, path: str, options: Json) -> Json:
        return {"done": len(clean(HudiTable.open(path, self._options).with_context(**setting(options))))}


if __name__ == "__main__":
    pa.set_cpu_count(2)
    serve(lambda: OurObjects(json.loads(sys.argv[2])))

"""A streamed read holds a few batches, whatever the table's size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES, ROWS, COLUMNS, ROW_GROUPS = 2, 6_000_000, 8, 12
INSTANT = "20260101000000000"

READER = """
import resource, sys
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

table = HudiTable.open(sys.argv[1])
next(read(table, ReadRequest(limit=1)).to_batches())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(batch.num_rows for batch in read(table).to_batches())
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(rows, (after - before) // 1024)
"""


def test_peak_memory_of_a_streamed_read(tmp_path: Path) -> None:
    table_of_files(tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300
    )
    rows, grown_mib = map(int, result.stdout.split())
    whole_mib = FILES * ROWS * COLUMNS * 8 >> 20
    assert rows == FILES * ROWS
    assert grown_mib < whole_mib // 3, f"{grown_mib} MiB more for a table of {whole_mib} MiB"


def table_of_files(folder: Path) -> None:
    """A copy-on-write table whose files are links to one of them, without meta columns."""
    numbers = np.random.default_rng(1)
    schema = pa.schema([(f"n{at}", pa.int64()) for at in range(COLUMNS)])
    stats = []
    first = None
    for at in range(FILES):
        name = f"{at:08d}-0000-4000-8000-000000000000-0_0-0-0_{INSTANT}.parquet"
        if first is None:
            first = folder / name
            with pq.ParquetWriter(first, schema) as writer:
                for _ in range(ROW_GROUPS):
                    columns = [pa.array(numbers.integers(0, 2**62, ROWS // ROW_GROUPS)) for _ in schema]
                    writer.write_table(pa.table(columns, schema=schema))
        else:
            os.link(first, folder / name)
        stats.append({"fileId": name.split("_")[0], "path": name, "partitionPath": "", "numWrites": ROWS})
    fields = [{"name": name, "type": ["null", "long"], "default": None} for name in schema.names]
    avro = {"type": "record", "name": "numbers_record", "namespace": "hoodie.numbers", "fields": fields}
    meta = folder / ".hoodie"
    meta.mkdir()
    (folder / ".hoodie_partition_metadata").write_text(f"commitTime={INSTANT}\npartitionDepth=0\n")
    (meta / "hoodie.properties").write_text(
        "hoodie.table.name=numbers\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=6\n"
        "hoodie.timeline.layout.version=1\nhoodie.populate.meta.fields=false\n"
    )
    commit = {"partitionToWriteStats": {"": stats}, "extraMetadata": {"schema": json.dumps(avro)}}
    (meta / f"{INSTANT}.commit").write_text(json.dumps(commit))

"""A worker's memory is bounded by what it holds at a time, not by the files that it rewrites."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

WIDTH = 1_000
ONE_FILE = Options({"hoodie.parquet.max.file.size": str(4 << 30)})
# What a task of Spark does with a bucket, in a process of its own.
UPSERT = """
import sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from skep_format.runner import ThreadRunner
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

pa.set_cpu_count(1)
writer = LocalWriter(HudiTable.open(sys.argv[1]).with_context(runner=ThreadRunner(1)))
result = writer.upsert(pq.read_table(sys.argv[2]))
assert result.files == 1, result
# (getrusage would report the peak of the process that started this one)
print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])
"""


def made(start: int, stop: int, seed: int) -> pa.Table:
    """Rows that do not compress."""
    text = np.random.default_rng(seed).integers(33, 126, (stop - start, WIDTH), np.uint8)
    values = pa.array(text.view(f"S{WIDTH}").ravel()).cast(pa.string())
    keys = pa.array(np.arange(start, stop)).cast(pa.string())
    return pa.table({"id": keys, "ts": np.full(stop - start, seed), "v": values})


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("updated", [1_000, 50_000])
def test_an_upsert_into_a_file_of_half_a_gigabyte_takes_less_than_a_gibibyte(updated: int, tmp_path: Path) -> None:
    spec = TableSpec(name="t", schema=made(0, 1, 0).schema, record_key=("id",), ordering="ts")
    table = create_table(LocalStorage(str(tmp_path / "t")), spec)
    whole = pa.concat_tables([made(start, start + 65_000, 0) for start in range(0, 585_000, 65_000)])
    LocalWriter(table.with_context(options=ONE_FILE)).bulk_insert(whole)
    (slice_,) = HudiTable.open(str(tmp_path / "t")).view().slices("")
    assert slice_.base_file is not None
    assert slice_.base_file.size_bytes > 512 << 20
    del whole
    pq.write_table(made(1_000, 1_000 + updated, 1), tmp_path / "changes.parquet")
    command = [sys.executable, "-c", UPSERT, str(tmp_path / "t"), str(tmp_path / "changes.parquet")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    peak = int(ran.stdout.split()[-1]) * 1024
    assert 100 << 20 < peak < 1 << 30


# What `skep write` does with a file, in a process of its own, with an eighth of its usual memory for rows.
STREAM = """
import sys
from pathlib import Path
from skep.files.inputs import inputs_of, read_files
from skep_format.options import Options
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

def peak():
    return int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])

options = Options({'skep.write.memory.max.bytes': str(32 << 20), 'hoodie.memory.spillable.map.path': sys.argv[4]})
writer = LocalWriter(HudiTable.open(sys.argv[1]).with_context(options=options))
before = peak()
result = getattr(writer, sys.argv[3])(read_files(inputs_of([Path(sys.argv[2])])))
print(result.inserted, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("operation", "format"),
    [("bulk_insert", "parquet"), ("bulk_insert", "csv"), ("bulk_insert", "jsonl"), ("upsert", "parquet")],
)
def test_a_write_takes_memory_by_its_limit_not_by_its_input(operation: str, format: str, tmp_path: Path) -> None:
    """Peak memory beyond what imports take, for an input of 640 MB in Arrow with 32 MB allowed for rows."""
    table, source = tmp_path / "t", tmp_path / "source"
    source.mkdir()
    spec = TableSpec(name="t", schema=made(0, 1, 0).schema, record_key=("id",), ordering="ts")
    create_table(LocalStorage(str(table)), spec)
    count = 0
    for number, start in enumerate(range(0, 640_000, 64_000)):
        rows = made(start, start + 64_000, 0)
        count += rows.num_rows
        if format == "parquet":
            pq.write_table(rows, source / f"{number}.parquet")
        elif format == "csv":
            pyarrow.csv.write_csv(rows, source / f"{number}.csv")
        else:
            text = rows.to_pandas().to_json(orient="records", lines=True)
            (source / f"{number}.jsonl").write_text(text)
    command = [sys.executable, "-c", STREAM, str(table), str(source), operation, str(tmp_path / "spill")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    inserted, peak = map(int, ran.stdout.split()[-2:])
    assert inserted == count
    assert peak * 1024 < 512 << 20, f"{peak >> 10} MiB"
